// Package tasklog is what a task said: files of bounded size on its node, one
// log for stdout and one for stderr. It owns their names, writes them for the
// supervisor, and reads them for whoever asks.
//
// A position in a log counts all bytes that the task ever wrote to it, also
// those that are gone, so that a reader can go on after anything. The newest
// part is path; an older one is path.N, where N is the position of its first
// byte. So positions follow from names and sizes, and nothing is recorded
// beside the log that a crash could make untrue.
//
// It never decides which task's log is read. Invariant: what is read is what
// was written, in order; where bytes are gone, the reader is told.
package tasklog

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/api"
)

// Dir is where the logs are in a task's directory.
const Dir = "logs"

// Path is the newest part of a log of the task with that directory.
func Path(taskDir, task string, stream api.LogType) string {
	return filepath.Join(taskDir, Dir, task+"."+string(stream)+".log")
}

// openDir opens the directory that a log is in. It follows no link out of the
// task's directory, which belongs to the task's user where there is no isolation.
func openDir(path string) (*os.Root, error) {
	dir := filepath.Dir(path)
	task, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return nil, fmt.Errorf("look for log: %w", err)
	}
	defer func() { _ = task.Close() }() // it was only read
	logs, err := task.OpenRoot(filepath.Base(dir))
	if err != nil {
		return nil, fmt.Errorf("look for log in %s: %w", dir, err)
	}
	return logs, nil
}

// part is an older file of a log. Its name says where it begins, and it is not
// written any more, unless the newest could not be begun.
type part struct {
	name  string
	first int64 // the position of its first byte
	size  int64
}

func (p part) end() int64 { return p.first + p.size }

// older lists the older parts of a log in their order.
func older(dir *os.Root, name string) ([]part, error) {
	names, err := fs.ReadDir(dir.FS(), ".")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for log: %w", err)
	}
	var parts []part
	for _, n := range names {
		number, numbered := strings.CutPrefix(n.Name(), name+".")
		first, err := strconv.ParseInt(number, 10, 64)
		if !numbered || err != nil || first < 0 || !n.Type().IsRegular() {
			continue
		}
		if info, err := n.Info(); err == nil {
			parts = append(parts, part{name: n.Name(), first: first, size: info.Size()})
		} // else it was removed meanwhile
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.first, b.first) })
	return parts, nil
}

// after is where the part begins that follows these.
func after(parts []part) int64 {
	if len(parts) == 0 {
		return 0
	}
	return parts[len(parts)-1].end()
}
