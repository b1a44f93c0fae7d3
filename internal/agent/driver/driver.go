// Package driver runs the processes of jobs. It owns the shape that every task
// driver has, and two drivers: exec, which isolates a task from the host and
// binds volumes into it, and raw_exec, which runs it directly on the host.
// DESIGN.md beside this file says what a task finds around it, and why.
//
// It never decides that a task should run, and never mounts a volume on the
// host. It knows only what its run directory and the kernel tell it, so a
// restarted agent's driver finds every task again.
//
// Invariant: whatever a crash cut short, repeating the call brings it to its
// end; after Destroy, nothing of a task is left but its own directory.
package driver

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver/cgroup"
	"github.com/berth-dev/berth/internal/agent/driver/executor"
	"github.com/berth-dev/berth/internal/agent/driver/visit"
)

// Driver runs tasks of one kind. Calls for different tasks may be made at once;
// calls for one task too, and every one of them may be repeated.
type Driver interface {
	// Name is what jobs call the driver.
	Name() string
	// Fingerprint tells whether the driver works here, or why not.
	Fingerprint(ctx context.Context) api.Driver
	// Check reports every problem of the task's config, user and volume mounts.
	// Fields are relative to the task.
	Check(task api.Task) error
	// Start returns when the task's command runs. A task of that ID that runs
	// is adopted, and one that has ended is left as it is. An api.CodeInvalid
	// means that repeating it cannot help.
	Start(ctx context.Context, spec Spec) error
	// Status answers StateUnknown for a task that was never started, or was
	// destroyed.
	Status(ctx context.Context, id string) (Status, error)
	// Wait returns when the task has ended, or ctx. A task that is unknown is
	// an api.CodeNotFound.
	Wait(ctx context.Context, id string) (Status, error)
	// Stop sends the signal, SIGINT if it is "", then SIGKILL after timeout,
	// DefaultKillTimeout if that is 0. It returns when no process of the task is
	// left.
	Stop(ctx context.Context, id string, signal string, timeout time.Duration) error
	// Destroy kills what still runs, and forgets the task. What is in the
	// task's own directory stays.
	Destroy(ctx context.Context, id string) error
}

// OnHost is a driver whose tasks see the host's directories, and so their own
// where the host has them.
type OnHost interface {
	// Root is where a task finds local, secrets and tmp, its directory being dir.
	Root(dir string) string
}

// Spec is everything that is needed to run one task.
type Spec struct {
	// ID is unique on the node, and stable: <allocation>/<task>.
	ID   string
	Task api.Task
	// Dir is the task's directory. It holds local, secrets, tmp and logs.
	Dir string
	// AllocDir is the directory that the tasks of the allocation share; "" if
	// there is none.
	AllocDir string
	Mounts   []Mount
	// Files are written before the task starts, in their order.
	Files []File
	// Env is the whole environment, but for PATH, HOME and USER, which the
	// driver adds where they are missing.
	Env map[string]string
	// Ports are those of the allocation, for drivers whose tasks may have a
	// network of their own.
	Ports []Port
	// Say tells people what the start is about: an image that is pulled, a right
	// that is not to be had. It may be nil.
	Say func(message string) `json:"-"`
}

// Port is a port of the node that belongs to the allocation.
type Port struct {
	// Name is its label.
	Name string
	// Number is the port on the node.
	Number int
	// To is the port that the task listens on in a network of its own; 0 is
	// Number.
	To int
}

// User is whom a task's directories belong to.
type User = executor.User

// Prepare makes sure that the task's directory is as the agent makes it, gives
// what is the task's to its user, if there is one to give it to, and writes the
// task's files.
func (s *Spec) Prepare(owner *User) error {
	if err := prepareDir(s.Dir, owner); err != nil {
		return err
	}
	return writeFiles(s.Dir, s.AllocDir, s.Files, owner)
}

// GiveFresh gives the roots of volumes that nobody has used yet to the user of
// the task that is about to write to them.
func (s *Spec) GiveFresh(user User) error { return giveFresh(s.Mounts, user) }

