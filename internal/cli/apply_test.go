package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/cli"
)

const (
	volumeFile = `volume "pg" {
  plugin_id = "disk"
  capability {
    access_mode     = "single-node-writer"
    attachment_mode = "file-system"
  }
}
`
	jobFile = `job "db" {
  group "main" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
`
)

// write writes files into a directory of the test, and returns their paths.
func write(t *testing.T, contents ...string) []string {
	t.Helper()
	dir, paths := t.TempDir(), []string{}
	for i, text := range contents {
		path := filepath.Join(dir, string(rune('a'+i))+".hcl")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

func volumeIn(state api.VolumeState, reason string, waits ...api.Wait) api.VolumeInfo {
	return api.VolumeInfo{Waits: waits, Volume: &api.Volume{
		Namespace: "default", ID: "pg", Desired: api.Present, Status: api.VolumeStatus{State: state, Reason: reason},
	}}
}

func jobIn(state api.JobState, desired api.Presence, waits ...api.Wait) api.JobInfo {
	return api.JobInfo{Job: &api.Job{Namespace: "default", ID: "db", Desired: desired}, State: state, Waits: waits}
}

// TestApplySaysWhatItWaitsFor: each state once, with what explains it best, and
// no capacity where the plugin names none.
func TestApplySaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	onOperation := api.Wait{Subject: "volume default/pg", Reason: "waits for operation create/default/pg@1"}
	warned := jobIn(api.JobPending, api.Present)
	warned.Warnings = []api.Field{{Path: `group["main"]`, Message: "has no volume"}}
	f := newFake(t, map[string]any{
		"PUT /v1/volume/default/pg": volumeIn(api.VolumeCreating, ""),
		"GET /v1/volume/default/pg": inTurn{
			volumeIn(api.VolumeCreating, ""), volumeIn(api.VolumeCreating, "", onOperation), volumeIn(api.VolumeCreating, "", onOperation),
			volumeIn(api.VolumeCreating, "", onOperation, api.Wait{Subject: "operation create/default/pg@1", Reason: "attempt 2 answered INTERNAL: \x1b]0;no"}),
			volumeIn(api.VolumeReady, ""),
		},
		"PUT /v1/job/default/db": warned,
		"GET /v1/job/default/db": inTurn{
			jobIn(api.JobPending, api.Present, api.Wait{Subject: "allocation db.main[0]", Reason: "no node fits"}), jobIn(api.JobRunning, api.Present),
		},
	})
	files := write(t, jobFile, volumeFile)
	want := result{stdout: `volume default/pg applied (creating)
job default/db applied
volume default/pg is creating
volume default/pg is creating: waits for operation create/default/pg@1
volume default/pg is creating: operation create/default/pg@1: attempt 2 answered INTERNAL: \x1b]0;no
volume default/pg is ready
job default/db is pending: no node fits
job default/db is running
`, stderr: "warning: job default/db: group[\"main\"] has no volume\n"}
	if diff := cmp.Diff(want, run(t, f.URL, append([]string{"apply"}, files...)...), cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"PUT /v1/volume/default/pg", "PUT /v1/job/default/db"}, f.writes()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// TestApplyPrintsWhatItMade as one JSON value, waited for or not.
func TestApplyPrintsWhatItMade(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string]any{
		"PUT /v1/volume/default/pg": volumeIn(api.VolumeCreating, ""),
		"GET /v1/volume/default/pg": volumeIn(api.VolumeReady, ""),
		"PUT /v1/job/default/db":    jobIn(api.JobPending, api.Present),
		"GET /v1/job/default/db":    jobIn(api.JobRunning, api.Present),
	})
	for flag, want := range map[string][2]string{"--detach": {"creating", "pending"}, "--json": {"ready", "running"}} {
		got := run(t, f.URL, append([]string{"apply", "--json", flag}, write(t, volumeFile, jobFile)...)...)
		var made struct {
			Volumes []api.VolumeInfo
			Jobs    []api.JobInfo
		}
		if err := json.Unmarshal([]byte(got.stdout), &made); err != nil || got.status != 0 || len(made.Volumes) != 1 || len(made.Jobs) != 1 {
			t.Fatalf("%s: %v in %+v", flag, err, got)
		}
		if have := [2]string{string(made.Volumes[0].Status.State), string(made.Jobs[0].State)}; have != want {
			t.Errorf("%s: %v, want %v", flag, have, want)
		}
	}
}

