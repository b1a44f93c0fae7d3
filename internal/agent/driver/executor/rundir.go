package executor

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver/process"
)

// Names in a run directory.
const (
	lockFile      = "lock"
	specFile      = "spec.json"
	stateFile     = "state.json"
	exitFile      = "exit.json"
	socketFile    = "sock"
	logFile       = "supervisor.log"
	rootName      = "root"
	containerName = "container"
)

// runDir is the run directory of one task.
type runDir string

// Lengths of the parts of a run directory's name.
const (
	keyHead = 8
	keyTail = 16
	keyHash = 16
	keySize = keyHead + 1 + keyTail + 1 + keyHash
)

// key makes an ID the name of a directory and of a cgroup. People recognise
// the task by its beginning; the hash alone makes it unique.
func key(id string) string {
	sum := sha256.Sum256([]byte(id))
	head, tail, _ := strings.Cut(id, "/")
	return plain(head, keyHead) + "-" + plain(tail, keyTail) + "-" + hex.EncodeToString(sum[:])[:keyHash]
}

// plain keeps the first letters and digits.
func plain(s string, size int) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, s)
	return s[:min(len(s), size)]
}

func (d runDir) path(name string) string { return filepath.Join(string(d), name) }

// state is the content of state.json. Only the supervisor writes it.
type state struct {
	Supervisor process.ID `json:"supervisor"`
	// Task is set before the task's command runs.
	Task    process.ID `json:"task,omitzero"`
	Started time.Time  `json:"started,omitzero"`
	// Failure is why the task could not be started.
	Failure *api.Error `json:"failure,omitempty"`
}

// exit is the content of exit.json. The supervisor writes it, or, if that one
// died, an agent that holds the lock.
type exit struct {
	Ended    time.Time `json:"ended"`
	ExitCode int       `json:"exit_code"`
	Signal   int       `json:"signal,omitempty"`
	Reason   string    `json:"reason,omitempty"`
}

// recorded is the status that the files tell. Running means no more than that
// the task was started and its end is not recorded.
func (d runDir) recorded() (Status, state, error) {
	var st state
	if _, err := d.read(stateFile, &st); err != nil {
		return Status{}, st, err
	}
	if st.Task.PID == 0 {
		return Status{State: StateUnknown}, st, nil
	}
	status := Status{State: StateRunning, PID: st.Task.PID, Started: st.Started}
	var e exit
	found, err := d.read(exitFile, &e)
	if err != nil || !found {
		return status, st, err
	}
	return status.with(e), st, nil
}

// with is the status of a task that has ended so.
func (s Status) with(e exit) Status {
	s.State, s.Ended = StateEnded, e.Ended
	s.ExitCode, s.Signal, s.Reason = e.ExitCode, e.Signal, e.Reason
	return s
}

// read reads a JSON file; found is false if there is none.
func (d runDir) read(name string, into any) (found bool, err error) {
	b, err := os.ReadFile(d.path(name))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", name, err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return false, fmt.Errorf("read %s: %w", d.path(name), err)
	}
	return true, nil
}

// write replaces a JSON file, so that a crash leaves the old one or the new
// one, whole. Which of them a power failure leaves matters for the end only:
// whatever else is recorded is over then.
func (d runDir) write(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	temp := d.path(name + ".new")
	if err := writeSynced(temp, b); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.Rename(temp, d.path(name)); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if name != exitFile {
		return nil
	}
	if err := syncDir(string(d)); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// reserve takes the room that the record of the end will need: a disk that is
// full by then must not turn a task that did its work into one that was killed.
func (d runDir) reserve() error {
	if err := writeSynced(d.path(exitFile+".new"), bytes.Repeat([]byte(" "), exitRoom)); err != nil {
		return fmt.Errorf("reserve room for the record of the end: %w", err)
	}
	return nil
}

// exitRoom is more than the record of any end takes. What is left of it are
// spaces, which JSON ends with as well.
const exitRoom = 512

// end records the end, in the room that was reserved for it if there is some.
func (d runDir) end(e exit) error {
	temp := d.path(exitFile + ".new")
	b, err := json.Marshal(e)
	if err == nil {
		err = overwriteSynced(temp, append(b, bytes.Repeat([]byte(" "), max(0, exitRoom-len(b)))...))
	}
	if errors.Is(err, os.ErrNotExist) {
		return d.write(exitFile, e)
	}
	if err == nil {
		err = os.Rename(temp, d.path(exitFile))
	}
	if err == nil {
		err = syncDir(string(d))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", exitFile, err)
	}
	return nil
}

// overwriteSynced writes over the beginning of a file that is there.
func overwriteSynced(path string, b []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(b); err != nil {
		return err
	}
	return f.Sync()
}

func writeSynced(path string, b []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(b); err != nil {
		return err
	}
	return f.Sync()
}

func syncDir(path string) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return f.Sync()
}
