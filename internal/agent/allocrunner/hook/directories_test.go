package hook_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/allocrunner/hook"
)

const allocID = api.AllocID("0123456789abcdef0123456789abcdef")

// assignment is one of a group with the task pg, without volumes.
func assignment() api.AllocAssignment {
	return api.AllocAssignment{
		ID: allocID,
		Allocation: &api.Allocation{
			ID: allocID, Namespace: "prod", JobID: "db", Group: "primary", Index: 2, Desired: api.DesireRun,
		},
		Group: &api.TaskGroup{Name: "primary", Restart: &api.RestartPolicy{Attempts: new(int)}, Tasks: []api.Task{{Name: "pg", Driver: "fake"}}},
	}
}

func modes(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	modes := map[string]string{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		modes[e.Name()] = info.Mode().String()
	}
	return modes
}

func TestDirectoriesAreThereWithTheirModes(t *testing.T) {
	t.Parallel()
	s := allocrunner.NewStep(filepath.Join(t.TempDir(), "alloc"), assignment())
	dir := hook.TaskDir(s.Dir, "pg")
	// What a crash left of an earlier try is no hindrance.
	if err := os.MkdirAll(filepath.Join(dir, "tmp.new"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := (hook.Directories{}).Up(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"local": "drwxrwxrwx", "secrets": "drwx------", "tmp": "dtrwxrwxrwx", "logs": "drwxr-xr-x"}
		if diff := cmp.Diff(want, modes(t, dir)); diff != "" {
			t.Errorf("modes (-want +got):\n%s", diff)
		}
	}
}

// What all tasks share is no other user's, also where an earlier version left it
// open: but where tasks may run as other users, whom nobody has let through.
func TestDirectoryOfAnAllocationIsClosed(t *testing.T) {
	t.Parallel()
	all := filepath.Join(t.TempDir(), "alloc")
	s, old := allocrunner.NewStep(filepath.Join(all, "new"), assignment()), allocrunner.NewStep(filepath.Join(all, "old"), assignment())
	if err := (hook.Directories{}).Up(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	used := assignment()
	used.Group.Tasks = append(used.Group.Tasks, api.Task{Name: "helper", Driver: "raw_exec", User: "nobody"})
	for _, step := range []*allocrunner.Step{old, allocrunner.NewStep(filepath.Join(all, "used"), used)} {
		if err := os.Mkdir(step.Dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := (hook.Directories{}).Up(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(map[string]string{"new": "drwx------", "old": "drwx------", "used": "drwxr-xr-x"}, modes(t, all)); diff != "" {
		t.Errorf("modes (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(all); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("the directory above is %v, %v", info.Mode(), err)
	}
}

// A database refuses to start in a directory that others may enter, and makes
// its own private. Hooks are called twice a minute.
func TestModeThatATaskChoseStays(t *testing.T) {
	t.Parallel()
	s := allocrunner.NewStep(t.TempDir(), assignment())
	local := filepath.Join(hook.TaskDir(s.Dir, "pg"), "local")
	if err := (hook.Directories{}).Up(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(local, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := (hook.Directories{}).Up(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(local); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode is %v, %v, want 0700", info.Mode(), err)
	}
}

func TestDirectoriesWaitForTheGroupAndStay(t *testing.T) {
	t.Parallel()
	a := assignment()
	a.Group = nil
	var waiting *allocrunner.Waiting
	if err := (hook.Directories{}).Up(t.Context(), allocrunner.NewStep("/nowhere", a)); !errors.As(err, &waiting) {
		t.Errorf("Up without a group: %v, want to wait", err)
	}
	s := allocrunner.NewStep(t.TempDir(), assignment())
	if err := errors.Join((hook.Directories{}).Up(t.Context(), s), (hook.Directories{}).Down(t.Context(), s)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(hook.TaskDir(s.Dir, "pg"), "logs")); errors.Is(err, fs.ErrNotExist) {
		t.Error("the logs are gone")
	}
}