// TestApplyFails: what fails is said at once, and what would wait for it for
// ever is not waited for.
func TestApplyFails(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answers map[string]any
		out     string
		want    string
		status  int
	}{
		"VolumeRefused": {
			map[string]any{"PUT /v1/volume/default/pg": &api.Error{Code: api.CodeInvalid, Message: "the volume has a problem", Fields: []api.Field{{Path: "capacity_min", Message: "cannot change"}}}},
			"", "apply volume default/pg: the volume has a problem\n  capacity_min cannot change", 2,
		},
		"JobConflicts": {
			map[string]any{"PUT /v1/job/default/db": api.Errorf(api.CodeConflict, "it moved")},
			"volume default/pg applied (creating)\n", "apply job default/db: it moved", 1,
		},
		"VolumeFailed": {
			map[string]any{"GET /v1/volume/default/pg": volumeIn(api.VolumeFailed, "INVALID_ARGUMENT: no such pool")},
			"volume default/pg applied (creating)\njob default/db applied\n", "wait for volume default/pg: it could not be created: INVALID_ARGUMENT: no such pool", 1,
		},
		"VolumeDeletedMeanwhile": {
			map[string]any{"GET /v1/volume/default/pg": volumeIn(api.VolumeDeleting, "")},
			"volume default/pg applied (creating)\njob default/db applied\n", "wait for volume default/pg: it is being deleted", 1,
		},
		"JobFailed": {
			map[string]any{"GET /v1/job/default/db": jobIn(api.JobFailed, api.Present)},
			"volume default/pg applied (creating)\njob default/db applied\nvolume default/pg is ready\n", "wait for job default/db: it has failed", 1,
		},
		"JobStoppedMeanwhile": {
			map[string]any{"GET /v1/job/default/db": jobIn(api.JobStopping, api.Absent)},
			"volume default/pg applied (creating)\njob default/db applied\nvolume default/pg is ready\n", "wait for job default/db: it was stopped", 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := map[string]any{
				"PUT /v1/volume/default/pg": volumeIn(api.VolumeCreating, ""),
				"GET /v1/volume/default/pg": volumeIn(api.VolumeReady, ""),
				"PUT /v1/job/default/db":    jobIn(api.JobPending, api.Present),
				"GET /v1/job/default/db":    jobIn(api.JobPending, api.Present),
			}
			maps.Copy(answers, tc.answers)
			got := run(t, newFake(t, answers).URL, append([]string{"apply"}, write(t, volumeFile, jobFile)...)...)
			want := result{tc.out, "berth: " + tc.want + "\n", tc.status}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestApplyOfBrokenFiles: every problem of every file at once, and nothing is
// asked of the servers.
func TestApplyOfBrokenFiles(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	paths := write(t, volumeFile, "volume \"x\" {\n  plugin = 3\n}\n", volumeFile+jobFile)
	dir := filepath.Dir(paths[0])
	stdin := strings.NewReader("job {\n")
	got := runWith(t, cli.Env{Stdin: stdin}, f.URL, append([]string{"apply", "-", dir, filepath.Join(dir, "none.hcl"), "/dev/zero"}, paths...)...)
	if got.status != cli.ExitUsage || got.stdout != "" || len(f.asked) > 0 {
		t.Errorf("exit status %d, stdout %q, requests %v", got.status, got.stdout, f.asked)
	}
	for _, want := range []string{
		"berth: the input has ",
		"\n  stdin:1:",
		"\n  " + dir + ": cannot be read: is a directory\n",
		"\n  " + dir + "/none.hcl: cannot be read: no such file or directory\n",
		"\n  /dev/zero:1:1: is larger than 1024 KiB; split the file\n",
		"\n  " + paths[1] + ":2:3: ",
		"\n  " + paths[2] + ": has volume default/pg, which " + paths[0] + " has too; leave one out\n",
	} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("%q is not in\n%s", want, got.stderr)
		}
	}
}

