package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/mount"
)

// dataDir is the data directory while this process has it. The kernel lets it
// go with the process, however that ends; supervisors of tasks do not inherit it.
type dataDir struct {
	path string
	lock *os.File
	// fresh: this process found nothing here, and may remove what it made; made:
	// nor was there a directory.
	fresh, made bool
}

const (
	// lockName is the file by which one agent keeps others away.
	lockName = "lock"
	// devMark says that a development agent made the directory, and may remove it.
	devMark = "development"
	// otherDir is what to do about a directory that cannot be used.
	otherDir = "run as root, or choose another with --data-dir"
)

// openDataDir makes the directory and takes it for this process. A development
// agent removes its directory when it ends, so it takes only what is empty or
// was made by another one.
func openDataDir(path string, dev bool) (*dataDir, error) {
	mark := filepath.Join(path, devMark)
	d := &dataDir{path: path}
	if dev {
		if err := mayBeRemoved(path, mark); err != nil {
			return nil, err
		}
		entries, err := os.ReadDir(path)
		d.made = errors.Is(err, os.ErrNotExist)
		d.fresh = len(entries) == 0
	}
	// Tasks of other users go through it to their own directories.
	if err := os.MkdirAll(path, 0o711); err != nil {
		return nil, fmt.Errorf("make data directory: %w (%s)", err, otherDir)
	}
	if err := os.MkdirAll(filepath.Join(path, "run"), 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w (%s)", err, otherDir)
	}
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w (%s)", err, otherDir)
	}
	d.lock = lock
	err = takeLock(lock)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		err = api.Errorf(api.CodeInUse, "another agent uses the data directory %s: stop that one, or choose another with --data-dir", path)
	case err != nil:
		err = fmt.Errorf("lock data directory %s: %w", path, err)
	case dev:
		err = os.WriteFile(mark, []byte("berth agent --dev made this directory, and removes it when it ends.\n"), 0o600)
	default:
		// What serves in earnest is not to be removed by the next --dev.
		if err = os.Remove(mark); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	if err == nil {
		err = tighten(path)
	}
	if err != nil {
		return nil, errors.Join(err, d.lock.Close())
	}
	return d, nil
}

// tighten closes the directories that Berth makes to whom they are closed when it
// makes them today: earlier versions and careless hands left them open, and what
// is there keeps its mode. The first may be an operator's own: it is closed to who
// would write there. Tasks of other users go through the second, and need no list.
func tighten(path string) error {
	for name, forbidden := range map[string]fs.FileMode{"": 0o022, "alloc": 0o066, "run": 0o077, "server": 0o077, "csi": 0o077, "sock": 0o077} {
		dir := filepath.Join(path, name)
		info, err := os.Stat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look who may enter %s: %w", dir, err)
		}
		st, known := info.Sys().(*syscall.Stat_t)
		ours := known && int(st.Uid) == os.Geteuid()
		// A directory that is everybody's, as /tmp is, is not for us to close.
		if !ours || info.Mode()&fs.ModeSticky != 0 || info.Mode()&forbidden == 0 {
			continue
		}
		if err := os.Chmod(dir, info.Mode()&^forbidden); err != nil {
			return fmt.Errorf("close %s to other users: %w", dir, err)
		}
	}
	return nil
}

// An agent that was killed holds its lock a moment longer, by a program that it
// was about to start. Whoever starts the next one at once is not refused.
const (
	lockWait  = 3 * time.Second
	lockPause = 50 * time.Millisecond
)

func takeLock(lock *os.File) error {
	late := time.After(lockWait)
	again := time.NewTicker(lockPause)
	defer again.Stop()
	for {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		select {
		case <-again.C:
		case <-late:
			return err
		}
	}
}

// mayBeRemoved refuses a directory with something in it that no development
// agent put there.
func mayBeRemoved(path, mark string) error {
	entries, err := os.ReadDir(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look into data directory: %w (%s)", err, otherDir)
	case len(entries) == 0:
		return nil
	}
	if _, err := os.Stat(mark); err != nil {
		return api.Errorf(api.CodeInvalid, "%s is not empty, and no 'berth agent --dev' made it: with --dev it would be removed at the end; "+
			"choose an empty directory with --data-dir", path)
	}
	return nil
}

// abandon removes what a development agent made that could not start. What an
// earlier one left stays: tasks may run that it describes.
func (d *dataDir) abandon() error {
	if !d.fresh {
		return nil
	}
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := mount.RemoveAll(context.Background(), mount.Kernel{}, filepath.Join(d.path, e.Name())); err != nil {
			return err
		}
	}
	if d.made {
		return os.Remove(d.path)
	}
	return nil
}

// close lets the directory go.
func (d *dataDir) close() { _ = d.lock.Close() } // the lock ends with the process at the latest

// freeBelow answers how many bytes may still be written below dir.
func freeBelow(dir string) func() (uint64, error) {
	return func() (uint64, error) {
		var st syscall.Statfs_t
		if err := syscall.Statfs(dir, &st); err != nil {
			return 0, fmt.Errorf("ask how much room is in %s: %w", dir, err)
		}
		return st.Bavail * uint64(st.Bsize), nil //nolint:gosec // a block has a size
	}
}
