package cli_test

import (
	"bytes"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/cli"
)

// TestTimeout: a command has no more patience than it was given, says what it
// knew last, and that this ends nothing else.
func TestTimeout(t *testing.T) {
	t.Parallel()
	waits := api.Wait{Subject: "volume default/pg", Reason: "no node runs plugin disk"}
	f := newFake(t, map[string]any{
		"PUT /v1/volume/default/pg":    volumeIn(api.VolumeCreating, ""),
		"GET /v1/volume/default/pg":    volumeIn(api.VolumeCreating, "", waits),
		"PUT /v1/volume/dev/b":         volumeIn(api.VolumeCreating, ""),
		"DELETE /v1/job/dev/db":        jobIn(api.JobStopping, api.Absent),
		"GET /v1/job/dev/db":           jobIn(api.JobStopping, api.Absent),
		"DELETE /v1/volume/default/pg": volumeIn(api.VolumeDeleting, ""),
	})
	file := write(t, volumeFile)[0]
	for command, want := range map[string]string{
		"apply --timeout 50ms " + file:      "not done within 50ms: volume default/pg is creating: no node runs plugin disk; what was asked for goes on (see 'berth volume explain pg')",
		"job stop db -n dev --timeout 50ms": "not done within 50ms: job dev/db is stopping; what was asked for goes on (see 'berth job explain db -n dev')",
	} {
		got := run(t, f.URL, strings.Fields(command)...)
		if got.stderr != "berth: "+want+"\n" || got.status != cli.ExitFailed {
			t.Errorf("%s: exit status %d, %s", command, got.status, cmp.Diff("berth: "+want+"\n", got.stderr))
		}
	}
	for _, timeout := range []string{"0s", "-1s"} {
		got := run(t, f.URL, "volume", "delete", "pg", "--timeout", timeout)
		want := result{stderr: "berth: --timeout is " + timeout + "; give a duration such as 90s\n", status: cli.ExitUsage}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
			t.Errorf("--timeout %s (-want +got):\n%s", timeout, diff)
		}
	}
}

func failed(id api.AllocID, revision uint64) *api.Allocation {
	return &api.Allocation{ID: id, JobID: "db", Group: "main", Revision: revision, Status: api.AllocStatus{
		State: api.AllocFailed, Tasks: map[string]api.TaskStatus{"t": {State: api.TaskEnded, ExitCode: 3}},
	}}
}