// TestApplyReadsTheStandardInput under the name -.
func TestApplyReadsTheStandardInput(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string]any{"PUT /v1/volume/dev/pg": volumeIn(api.VolumeCreating, "")})
	got := runWith(t, cli.Env{Stdin: strings.NewReader(volumeFile)}, f.URL, "apply", "-", "--detach", "-n", "dev")
	if diff := cmp.Diff(result{stdout: "volume dev/pg applied (creating)\n"}, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// interrupter cancels when it reads a text.
type interrupter struct {
	bytes.Buffer
	at     string
	cancel context.CancelFunc
}

func (i *interrupter) Write(p []byte) (int, error) {
	n, err := i.Buffer.Write(p)
	if strings.Contains(i.String(), i.at) {
		i.cancel()
	}
	return n, err
}

// TestInterrupt: who stops waiting learns that nothing else stops.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string]any{
		"PUT /v1/volume/default/pg":    volumeIn(api.VolumeCreating, ""),
		"GET /v1/volume/default/pg":    volumeIn(api.VolumeCreating, ""),
		"DELETE /v1/volume/default/pg": volumeIn(api.VolumeDeleting, ""),
		"DELETE /v1/job/default/db":    jobIn(api.JobStopping, api.Absent),
		"GET /v1/job/default/db":       jobIn(api.JobStopping, api.Absent),
	})
	file := write(t, volumeFile)[0]
	for command, tc := range map[string]struct{ at, what, look string }{
		"apply " + file: {"pg is creating", "volume default/pg", "volume explain pg"},
		"job stop db":   {"db is stopping", "job default/db", "job explain db"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		out := &interrupter{at: tc.at, cancel: cancel}
		var errOut bytes.Buffer
		status := cli.Main(ctx, cli.Env{
			Args: strings.Fields(command), Stdout: out, Stderr: &errOut, Stdin: strings.NewReader(""),
			Getenv: func(name string) string { return map[string]string{"BERTH_ADDRESS": f.URL}[name] },
		})
		want := "berth: interrupted while waiting for " + tc.what + "; what was asked for goes on (see 'berth " + tc.look + "')\n"
		if errOut.String() != want || status != cli.ExitFailed {
			t.Errorf("%s: exit status %d, %q, want %q", command, status, errOut.String(), want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var errOut bytes.Buffer
	status := cli.Main(ctx, cli.Env{
		Args: []string{"status"}, Stdout: &bytes.Buffer{}, Stderr: &errOut, Stdin: strings.NewReader(""),
		Getenv: func(name string) string { return map[string]string{"BERTH_ADDRESS": f.URL}[name] },
	})
	if errOut.String() != "berth: interrupted\n" || status != cli.ExitFailed {
		t.Errorf("a read: exit status %d, %q", status, errOut.String())
	}
}

// TestStopWaitsForVolumes: a job is stopped when its tasks have ended, and its
// volumes are free somewhat later.
func TestStopWaitsForVolumes(t *testing.T) {
	t.Parallel()
	stopped := jobIn(api.JobStopped, api.Absent)
	stopped.Allocations = []*api.Allocation{{ID: "aaaa"}, {ID: "collected"}}
	held := api.AllocationInfo{
		Allocation:  &api.Allocation{ID: "aaaa"},
		Attachments: []*api.Attachment{{VolumeID: "pg", Status: api.AttachmentStatus{State: api.Unpublishing}}},
		Waits:       []api.Wait{{Reason: "node n1 is to unmount it"}},
	}
	answers := map[string]any{
		"DELETE /v1/job/default/db": jobIn(api.JobStopping, api.Absent),
		"GET /v1/job/default/db":    inTurn{jobIn(api.JobStopping, api.Absent), stopped},
		"GET /v1/allocation/aaaa":   inTurn{held, api.AllocationInfo{Allocation: held.Allocation}},
	}
	want := result{stdout: `job default/db is stopping
job default/db is stopped
volume default/pg is being released: node n1 is to unmount it
`}
	if diff := cmp.Diff(want, run(t, newFake(t, answers).URL, "job", "stop", "db"), cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	answers["GET /v1/job/default/db"] = jobIn(api.JobRunning, api.Present)
	want = result{stderr: "berth: wait for job default/db: it was started again\n", status: 1}
	if diff := cmp.Diff(want, run(t, newFake(t, answers).URL, "job", "stop", "db"), cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("started again (-want +got):\n%s", diff)
	}
}

// TestDeleteWaitsUntilItIsGone, and says for what.
func TestDeleteWaitsUntilItIsGone(t *testing.T) {
	t.Parallel()
	deleting := volumeIn(api.VolumeDeleting, "", api.Wait{Subject: "volume default/pg", Reason: "is still published to node n1"})
	deleting.Desired = api.Absent
	answers := map[string]any{
		"DELETE /v1/volume/default/pg": deleting,
		"GET /v1/volume/default/pg":    inTurn{deleting, deleting, api.Errorf(api.CodeNotFound, "gone")},
	}
	want := result{stdout: "volume default/pg is deleting: is still published to node n1\nvolume default/pg is deleted\n"}
	if diff := cmp.Diff(want, run(t, newFake(t, answers).URL, "volume", "delete", "pg"), cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := run(t, newFake(t, answers).URL, "volume", "delete", "pg", "--json"); got != (result{}) {
		t.Errorf("--json: %+v, want nothing: nothing is left", got)
	}
	answers["GET /v1/volume/default/pg"] = volumeIn(api.VolumeCreating, "")
	want = result{stderr: "berth: wait for volume default/pg: it was applied again\n", status: 1}
	if diff := cmp.Diff(want, run(t, newFake(t, answers).URL, "volume", "delete", "pg"), cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("applied again (-want +got):\n%s", diff)
	}
}

// TestDetachSaysWhatWasAsked and does not look at what comes of it.
func TestDetachSaysWhatWasAsked(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string]any{
		"DELETE /v1/volume/default/pg": volumeIn(api.VolumeDeleting, ""),
		"DELETE /v1/job/default/db":    jobIn(api.JobStopping, api.Absent),
	})
	for command, want := range map[string]string{
		"volume delete pg --detach": "volume default/pg is to be deleted\n",
		"job stop db --detach":      "job default/db is stopping\n",
	} {
		if diff := cmp.Diff(result{stdout: want}, run(t, f.URL, strings.Fields(command)...), cmp.AllowUnexported(result{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", command, diff)
		}
	}
}

// TestSavedStateIsWholeOrNotThere: a file of before stays if the new one fails.
func TestSavedStateIsWholeOrNotThere(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string]any{"GET /v1/system/snapshot": "the state"})
	dir := t.TempDir()
	path := filepath.Join(dir, "cluster.state")
	if diff := cmp.Diff(result{stdout: "state saved to " + path + "\n"}, run(t, f.URL, "system", "snapshot", "save", path), cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	failing := newFake(t, map[string]any{"GET /v1/system/snapshot": api.Errorf(api.CodeInternal, "the disk has a hole")})
	want := result{stderr: "berth: save state to " + path + ": the disk has a hole\n", status: 1}
	if diff := cmp.Diff(want, run(t, failing.URL, "system", "snapshot", "save", path), cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "\"the state\"\n" {
		t.Errorf("the saved state is %q (%v)", b, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v is left (%v)", left, err)
	}
}
