package driver_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/agent/driver"
)

// TestHundredTasksAtOnce starts and stops a hundred tasks, all at the same
// time.
//
//nolint:paralleltest // beside it no other test would get anywhere
func TestHundredTasksAtOnce(t *testing.T) {
	for _, name := range []string{driver.NameExec, driver.NameRawExec} {
		t.Run(name, func(t *testing.T) { hundredTasks(t, newWorld(t), name) })
	}
}

func hundredTasks(t *testing.T, w *world, name string) {
	t.Helper()
	const many = 100
	d := w.driver(name)
	specs := make([]driver.Spec, many)
	for i := range specs {
		specs[i] = w.spec("sleep", "1000")
	}
	steps := []struct {
		name string
		call func(driver.Spec) error
		want driver.State
	}{
		{"start", func(s driver.Spec) error { return d.Start(ctx(t), s) }, driver.StateRunning},
		{"stop", func(s driver.Spec) error { return d.Stop(ctx(t), s.ID, "SIGTERM", time.Minute) }, driver.StateEnded},
		{"destroy", func(s driver.Spec) error { return d.Destroy(ctx(t), s.ID) }, driver.StateUnknown},
	}
	for _, step := range steps {
		took := atOnce(specs, func(s driver.Spec) {
			if err := step.call(s); err != nil {
				t.Error(err)
			}
		})
		slices.Sort(took)
		t.Logf("%s of %d at once: median %s, last %s", step.name, many, took[many/2].Round(time.Millisecond), took[many-1].Round(time.Millisecond))
		for _, s := range specs {
			if got := status(t, d, s); got.State != step.want {
				t.Errorf("after %s, %s is %+v", step.name, s.ID, got)
			}
		}
	}
	for _, left := range [][]string{w.runDirs(), w.cgroups(), w.processes()} {
		if len(left) > 0 {
			t.Errorf("%d tasks leave %q", many, left)
		}
	}
}

// atOnce calls for all specs at the same time and tells how long each took.
func atOnce(specs []driver.Spec, call func(driver.Spec)) []time.Duration {
	took := make([]time.Duration, len(specs))
	begin := make(chan struct{})
	var group sync.WaitGroup
	for i, s := range specs {
		group.Go(func() {
			<-begin
			before := time.Now()
			call(s)
			took[i] = time.Since(before)
		})
	}
	close(begin)
	group.Wait()
	return took
}

// TestStartAndDestroyAtOnce lets several agents start, look at, stop and
// destroy one task, without any order between them.
func TestStartAndDestroyAtOnce(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		// The task sees whether another of its kind runs.
		spec := w.script("mkdir alone || echo not alone; sleep 0.01; rmdir alone")
		calls := []func(driver.Driver) error{
			func(d driver.Driver) error { return d.Start(ctx(t), spec) },
			func(d driver.Driver) error { _, err := d.Status(ctx(t), spec.ID); return err },
			func(d driver.Driver) error { return d.Destroy(ctx(t), spec.ID) },
			func(d driver.Driver) error { return d.Start(ctx(t), spec) },
			func(d driver.Driver) error { return d.Stop(ctx(t), spec.ID, "SIGKILL", time.Minute) },
			func(d driver.Driver) error { return d.Destroy(ctx(t), spec.ID) },
		}
		var agents sync.WaitGroup
		for _, call := range calls {
			agents.Go(func() {
				agent := w.driver(d.Name())
				for range 12 {
					// A start that is destroyed may say so, and nothing else.
					if err := call(agent); err != nil && !strings.Contains(err.Error(), "its supervisor ended before it was started") {
						t.Error(err)
					}
				}
			})
		}
		agents.Wait()
		if err := d.Destroy(ctx(t), spec.ID); err != nil {
			t.Error(err)
		}
		for _, left := range [][]string{w.runDirs(), w.cgroups(), w.processes()} {
			if len(left) > 0 {
				t.Errorf("the agents leave %q", left)
			}
		}
	})
}

// TestSupervisorsAreReaped is about zombies, which a long-lived agent would
// collect until there is no process number left.
func TestSupervisorsAreReaped(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		ends := map[string]func(driver.Spec) error{
			"Wait": func(s driver.Spec) error {
				write(t, filepath.Join(s.Dir, "local", "go"), "")
				_, err := d.Wait(ctx(t), s.ID)
				return err
			},
			// Stop does not wait for it: a volume may be waiting for what comes next.
			"Stop": func(s driver.Spec) error {
				return errors.Join(d.Stop(ctx(t), s.ID, "SIGTERM", time.Minute), d.Destroy(ctx(t), s.ID))
			},
			"Destroy": func(s driver.Spec) error { return d.Destroy(ctx(t), s.ID) },
		}
		for name, end := range ends {
			for _, murder := range []bool{false, true} {
				spec := w.script("echo ready; while [ ! -e go ]; do sleep 0.02; done")
				start(t, d, spec)
				said(t, spec, "ready")
				supervisor := parent(t, status(t, d, spec).PID)
				if murder {
					kill(t, supervisor, syscall.SIGKILL)
				}
				if err := end(spec); err != nil {
					t.Error(err)
				}
				if _, err := os.Stat("/proc/" + strconv.Itoa(supervisor)); err == nil {
					t.Errorf("%s (supervisor killed: %t) leaves supervisor %d", name, murder, supervisor)
				}
			}
		}
	})
}
