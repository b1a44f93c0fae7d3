package cluster

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/mount/mounttest"
	"github.com/berth-dev/berth/internal/agent/tasklog"
	"github.com/berth-dev/berth/internal/supervise"
)

// Machine is what of a node outlives its agent: the mount table, the tasks, and
// the boot that they belong to.
type Machine struct {
	Table *mounttest.Table
	Tasks *Tasks

	mu   sync.Mutex // guards boot
	name string
	boot int
}

func newMachine(name string) *Machine {
	table := mounttest.New()
	return &Machine{Table: table, Tasks: newTasks(table), name: name}
}

// BootID is the kernel's.
func (m *Machine) BootID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.name + "-boot-" + strconv.Itoa(m.boot)
}

// Reboot takes all tasks and mounts away.
func (m *Machine) Reboot() {
	m.mu.Lock()
	m.boot++
	m.mu.Unlock()
	m.Tasks.clear()
	m.Table.Clear()
}

// Tasks is a task driver in memory, called test. A task runs until it is
// stopped, or for config.run if that is set, and then exits with config.exit.
// It begins by writing config.stdout and config.stderr to its logs.
type Tasks struct {
	table *mounttest.Table

	mu        sync.Mutex // guards below
	tasks     map[string]*task
	next      int
	stopTakes time.Duration
}

type task struct {
	status driver.Status
	ended  chan struct{}
	timer  *time.Timer
	mounts []string
	logs   map[api.LogType]*tasklog.Writer
}

// DriverName is what jobs call the driver.
const DriverName = "test"

func newTasks(table *mounttest.Table) *Tasks {
	return &Tasks{table: table, tasks: map[string]*task{}, next: 100}
}

// Name implements driver.Driver.
func (*Tasks) Name() string { return DriverName }

// Fingerprint implements driver.Driver.
func (*Tasks) Fingerprint(context.Context) api.Driver {
	return api.Driver{Healthy: true, MountsVolumes: true}
}

// Check implements driver.Driver.
func (*Tasks) Check(api.Task) error { return nil }

// Start implements driver.Driver. A task holds the mounts that it uses, and
// finds them mounted, or the test is at fault: no task may ever run without
// its volume.
func (t *Tasks) Start(_ context.Context, spec driver.Spec) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tasks[spec.ID] != nil {
		return nil
	}
	k := &task{ended: make(chan struct{})}
	for _, m := range spec.Mounts {
		if _, mounted, err := t.table.At(m.Source); err != nil || !mounted {
			return fmt.Errorf("start %s: nothing is mounted at %s", spec.ID, m.Source)
		}
	}
	for _, m := range spec.Mounts {
		t.table.Hold(m.Source, spec.ID)
		k.mounts = append(k.mounts, m.Source)
	}
	if err := k.open(spec); err != nil {
		return fmt.Errorf("start %s: %w", spec.ID, err)
	}
	t.next++
	k.status = driver.Status{State: driver.StateRunning, PID: t.next, Started: time.Now()}
	t.tasks[spec.ID] = k
	if run, ok := spec.Task.Config["run"].(string); ok {
		d, err := time.ParseDuration(run)
		if err != nil {
			return fmt.Errorf("start %s: %w", spec.ID, err)
		}
		exit, _ := spec.Task.Config["exit"].(float64)
		k.timer = time.AfterFunc(d, func() { t.end(spec.ID, driver.Status{ExitCode: int(exit)}) })
	}
	return nil
}

// open opens the task's logs. They are kept in parts of a few bytes.
func (k *task) open(spec driver.Spec) error {
	const partSize, parts = 1 << 10, 3
	k.logs = map[api.LogType]*tasklog.Writer{}
	for _, kind := range []api.LogType{api.LogStdout, api.LogStderr} {
		w, err := tasklog.Create(tasklog.Path(spec.Dir, spec.Task.Name, kind), partSize, parts)
		if err != nil {
			return err
		}
		k.logs[kind] = w
		said, _ := spec.Task.Config[string(kind)].(string)
		if _, err := io.WriteString(w, said); err != nil {
			return err
		}
	}
	return nil
}

