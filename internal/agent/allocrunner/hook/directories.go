package hook

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/driver"
)

// Directories makes what tasks find as their own: local, secrets, tmp and logs.
type Directories struct{}

// Name implements allocrunner.Hook.
func (Directories) Name() string { return "directories" }

// AllocDir is the directory that the tasks of an allocation share. No task can
// have its name.
func AllocDir(allocDir string) string { return filepath.Join(allocDir, ".alloc") }

// TaskDir is a task's directory on the host.
func TaskDir(allocDir, task string) string { return filepath.Join(allocDir, task) }

// Up implements allocrunner.Hook.
func (Directories) Up(_ context.Context, s *allocrunner.Step) error {
	group := s.Assignment().Group
	if group == nil {
		return &allocrunner.Waiting{Reason: "the servers have not sent the allocation's group"}
	}
	if err := enclose(s.Dir, group); err != nil {
		return fmt.Errorf("make the allocation's directory: %w", err)
	}
	if err := makeDir(AllocDir(s.Dir), 0o777); err != nil {
		return fmt.Errorf("make the allocation's directory: %w", err)
	}
	for i := range group.Tasks {
		dir := TaskDir(s.Dir, group.Tasks[i].Name)
		for _, d := range []struct {
			name string
			mode os.FileMode
		}{{"local", 0o777}, {"secrets", 0o700}, {"tmp", 0o777 | os.ModeSticky}, {"logs", 0o755}} {
			if err := makeDir(filepath.Join(dir, d.name), d.mode); err != nil {
				return fmt.Errorf("make task directory: %w", err)
			}
		}
	}
	return nil
}

// enclose makes the directory of an allocation, closed to everybody but the agent
// and whom its drivers let through: in it, all is open that tasks of different
// users share. Of the names beside it nobody needs a list. One that an earlier
// version made, and left open, is closed too, unless tasks may run that come to it
// by its name, as other users, and whom nobody has let through.
func enclose(dir string, group *api.TaskGroup) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, os.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(dir), 0o711); err == nil {
			err = os.Mkdir(dir, 0o700)
		}
	}
	if !errors.Is(err, os.ErrExist) {
		return err
	}
	const others = 0o007
	info, err := os.Lstat(dir)
	if err != nil || info.Mode()&others == 0 {
		return err
	}
	named := func(t api.Task) bool { return t.Driver == driver.NameRawExec && t.User != "" }
	if slices.ContainsFunc(group.Tasks, named) {
		return nil
	}
	return os.Chmod(dir, 0o700)
}

// makeDir makes a directory with just this mode, whatever the umask, or leaves
// the one that is there: its task may have changed the mode, and relies on it.
// It gets its name last, so that a crash leaves none with another mode.
func makeDir(path string, mode os.FileMode) error {
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	fresh := path + ".new"
	if err := os.MkdirAll(fresh, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(fresh, mode); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

// Down implements allocrunner.Hook. The directories stay, for their logs, until
// the allocation is collected.
func (Directories) Down(context.Context, *allocrunner.Step) error { return nil }
