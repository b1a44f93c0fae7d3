package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver/executor"
)

// File is a file that a task finds.
type File struct {
	// Dir is one of the task's directories, and Path a plain path below it.
	Dir, Path string
	Content   string
	Mode      fs.FileMode
}

// writeFiles writes the files, as the owner's if there is one. An earlier run of
// the task may have left anything in their way, links to the host's files among
// it. So all is done below the directory that is opened first, on what is open,
// and each file gets its name last. It need not survive a power cut: the task
// does not either, and its next start writes the files again.
func writeFiles(dir string, files []File, owner *executor.User) error {
	if len(files) == 0 {
		return nil
	}
	task, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open task directory: %w", err)
	}
	defer task.Close()
	for _, f := range files {
		if err := writeFile(task, f, owner); err != nil {
			if inTheWay(err) {
				return api.Errorf(api.CodeInvalid, "write %s/%s: something else is in its place: %v", f.Dir, f.Path, err)
			}
			return fmt.Errorf("write %s/%s: %w", f.Dir, f.Path, err)
		}
	}
	return nil
}

func writeFile(task *os.Root, f File, owner *executor.User) error {
	root, err := task.OpenRoot(f.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for i := range f.Path {
		if f.Path[i] == '/' {
			if err := makeOwned(root, f.Path[:i], owner); err != nil {
				return err
			}
		}
	}
	fresh := path.Join(path.Dir(f.Path), ".berth-template.new")
	if err := root.RemoveAll(fresh); err != nil { // of a start that was cut short
		return err
	}
	if err := fill(root, fresh, f, owner); err != nil {
		return errors.Join(err, root.RemoveAll(fresh))
	}
	if err := root.Rename(fresh, f.Path); err != nil {
		return errors.Join(err, root.RemoveAll(fresh))
	}
	return nil
}

// fill makes the file under another name. Nobody else can open it before it
// has its mode.
func fill(root *os.Root, name string, f File, owner *executor.User) error {
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(f.Content)
	if err == nil && owner != nil {
		err = file.Chown(owner.UID, owner.GID)
	}
	if err == nil {
		err = file.Chmod(f.Mode)
	}
	return errors.Join(err, file.Close())
}

// makeOwned makes a directory on the way to a file, or leaves the task's own as
// it is. One that is the agent's is of a start that was cut short.
func makeOwned(root *os.Root, name string, owner *executor.User) error {
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
	agents := ok && owner != nil && int(stat.Uid) == os.Geteuid() && int(stat.Uid) != owner.UID
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