// Say makes every task that runs write to its stdout.
func (t *Tasks) Say(text string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.tasks {
		if k.status.State != driver.StateRunning {
			continue
		}
		if _, err := io.WriteString(k.logs[api.LogStdout], text); err != nil {
			return err
		}
	}
	return nil
}

// end notes how a task ended and lets its mounts go.
func (t *Tasks) end(id string, how driver.Status) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.tasks[id]
	if k == nil || k.status.State == driver.StateEnded {
		return
	}
	how.State, how.PID, how.Started, how.Ended = driver.StateEnded, k.status.PID, k.status.Started, time.Now()
	k.status = how
	for _, m := range k.mounts {
		t.table.Free(m)
	}
	if k.timer != nil {
		k.timer.Stop()
	}
	for _, w := range k.logs {
		_ = w.Close() // all of it was written
	}
	close(k.ended)
}

// Status implements driver.Driver.
func (t *Tasks) Status(_ context.Context, id string) (driver.Status, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.tasks[id]; k != nil {
		return k.status, nil
	}
	return driver.Status{State: driver.StateUnknown}, nil
}

// Wait implements driver.Driver.
func (t *Tasks) Wait(ctx context.Context, id string) (driver.Status, error) {
	t.mu.Lock()
	k := t.tasks[id]
	t.mu.Unlock()
	if k == nil {
		return driver.Status{}, api.Errorf(api.CodeNotFound, "task %s is not known", id)
	}
	select {
	case <-k.ended:
		return t.Status(ctx, id)
	case <-ctx.Done():
		return driver.Status{}, ctx.Err()
	}
}

// Stop implements driver.Driver.
func (t *Tasks) Stop(ctx context.Context, id, _ string, _ time.Duration) error {
	t.mu.Lock()
	takes := t.stopTakes
	t.mu.Unlock()
	if takes > 0 && !supervise.Sleep(ctx, takes) {
		return ctx.Err()
	}
	t.end(id, driver.Status{Signal: 15})
	return nil
}

// StopTakes makes tasks go on for so long after they were told to stop.
func (t *Tasks) StopTakes(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopTakes = d
}

// Destroy implements driver.Driver.
func (t *Tasks) Destroy(_ context.Context, id string) error {
	t.end(id, driver.Status{Signal: 9})
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.tasks, id)
	return nil
}

// Running counts the tasks that run.
func (t *Tasks) Running() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, k := range t.tasks {
		if k.status.State == driver.StateRunning {
			n++
		}
	}
	return n
}

// Known counts the tasks that have not been destroyed.
func (t *Tasks) Known() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.tasks)
}

// clear takes all tasks away, as a reboot does.
func (t *Tasks) clear() {
	t.mu.Lock()
	var ids []string
	for id := range t.tasks {
		ids = append(ids, id)
	}
	t.mu.Unlock()
	for _, id := range ids {
		_ = t.Destroy(context.Background(), id) // never fails
	}
}

// Signal implements driver.Signaller: SIGKILL ends a task, and of others it writes
// that it got them.
func (t *Tasks) Signal(_ context.Context, id, signal string) error {
	if signal == "SIGKILL" {
		t.end(id, driver.Status{Signal: 9})
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.tasks[id]
	if k == nil || k.status.State != driver.StateRunning {
		return api.Errorf(api.CodeConflict, "task %s does not run", id)
	}
	_, err := io.WriteString(k.logs[api.LogStdout], "got "+signal+"\n")
	return err
}

// Usage implements driver.Measurer: every task uses the same.
func (t *Tasks) Usage(_ context.Context, id string) (driver.Usage, error) {
	if status, err := t.Status(context.Background(), id); err != nil || status.State != driver.StateRunning {
		return driver.Usage{}, fmt.Errorf("task %s does not run: %w", id, err)
	}
	return driver.Usage{CPU: 90 * time.Second, MemoryBytes: 3 << 20, MemoryLimitBytes: 64 << 20, Processes: 2}, nil
}
