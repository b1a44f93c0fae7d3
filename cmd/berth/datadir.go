package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/berth-dev/berth/api"
)

// dataDir is the data directory while this process has it. The kernel lets it
// go with the process, however that ends; supervisors of tasks do not inherit it.
type dataDir struct{ lock *os.File }

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
	if dev {
		if err := mayBeRemoved(path, mark); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(filepath.Join(path, "run"), 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w (%s)", err, otherDir)
	}
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w (%s)", err, otherDir)
	}
	d := &dataDir{lock}
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
	if err != nil {
		return nil, errors.Join(err, d.lock.Close())
	}
	return d, nil
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

// close lets the directory go.
func (d *dataDir) close() { _ = d.lock.Close() } // the lock ends with the process at the latest
