package filesystem_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/localdriver/filesystem"
)

// mounted is a new ext4, mounted until the test is over.
func mounted(t *testing.T) string {
	t.Helper()
	path, dir := device(t, 16<<20), t.TempDir()
	if err := filesystem.SystemTools().Make(t.Context(), filesystem.Ext4, path, uuidOf(t), false); err != nil {
		t.Fatal(err)
	}
	run(t, "mount", path, dir)
	t.Cleanup(func() { run(t, "umount", dir) })
	return dir
}

// writes starts a write to the file system.
func writes(dir string) <-chan error {
	done := make(chan error, 1)
	go func() { done <- os.WriteFile(filepath.Join(dir, "file"), []byte("data"), 0o600) }()
	return done
}

// within is the end of what writes has started, or an error if it waits.
func within(done <-chan error, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return errors.New("it still waits")
	}
}

func TestFreeze_HoldsWritesUntilThaw(t *testing.T) {
	t.Parallel()
	dir := mounted(t)
	thaw, err := filesystem.SystemTools().Freeze(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	done := writes(dir)
	if err := within(done, 100*time.Millisecond); err == nil {
		t.Error("a write to a frozen file system went through")
	}
	if err := thaw(); err != nil {
		t.Error(err)
	}
	if err := within(done, 20*time.Second); err != nil {
		t.Errorf("write after the thaw: %v", err)
	}
}

// A copy that was made while the freeze did not hold is worth nothing.
func TestFreeze_TellsThatItDidNotHold(t *testing.T) {
	t.Parallel()
	dir := mounted(t)
	thaw, err := filesystem.SystemTools().Freeze(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	killGuard(t, dir)
	if err := thaw(); err == nil {
		t.Error("the guard was killed, and the freeze is said to have held")
	}
	if err := within(writes(dir), 20*time.Second); err != nil {
		t.Errorf("write after the guard was killed: %v", err)
	}
}

func TestFreeze_OfWhatIsNoMountIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := filesystem.SystemTools().Freeze(t.Context(), filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("what is not there was frozen")
	}
}

// killGuard ends the guard that this process has started for dir.
func killGuard(t *testing.T, dir string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		cmdline, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(cmdline, []byte("--unfreeze")) || !bytes.Contains(cmdline, []byte(dir)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatal("there is no guard")
}
