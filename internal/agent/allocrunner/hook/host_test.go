package hook_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/allocrunner/hook"
	"github.com/berth-dev/berth/internal/agent/driver"
)

// TestHostVolumesAreHandedOn: a directory of the node is a mount like any other
// to the tasks, beside volumes that are attached; one that is not there now is
// waited for, and never made.
func TestHostVolumesAreHandedOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	known := map[string]hook.HostVolume{
		"data": {Path: dir}, "certs": {Path: dir, ReadOnly: true}, "gone": {Path: filepath.Join(dir, "gone")}, "file": {Path: file},
	}
	for name, tc := range map[string]struct {
		request     api.VolumeRequest
		want        string // of the error, "" for none
		waits, ends bool
	}{
		"There":    {api.VolumeRequest{Name: "h", Type: api.VolumeTypeHost, Source: "data"}, "", false, false},
		"ReadOnly": {api.VolumeRequest{Name: "h", Type: api.VolumeTypeHost, Source: "certs", ReadOnly: true}, "", false, false},
		"Writes":   {api.VolumeRequest{Name: "h", Type: api.VolumeTypeHost, Source: "certs"}, "host volume certs is read only on this node", false, true},
		"Unknown":  {api.VolumeRequest{Name: "h", Type: api.VolumeTypeHost, Source: "logs"}, "has no host volume logs any more", true, false},
		"Gone":     {api.VolumeRequest{Name: "h", Type: api.VolumeTypeHost, Source: "gone"}, "no such file or directory", false, false},
		"NoDir":    {api.VolumeRequest{Name: "h", Type: api.VolumeTypeHost, Source: "file"}, "is no directory", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := assignment()
			a.Group.Volumes = append(a.Group.Volumes, api.VolumeRequest{Name: "a", Type: api.VolumeTypeCSI}, tc.request)
			a.Attachments = []api.AttachmentAssignment{{Attachment: api.Attachment{
				AllocID: a.ID, Name: "a", VolumeID: "vol-a", Status: api.AttachmentStatus{State: api.ControllerPublished},
			}}}
			runner, s := tasks(newFake(), a)
			runner.Host(known)
			h := hook.NewVolumes(&mounter{script: works}, &said{facts: map[string]api.AttachmentFact{}}, runner)
			if err := h.Up(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			err := runner.Up(t.Context(), s)
			if tc.want == "" {
				if diff := cmp.Diff(map[string]string{"a": "/mnt/a", "h": dir}, s.Mounts()); err != nil || diff != "" {
					t.Errorf("Up: %v, mounts (-want +got):\n%s", err, diff)
				}
				return
			}
			var waiting *allocrunner.Waiting
			var fatal *allocrunner.Fatal
			if err == nil || !strings.Contains(err.Error(), tc.want) || errors.As(err, &waiting) != tc.waits || errors.As(err, &fatal) != tc.ends {
				t.Errorf("Up: %v (waits %t, ends %t), want %q", err, errors.As(err, &waiting), errors.As(err, &fatal), tc.want)
			}
			if _, err := os.Stat(filepath.Join(dir, "gone")); err == nil {
				t.Error("a directory that was gone was made")
			}
		})
	}
}

// A host volume that goes away, or is to be read only from now on, takes nothing
// from what runs: it is looked at again when a task is to be started.
func TestHostVolumeIsTheStartersAffair(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]struct {
		volumes map[string]hook.HostVolume
		want    string
	}{
		"Removed":     {nil, "has no host volume data any more"},
		"NowReadOnly": {map[string]hook.HostVolume{"data": {Path: "/", ReadOnly: true}}, "is read only on this node"},
		"NotMounted":  {map[string]hook.HostVolume{"data": {Path: filepath.Join(t.TempDir(), "gone")}}, "no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := assignment()
			attempts, delay := 3, api.Duration(0)
			a.JobType = api.JobService
			a.Group.Restart = &api.RestartPolicy{Attempts: &attempts, Delay: &delay}
			a.Group.Tasks[0].VolumeMounts = []api.VolumeMount{{Volume: "h", Destination: "/h"}}
			a.Group.Tasks = append(a.Group.Tasks, api.Task{Name: "other", Driver: "fake"})
			a.Group.Volumes = []api.VolumeRequest{{Name: "h", Type: api.VolumeTypeHost, Source: "data"}, {Name: "a", Type: api.VolumeTypeCSI}}
			a.Attachments = []api.AttachmentAssignment{{Attachment: api.Attachment{
				AllocID: a.ID, Name: "a", VolumeID: "vol-a", Status: api.AttachmentStatus{State: api.ControllerPublished},
			}}}
			d := newFake()
			runner, s := tasks(d, a)
			runner.Host(map[string]hook.HostVolume{"data": {Path: t.TempDir()}})
			m := &mounter{script: works}
			h := hook.NewVolumes(m, &said{facts: map[string]api.AttachmentFact{}}, runner)
			up := func() error {
				if err := h.Up(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				return runner.Up(t.Context(), s)
			}
			if err := up(); err != nil {
				t.Fatal(err)
			}
			runner.Host(later.volumes)
			if err := up(); err != nil || len(m.calls) != 2 {
				t.Errorf("Up while all runs: %v, after %s", err, m.calls)
			}
			for _, task := range []string{"other", "pg"} {
				d.end(id(task), driver.Status{ExitCode: 1})
			}
			for range 2 { // the first sees the ends
				if err := up(); err != nil && !strings.Contains(err.Error(), later.want) {
					t.Errorf("Up: %v, want %q", err, later.want)
				}
			}
			if name == "NowReadOnly" {
				return // the allocation has failed
			}
			if is := s.Tasks(); is["pg"].State != api.TaskPending || is["other"].State != api.TaskRunning || is["other"].Restarts != 1 {
				t.Errorf("only the task with the volume is to wait for it: %+v", is)
			}
		})
	}
}

// What could not be mounted again is no obstacle any more for a task that comes
// after the others, if it is mounted.
func TestPoststopBelievesTheMountTable(t *testing.T) {
	t.Parallel()
	a := assignment()
	a.JobType = api.JobBatch
	a.Group.Tasks = append(a.Group.Tasks, api.Task{Name: "last", Driver: "fake", Lifecycle: &api.Lifecycle{Hook: api.HookPoststop}})
	a.Group.Volumes = []api.VolumeRequest{{Name: "a", Type: api.VolumeTypeCSI}}
	a.Attachments = []api.AttachmentAssignment{{Attachment: api.Attachment{
		AllocID: a.ID, Name: "a", VolumeID: "vol-a", Status: api.AttachmentStatus{State: api.NodePublished},
	}}}
	d := newFake()
	runner, s := tasks(d, a)
	m := &mounter{script: works}
	v := hook.NewVolumes(m, &said{facts: map[string]api.AttachmentFact{}}, runner)
	for _, h := range []allocrunner.Hook{v, runner} {
		if err := h.Up(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	m.script = func(context.Context, string) error { return coded{} }
	if err := v.Up(t.Context(), s); err == nil {
		t.Fatal("the volume is mounted")
	}
	if err := runner.Down(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- hook.NewPoststop(runner, v).Down(t.Context(), s) }()
	for over := false; !over; {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
			over = true
		default:
			d.end(id("last"), driver.Status{})
			runtime.Gosched()
		}
	}
	if is := s.Tasks()["last"]; is.State != api.TaskEnded || is.Reason != "" {
		t.Errorf("the last task is %+v", is)
	}
}
