package main

import (
	"encoding/binary"
	"fmt"
	"log/slog"

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

// serveFuse mounts an empty directory at target that this process serves: when
// it ends, every access to it fails. One that is there already stays.
func serveFuse(target string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(target, &fs); err == nil && fs.Type == fuseMagic {
		return nil
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/fuse: %w", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)
	if err := unix.Mount("mockdriver", target, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("mount fuse at %s: %w", target, err)
	}
	go func() {
		defer func() { _ = unix.Close(fd) }() // it is unmounted
		if err := answerFuse(fd); err != nil {
			slog.Error("fuse", "target", target, "err", err)
		}
	}()
	return nil
}

// answerFuse answers the kernel until the file system is unmounted.
func answerFuse(fd int) error {
	buffer := make([]byte, fuseBuffer)
	for {
		n, err := unix.Read(fd, buffer)
		switch {
		case err == unix.EINTR || err == unix.ENOENT || err == unix.EAGAIN:
			continue
		case err == unix.ENODEV:
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
		out := make([]byte, fuseOutHeader, fuseOutHeader+len(body))
		binary.NativeEndian.PutUint32(out, uint32(fuseOutHeader+len(body)))
		binary.NativeEndian.PutUint32(out[4:], uint32(-int32(errno)))
		copy(out[8:], buffer[8:16]) // the request's number
		if _, err := unix.Write(fd, append(out, body...)); err != nil && err != unix.ENOENT {
			return fmt.Errorf("answer a request: %w", err)
		}
	}
}

// fuseAnswer is what the kernel hears of an empty directory.
func fuseAnswer(opcode uint32) (body []byte, errno unix.Errno, answered bool) {
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
		return nil, unix.ENOENT, true
	}
	return nil, unix.ENOSYS, true
}