// NotStarted is the error of a start that failed for a reason that may pass, but
// not in a moment: an image that cannot be pulled. The task's restart policy
// counts it as an end.
type NotStarted struct{ Reason string }

func (n *NotStarted) Error() string { return n.Reason }

// Usage is what a task uses.
type Usage = cgroup.Usage

// Measurer is a driver that can tell what its tasks use.
type Measurer interface {
	Driver
	// Usage measures a task that runs.
	Usage(ctx context.Context, id string) (Usage, error)
}

// Signaller is a driver that can send a signal to what its tasks run.
type Signaller interface {
	Driver
	// Signal sends one of api.Signals to the task's command. The error is an
	// api.CodeNotFound or api.CodeConflict if the task does not run.
	Signal(ctx context.Context, id, signal string) error
}

// Host is a driver that can run another command where a task runs.
type Host interface {
	Driver
	// Visit runs a command in a task that runs, and carries it on the visitor's
	// connection. It returns when the command has ended, with all of its session;
	// that is also when the visitor goes, or ctx ends. It closes the connection.
	// The error is an api.CodeConflict if the task does not run.
	Visit(ctx context.Context, id string, req *api.ExecRequest, visitor VisitConn) error
}

// VisitConn is a visitor's connection.
type VisitConn = visit.Conn

// Keeper is a driver that has something to do between calls. Its Run runs until
// ctx ends; known tells whether the agent has an allocation. It fingerprints the
// driver every now and then, and saw is told of what it found each time.
type Keeper interface {
	Driver
	Run(ctx context.Context, known func(api.AllocID) bool, saw func(api.Driver)) error
}

// Mount is a volume of a task.
type Mount struct {
	// Source is where the volume is on the host: a directory, or a block device.
	Source string
	// Destination is where the task finds it.
	Destination string
	ReadOnly    bool
	// Kept: what it is and whose is not the task's to change.
	Kept bool
	// Propagation says who sees what is mounted below it later.
	Propagation Propagation
	// Trusted mounts keep device files and set-uid programs working: they are
	// Berth's own, for a CSI driver, and no volume.
	Trusted bool
	// Group is the number of the group that the volume was given to, and that the
	// task is to be in; 0 for none.
	Group int
}

