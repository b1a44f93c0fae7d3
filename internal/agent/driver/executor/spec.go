package executor

import (
	"time"

	"github.com/berth-dev/berth/internal/agent/driver/cgroup"
)

// Spec says what to run, with nothing left to look up: what it names is
// resolved by the driver that made it.
type Spec struct {
	// ID is unique on the node and stable.
	ID string `json:"id"`
	// Command is a path, or a name that is looked up in PATH of Env, where the
	// task runs.
	Command string   `json:"command"`
	Args    []string `json:"args,omitempty"`
	// Env is the whole environment, as KEY=value.
	Env []string `json:"env"`
	// Cwd is the working directory, as the task sees it.
	Cwd string `json:"cwd"`
	// User is nil to run as the agent does.
	User *User `json:"user,omitempty"`
	// Stdout and Stderr are log files on the host; older parts have .1 and .2
	// appended.
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	// Root is the file system of an isolated task, nil for one that runs
	// directly on the host.
	Root *Root `json:"root,omitempty"`
	// Privileged: an isolated task has the supervisor's own capabilities, and all
	// of the host's devices.
	Privileged bool `json:"privileged,omitempty"`
	// Cgroup holds every process of the task. Tasks sets it; it stays empty
	// where there are no cgroups to use.
	Cgroup string `json:"cgroup,omitempty"`
	// Limits are the group's.
	Limits cgroup.Limits `json:"limits,omitzero"`
	// SupervisorCgroup holds the supervisors, apart from the agent's own group:
	// who stops the agent's group must not stop them.
	SupervisorCgroup string `json:"supervisor_cgroup,omitempty"`
}

// User is whom a task runs as.
type User struct {
	UID    int   `json:"uid"`
	GID    int   `json:"gid"`
	Groups []int `json:"groups,omitempty"`
}

// Root is what an isolated task finds below /, beside /proc, /sys and /dev.
type Root struct {
	// Binds are mounted in this order, so parents come first.
	Binds []Bind `json:"binds"`
	// Links are symbolic links: path to target.
	Links map[string]string `json:"links,omitempty"`
}

// Bind shows a host's file or directory to a task.
type Bind struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
	ReadOnly    bool   `json:"read_only,omitempty"`
	// Trusted binds keep set-uid programs and device files working; they come
	// from the host's own system, not from a volume or from a task.
	Trusted bool `json:"trusted,omitempty"`
	// Propagation says who sees what is mounted below later. A bind that is not
	// private holds also what is mounted below already.
	Propagation Propagation `json:"propagation,omitempty"`
}

// Propagation is how mount events go between the host and a task.
type Propagation string

// The propagations: none, from the host to the task, and both ways.
const (
	PropagationPrivate Propagation = ""
	PropagationSlave   Propagation = "slave"
	PropagationShared  Propagation = "shared"
)

// State is where a task is.
type State string

// The states.
const (
	// StateUnknown: it was never started, or was destroyed.
	StateUnknown State = "unknown"
	StateRunning State = "running"
	// StateEnded: no process of it is left.
	StateEnded State = "ended"
)

// Why a task ended, if not by itself.
const (
	ReasonKilled     = "killed after its kill_timeout"
	ReasonOOM        = "out of memory"
	ReasonSupervisor = "its supervisor died"
	ReasonRestart    = "the machine was restarted"
)

// Status is how a task is, or how it ended.
type Status struct {
	State State `json:"state"`
	// PID is the task's first process, on the host.
	PID     int       `json:"pid,omitempty"`
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	// ExitCode is what it exited with, if no signal ended it.
	ExitCode int `json:"exit_code,omitempty"`
	// Signal is the number of the signal that ended it, 0 for none.
	Signal int `json:"signal,omitempty"`
	// Reason says how it ended, if not by itself.
	Reason string `json:"reason,omitempty"`
}