// TestApplyTellsOfTheFirstAllocationThatFails, and of none that failed before.
func TestApplyTellsOfTheFirstAllocationThatFails(t *testing.T) {
	t.Parallel()
	const text = "berth: wait for job default/db: allocation bbbb of it has failed: task t exited with status 3; the servers go on trying (see 'berth alloc status bbbb')\n"
	for name, tc := range map[string]struct {
		typ    api.JobType
		allocs []*api.Allocation
		want   result
	}{
		"New":      {api.JobService, []*api.Allocation{failed("aaaa", 2), failed("bbbb", 2)}, result{stderr: text, status: 1}},
		"Before":   {api.JobService, []*api.Allocation{failed("aaaa", 2)}, result{stdout: "job default/db is pending\njob default/db is running\n"}},
		"Revision": {api.JobService, []*api.Allocation{failed("cccc", 1)}, result{stdout: "job default/db is pending\njob default/db is running\n"}},
		"Batch":    {api.JobBatch, []*api.Allocation{failed("bbbb", 2)}, result{stdout: "job default/db is pending\njob default/db is running\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := func(state api.JobState, allocs ...*api.Allocation) api.JobInfo {
				info := jobIn(state, api.Present)
				info.Revision, info.Spec.Type, info.Allocations = 2, tc.typ, allocs
				return info
			}
			f := newFake(t, map[string]any{
				"PUT /v1/job/default/db": job(api.JobPending, failed("aaaa", 2)),
				"GET /v1/job/default/db": inTurn{job(api.JobPending, tc.allocs...), job(api.JobRunning)},
			})
			tc.want.stdout = "job default/db applied\n" + tc.want.stdout
			if diff := cmp.Diff(tc.want, run(t, f.URL, "apply", write(t, jobFile)[0]), cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestApplyFollowsItsRevision: it is done when what was applied is, and fails
// when something else takes its place.
func TestApplyFollowsItsRevision(t *testing.T) {
	t.Parallel()
	job := func(state api.JobState, revision, stable uint64, reverted *api.Reversion) api.JobInfo {
		info := jobIn(state, api.Present)
		info.Revision, info.Spec.Type, info.Status = revision, api.JobService, api.JobStatus{Stable: stable, Reverted: reverted}
		return info
	}
	pending := job(api.JobPending, 2, 1, nil)
	for name, tc := range map[string]struct {
		flags []string
		then  inTurn
		want  result
	}{
		"Runs": {nil, inTurn{pending, job(api.JobRunning, 2, 1, nil)}, result{stdout: "job default/db is pending\njob default/db is running\n"}},
		"Healthy": {[]string{"--healthy"}, inTurn{job(api.JobRunning, 2, 1, nil), job(api.JobRunning, 2, 2, nil)},
			result{stdout: "job default/db is running, and not healthy everywhere yet\njob default/db is running\n"}},
		"GoneBack": {[]string{"--healthy"}, inTurn{pending, job(api.JobPending, 3, 1, &api.Reversion{From: 2, To: 1, Reason: "place 0 was not healthy within 5m0s"})},
			result{stdout: "job default/db is pending\n", stderr: "berth: wait for job default/db: revision 2 of it has failed, and it has gone back to revision 1: place 0 was not healthy within 5m0s\n", status: 1}},
		"Changed": {nil, inTurn{pending, job(api.JobPending, 3, 1, nil)},
			result{stdout: "job default/db is pending\n", stderr: "berth: wait for job default/db: revision 3 of it was applied in the meantime\n", status: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, map[string]any{"PUT /v1/job/default/db": pending, "GET /v1/job/default/db": tc.then})
			tc.want.stdout = "job default/db applied\n" + tc.want.stdout
			if diff := cmp.Diff(tc.want, run(t, f.URL, append([]string{"apply", write(t, jobFile)[0]}, tc.flags...)...), cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestVolumesAreWaitedForTogether: one that fails is told of beside the others.
func TestVolumesAreWaitedForTogether(t *testing.T) {
	t.Parallel()
	two := volumeFile + strings.Replace(volumeFile, "pg", "wal", 1)
	second := volumeIn(api.VolumeFailed, "RESOURCE_EXHAUSTED: the disk is full")
	second.ID = "wal"
	f := newFake(t, map[string]any{
		"PUT /v1/volume/default/pg":  volumeIn(api.VolumeCreating, ""),
		"GET /v1/volume/default/pg":  volumeIn(api.VolumeFailed, "INTERNAL: no"),
		"PUT /v1/volume/default/wal": second,
		"GET /v1/volume/default/wal": second,
	})
	got := run(t, f.URL, "apply", write(t, two)[0])
	want := "berth: wait for volume default/pg: it could not be created: INTERNAL: no\nwait for volume default/wal: it could not be created: RESOURCE_EXHAUSTED: the disk is full\n"
	if got.stderr != want || got.status != cli.ExitFailed {
		t.Errorf("exit status %d, %s", got.status, cmp.Diff(want, got.stderr))
	}
}

// terminal shows what a person sees: it knows the control sequences that
// commands may send, and fails the test at any other.
type terminal struct {
	t     *testing.T
	all   bytes.Buffer
	lines []string
}

var control = regexp.MustCompile(`^\x1b\[(\d+)A\r\x1b\[J`)

func (s *terminal) Write(p []byte) (int, error) { return s.all.Write(p) }

// screen plays everything that was written.
func (s *terminal) screen() string {
	rest := s.all.String()
	s.lines = []string{""}
	for rest != "" {
		if m := control.FindStringSubmatch(rest); m != nil {
			up, _ := strconv.Atoi(m[1])
			if up >= len(s.lines) {
				s.t.Fatalf("the cursor goes up %d lines of %q", up, s.lines)
			}
			s.lines = append(s.lines[:len(s.lines)-1-up], "")
			rest = rest[len(m[0]):]
			continue
		}
		switch rest[0] {
		case '\x1b', '\r':
			s.t.Fatalf("unknown control sequence in %q", rest)
		case '\n':
			s.lines = append(s.lines, "")
		default:
			s.lines[len(s.lines)-1] += rest[:1]
		}
		rest = rest[1:]
	}
	return strings.Join(s.lines, "\n")
}

// TestOnATerminalWhatChangesIsDrawnAgain, and only what was reached stays.
func TestOnATerminalWhatChangesIsDrawnAgain(t *testing.T) {
	t.Parallel()
	long := api.Wait{Subject: "volume default/pg", Reason: "node " + strings.Repeat("n", 90) + " makes the call"}
	answers := map[string]any{
		"PUT /v1/volume/default/pg": volumeIn(api.VolumeCreating, ""),
		"GET /v1/volume/default/pg": inTurn{volumeIn(api.VolumeCreating, ""), volumeIn(api.VolumeCreating, "", long), volumeIn(api.VolumeReady, "")},
		"PUT /v1/job/default/db":    jobIn(api.JobPending, api.Present),
		"GET /v1/job/default/db":    inTurn{jobIn(api.JobPending, api.Present, api.Wait{Reason: "no node fits"}), jobIn(api.JobRunning, api.Present)},
	}
	f := newFake(t, answers)
	seen := &terminal{t: t}
	env := cli.Env{
		Args: append([]string{"apply"}, write(t, volumeFile, jobFile)...), Stdin: strings.NewReader(""), Stdout: seen, Stderr: seen,
		Columns: func() int { return 60 }, LiveColumns: func() int { return 60 },
		Getenv: variables(map[string]string{"BERTH_ADDRESS": f.URL}),
	}
	status := cli.Main(t.Context(), env)
	want := "volume default/pg applied (creating)\njob default/db applied\nvolume default/pg is ready\njob default/db is running\n"
	if diff := cmp.Diff(want, seen.screen()); diff != "" || status != cli.ExitDone {
		t.Errorf("exit status %d (-want +seen):\n%s", status, diff)
	}
	for _, drawn := range []string{
		"volume default/pg is creating, for 0s\n",
		"volume default/pg is creating, for 0s: node nnnnnnnnnnnnnn…\n",
		"job default/db is pending, for 0s: no node fits\n",
	} {
		if !strings.Contains(seen.all.String(), drawn) {
			t.Errorf("%q was not drawn in %q", drawn, seen.all.String())
		}
	}
}

// TestBrokenConnectionIsSurvived: the server goes away in the middle of a wait,
// and is back later than the client's own patience lasts.
func TestBrokenConnectionIsSurvived(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	answers := map[string]any{
		"DELETE /v1/job/default/db": jobIn(api.JobStopping, api.Absent),
		"GET /v1/job/default/db":    inTurn{jobIn(api.JobStopping, api.Absent), jobIn(api.JobStopped, api.Absent)},
	}
	f := &fake{answers: answers}
	asked := make(chan struct{})
	first := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("index") {
			close(asked)
			<-r.Context().Done()
			return
		}
		f.serve(w, r)
	})}
	served := make(chan struct{}, 2)
	serve := func(s *http.Server, l net.Listener) {
		_ = s.Serve(l) // it ends by Close
		served <- struct{}{}
	}
	go serve(first, l)
	done := make(chan result, 1)
	go func() { done <- run(t, "http://"+address, "job", "stop", "db") }()
	<-asked
	_ = first.Close()
	<-served
	select {
	case got := <-done:
		t.Fatalf("it gave up: %+v", got)
	case <-time.After(6 * time.Second):
	}
	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	second := &http.Server{Handler: http.HandlerFunc(f.serve)}
	go serve(second, l)
	got := <-done
	_ = second.Close()
	<-served
	want := result{
		stdout: "job default/db is stopping\njob default/db is stopped\n",
		stderr: "berth: no server answers at http://" + address + ": dial tcp " + address + ": connect: connection refused (is the agent running there? " +
			"set --address or BERTH_ADDRESS); what was asked for goes on, and the servers are asked again\nberth: the servers answer again\n",
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