// Groups are the groups of the task's volumes, which the task is in beside its
// user's own.
func (s *Spec) Groups() []int {
	var groups []int
	for i := range s.Mounts {
		if g := s.Mounts[i].Group; g != 0 && !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	return groups
}

// Propagation says whether the host and a task see what the other mounts below
// a mount. A mount that is not private holds also what was mounted below it on
// the host before.
type Propagation string

// The propagations, with the words of jobs.
const (
	// PropagationPrivate is the default: neither sees the other's.
	PropagationPrivate Propagation = ""
	// PropagationHostToTask: the task sees what the host mounts (rslave).
	PropagationHostToTask Propagation = "host-to-task"
	// PropagationBidirectional: each sees the other's (rshared). The source lies
	// on a shared mount of the host: who asks for it sees to that.
	PropagationBidirectional Propagation = "bidirectional"
)

// Status is how a task is, or how it ended.
type Status = executor.Status

// State is where a task is.
type State = executor.State

// The states.
const (
	StateUnknown = executor.StateUnknown
	StateRunning = executor.StateRunning
	StateEnded   = executor.StateEnded
)

// DefaultKillTimeout is how long a task has between the kill signal and
// SIGKILL, if its job does not say.
const DefaultKillTimeout = 5 * time.Second

// Config is what the drivers of this package need.
type Config struct {
	// RunDir holds what is known of the tasks, and their control sockets. Keep
	// it short, and where it is gone after a reboot: /run/berth.
	RunDir string
	// Executable is the berth binary, os.Executable if empty.
	Executable string
	// CgroupParent is the cgroup below which tasks get theirs, "berth" if empty.
	CgroupParent string
	// SystemDirs are the host's directories that exec shows to every task, read
	// only; DefaultSystemDirs if nil.
	SystemDirs []string
	// Disabled refuses to start tasks. What runs is looked after.
	Disabled bool
	// DenyPrivileged refuses tasks of exec that are privileged.
	DenyPrivileged bool
}

// rules is what the operator allows to jobs. It is replaced, and never changed.
type rules struct {
	disabled bool
	// unprivileged: privileged tasks are refused.
	unprivileged bool
}

func (c Config) rules() *rules { return &rules{disabled: c.Disabled, unprivileged: c.DenyPrivileged} }

// Forbidden is why a driver starts no tasks here, by the operator's word.
func Forbidden(name string) string {
	return fmt.Sprintf(`the operator of the node has disabled it (driver %q { enabled = false } of the agent's configuration)`, name)
}

// complete is the Config with its defaults.
func (c Config) complete() (Config, error) {
	if c.Executable == "" {
		path, err := os.Executable()
		if err != nil {
			return Config{}, fmt.Errorf("find berth's own binary: %w", err)
		}
		c.Executable = path
	}
	if c.CgroupParent == "" {
		c.CgroupParent = "berth"
	}
	if c.SystemDirs == nil {
		c.SystemDirs = DefaultSystemDirs()
	}
	return c, nil
}

// limits are what a task's cgroup is given. One MHz is one share: a task counts
// beside others by what it asks for.
func limits(r *api.Resources) (l cgroup.Limits) {
	if r == nil {
		return l
	}
	return cgroup.Limits{MemoryBytes: r.Limit(), CPUShares: uint64(max(r.CPU, 0))}
}

// supervised are the tasks of exec and raw_exec.
type supervised struct {
	tasks *executor.Tasks
}

func newSupervised(cfg Config, log *slog.Logger) (supervised, error) {
	tasks, err := executor.NewTasks(executor.Config{
		RunDir: cfg.RunDir, Executable: cfg.Executable, CgroupParent: cfg.CgroupParent,
	}, log)
	return supervised{tasks: tasks}, err
}

// Status implements Driver.
func (s supervised) Status(ctx context.Context, id string) (Status, error) {
	return s.tasks.Status(ctx, id)
}

// Wait implements Driver.
func (s supervised) Wait(ctx context.Context, id string) (Status, error) {
	return s.tasks.Wait(ctx, id)
}

// Stop implements Driver.
func (s supervised) Stop(ctx context.Context, id, signal string, timeout time.Duration) error {
	sig, err := signalNumber(signal)
	if err != nil {
		return fmt.Errorf("stop task %s: %w", id, err)
	}
	if timeout == 0 {
		timeout = DefaultKillTimeout
	}
	return s.tasks.Stop(ctx, id, sig, max(timeout, 0))
}

// Destroy implements Driver.
func (s supervised) Destroy(ctx context.Context, id string) error {
	return s.tasks.Destroy(ctx, id)
}

// Signal implements Signaller.
func (s supervised) Signal(ctx context.Context, id, signal string) error {
	sig, err := signalNumber(signal)
	if err != nil {
		return fmt.Errorf("signal task %s: %w", id, err)
	}
	return s.tasks.Signal(ctx, id, sig)
}

// Visit implements Host.
func (s supervised) Visit(ctx context.Context, id string, req *api.ExecRequest, visitor VisitConn) error {
	return s.tasks.Visit(ctx, id, req, visitor)
}

// Usage implements Measurer.
func (s supervised) Usage(_ context.Context, id string) (Usage, error) { return s.tasks.Usage(id) }

// Sweep removes what all tasks on the machine have in common, unless somebody's
// tasks are left. It is for agents that leave their machine for good.
func (s supervised) Sweep() error { return s.tasks.Sweep() }

// present reports whether the task was started already. Such a one needs no
// further look at its spec, which might not even pass today.
func (s supervised) present(ctx context.Context, id string) (bool, error) {
	status, err := s.tasks.Status(ctx, id)
	return status.State != StateUnknown, err
}

func signalNumber(name string) (syscall.Signal, error) {
	if name == "" {
		return syscall.SIGINT, nil
	}
	if !slices.Contains(api.Signals(), name) {
		return 0, api.Errorf(api.CodeInvalid, "signal %q is not one of %s", name, strings.Join(api.Signals(), ", "))
	}
	return unix.SignalNum(name), nil
}
