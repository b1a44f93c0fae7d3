package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver/executor"
)

// File is a file that a task finds.
type File struct {
	// Dir is one of the task's directories, or api.AllocShare, and Path a plain path
	// below it.
	Dir, Path string
	Content   string
	Mode      fs.FileMode
	// UID and GID are whose it is; nil is the task's user.
	UID, GID *int
}

// Rewrite replaces files of a task that runs, all of them or none.
func Rewrite(dir, allocDir string, files []File) error {
	info, err := os.Lstat(filepath.Join(dir, "local"))
	if err != nil {
		return fmt.Errorf("find the user of a task: %w", err)
	}
	var owner *executor.User
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		owner = &executor.User{UID: int(stat.Uid), GID: int(stat.Gid)} // as it was prepared
	}
	return writeFiles(dir, allocDir, files, owner)
}

// writeFiles writes the files, as the owner's if there is one: all of them, or, if
// one cannot be written, none. An earlier run of the task may have left anything in
// their way, links to the host's files among it. So all is done below the
// directories that are opened first, on what is open, and the files get their names
// last. It need not survive a power cut: the task does not either, and its next
// start writes the files again.
func writeFiles(dir, allocDir string, files []File, owner *executor.User) (err error) {
	if len(files) == 0 {
		return nil
	}
	written := make([]*writing, 0, len(files))
	defer func() {
		all := err == nil // what goes wrong from here on takes no file back
		for _, w := range slices.Backward(written) {
			err = errors.Join(err, w.end(all))
		}
	}()
	for i := range files {
		w, err := prepareFile(dir, allocDir, &files[i], i, owner)
		if w != nil {
			written = append(written, w)
		}
		if err != nil {
			return refusal(&files[i], err)
		}
	}
	for _, w := range written {
		if err := w.name(); err != nil {
			return refusal(w.file, err)
		}
	}
	return nil
}

// refusal is the error of a file, for good if repeating cannot help.
func refusal(f *File, err error) error {
	switch {
	case inTheWay(err):
		return api.Errorf(api.CodeInvalid, "write %s/%s: something else is in its place: %v", f.Dir, f.Path, err)
	case (f.UID != nil || f.GID != nil) && errors.Is(err, fs.ErrPermission):
		return api.Errorf(api.CodeInvalid, "write %s/%s: give it to the user and group that the template names: %v", f.Dir, f.Path, err)
	}
	return fmt.Errorf("write %s/%s: %w", f.Dir, f.Path, err)
}

// writing is a file on its way: it is there under another name, fresh, and what has
// its name is kept as old until all are written.
type writing struct {
	file       *File
	root       *os.Root
	fresh, old string
	kept       bool // there is an old
	named      bool // the file has its name
}

// prepareFile makes a file under another name. What it answers is to be ended, also
// with an error.
func prepareFile(dir, allocDir string, f *File, i int, owner *executor.User) (*writing, error) {
	base, name := dir, f.Dir
	if f.Dir == api.AllocShare {
		base, name = filepath.Split(filepath.Clean(allocDir))
	}
	task, err := os.OpenRoot(base)
	if err != nil {
		return nil, err
	}
	defer task.Close()
	root, err := task.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	beside := path.Join(path.Dir(f.Path), ".berth-template."+strconv.Itoa(i))
	w := &writing{file: f, root: root, fresh: beside + ".new", old: beside + ".old"}
	for i := range f.Path {
		if f.Path[i] == '/' {
			if err := makeOwned(root, f.Path[:i], owner, f.Dir == api.AllocShare); err != nil {
				return w, err
			}
		}
	}
	for _, left := range []string{w.fresh, w.old} { // of a start that was cut short
		if err := root.RemoveAll(left); err != nil {
			return w, err
		}
	}
	if info, err := root.Lstat(f.Path); err == nil && info.IsDir() {
		return w, &fs.PathError{Op: "write", Path: f.Path, Err: syscall.EISDIR}
	}
	return w, fill(root, w.fresh, f, owner)
}

// name gives the file its name, and what has it another.
func (w *writing) name() error {
	err := w.root.Link(w.file.Path, w.old)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	w.kept = err == nil
	if err := w.root.Rename(w.fresh, w.file.Path); err != nil {
		return err
	}
	w.named = true
	return nil
}

// end removes what is not needed any more; where not all files are written, what was
// there before is there again.
func (w *writing) end(all bool) error {
	var err error
	switch {
	case w.named && !all && w.kept:
		err = w.root.Rename(w.old, w.file.Path)
	case w.named && !all:
		err = w.root.Remove(w.file.Path)
	}
	for _, left := range []string{w.fresh, w.old} {
		err = errors.Join(err, w.root.RemoveAll(left))
	}
	return errors.Join(err, w.root.Close())
}

// fill makes the file under another name. Nobody else can open it before it
// has its mode.
func fill(root *os.Root, name string, f *File, owner *executor.User) error {
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(f.Content)
	if uid, gid := f.owner(owner); err == nil && (uid >= 0 || gid >= 0) {
		err = file.Chown(uid, gid)
	}
	if err == nil {
		err = file.Chmod(f.Mode)
	}
	return errors.Join(err, file.Close())
}

// owner is whom the file is to belong to; -1 leaves it as it is.
func (f *File) owner(task *executor.User) (uid, gid int) {
	uid, gid = -1, -1
	if task != nil {
		uid, gid = task.UID, task.GID
	}
	if f.UID != nil {
		uid = *f.UID
	}
	if f.GID != nil {
		gid = *f.GID
	}
	return uid, gid
}

// makeOwned makes a directory on the way to a file, or leaves the task's own as
// it is. One that is the agent's is of a start that was cut short; where several
// tasks make directories, it is another task's.
func makeOwned(root *os.Root, name string, owner *executor.User, shared bool) error {
	made := root.Mkdir(name, 0o755)
	if made != nil && !errors.Is(made, fs.ErrExist) {
		return made
	}
	dir, err := root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	agents := ok && owner != nil && (made == nil || !shared) && int(stat.Uid) == os.Geteuid() && int(stat.Uid) != owner.UID
	if agents {
		err = dir.Chown(owner.UID, owner.GID)
	}
	if agents || made == nil {
		err = errors.Join(err, dir.Chmod(0o755))
	}
	return err
}

// inTheWay reports whether an error comes from what stands where the file is to
// be, and not from the machine: repeating it cannot help.
func inTheWay(err error) bool {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return slices.Contains([]syscall.Errno{syscall.ENOTDIR, syscall.EISDIR, syscall.EEXIST, syscall.ENOTEMPTY, syscall.ELOOP, syscall.ENAMETOOLONG}, errno)
	}
	return strings.Contains(err.Error(), "path escapes from parent") // package os has no name for it
}
