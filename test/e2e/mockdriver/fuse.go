package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// Sizes and numbers of the kernel's protocol (<linux/fuse.h>).
const (
	fuseMagic     = 0x65735546
	fuseInHeader  = 40
	fuseOutHeader = 16
	fuseBuffer    = 1<<17 + 4096

	fuseForget      = 2
	fuseGetattr     = 3
	fuseStatfs      = 17
	fuseInit        = 26
	fuseOpendir     = 27
	fuseReaddir     = 28
	fuseReleasedir  = 29
	fuseInterrupt   = 36
	fuseDestroy     = 38
	fuseBatchForget = 42
	fuseLookup      = 1
)

// fuseOut begins every answer.
type fuseOut struct {
	Len    uint32
	Error  int32
	Unique uint64 // the request's number
}

// serveFuse mounts an empty directory at target that this process serves: when
// it ends, every access to it fails. One that is there already stays.
func serveFuse(target string, log *slog.Logger) error {
	if served(target) {
		return nil
	}
	fd, err := mountFuse(target)
	if err != nil {
		return err
	}
	go func() {
		defer func() { _ = unix.Close(fd) }() // it is unmounted
		if err := answerFuse(fd); err != nil {
			log.Error("serve fuse", "target", target, "err", err)
		}
	}()
	return nil
}

// served reports whether a process serves a file system at target.
func served(target string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(target, &fs) == nil && fs.Type == fuseMagic
}

// mountFuse mounts an empty directory at target. Who has fd is to answer for it.
func mountFuse(target string) (fd int, err error) {
	fd, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open /dev/fuse: %w", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)
	if err := unix.Mount("mockdriver", target, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("mount fuse at %s: %w", target, err)
	}
	return fd, nil
}

// mountedWord is what a process that serves one mount says when it is there.
const mountedWord = "mounted\n"

// serveFuseApart has a process of its own mount and serve target. It ends when
// that is unmounted, or with this one.
func serveFuseApart(target string, log *slog.Logger) error {
	if served(target) {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(self, "-serve-fuse", target) //nolint:noctx // it ends with its mount
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("serve %s: %w", target, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("serve %s: %w", target, err)
	}
	word := make([]byte, len(mountedWord))
	_, said := io.ReadFull(out, word)
	go func() {
		if err := cmd.Wait(); err != nil {
			log.Error("serve fuse", "target", target, "err", err)
		}
	}()
	if said != nil {
		return fmt.Errorf("serve %s: hear of its process that it is mounted: %w", target, said)
	}
	return nil
}

// beFuse is that process.
func beFuse(target string) error {
	fd, err := mountFuse(target)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(os.Stdout, mountedWord); err != nil {
		return fmt.Errorf("say that it is mounted: %w", err)
	}
	return answerFuse(fd)
}

// answerFuse answers the kernel until the file system is unmounted.
func answerFuse(fd int) error {
	buffer := make([]byte, fuseBuffer)
	for {
		n, err := unix.Read(fd, buffer)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOENT), errors.Is(err, unix.EAGAIN):
			continue
		case errors.Is(err, unix.ENODEV):
			return nil
		case err != nil:
			return fmt.Errorf("read a request: %w", err)
		case n < fuseInHeader:
			return fmt.Errorf("a request of %d bytes", n)
		}
		opcode := binary.NativeEndian.Uint32(buffer[4:])
		body, errno, answered := fuseAnswer(opcode)
		if !answered {
			continue
		}
		out, err := binary.Append(nil, binary.NativeEndian, fuseOut{
			Len:    uint32(fuseOutHeader + len(body)), //nolint:gosec // an answer is small
			Error:  -errno,
			Unique: binary.NativeEndian.Uint64(buffer[8:]),
		})
		if err != nil {
			return fmt.Errorf("lay out an answer: %w", err)
		}
		if _, err := unix.Write(fd, append(out, body...)); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("answer a request: %w", err)
		}
	}
}

// fuseAnswer is what the kernel hears of an empty directory.
func fuseAnswer(opcode uint32) (body []byte, errno int32, answered bool) {
	u32 := binary.NativeEndian.PutUint32
	switch opcode {
	case fuseForget, fuseBatchForget, fuseInterrupt:
		return nil, 0, false
	case fuseInit:
		body = make([]byte, 64)
		u32(body, 7)
		u32(body[4:], 31)
		u32(body[20:], 4096) // max_write
		return body, 0, true
	case fuseGetattr:
		body = make([]byte, 104)
		binary.NativeEndian.PutUint64(body[16:], 1) // inode
		u32(body[76:], unix.S_IFDIR|0o755)
		u32(body[80:], 2) // links
		return body, 0, true
	case fuseOpendir:
		return make([]byte, 16), 0, true
	case fuseStatfs:
		return make([]byte, 80), 0, true
	case fuseReaddir, fuseReleasedir, fuseDestroy:
		return nil, 0, true
	case fuseLookup:
		return nil, int32(unix.ENOENT), true
	}
	return nil, int32(unix.ENOSYS), true
}
