// Package filesystem makes file systems on block devices, grows and freezes
// them, finds out what a device already holds, and makes subvolumes of btrfs.
// The work is done by the system's own programs: mkfs, blkid and their like.
//
// It owns what the driver knows about kinds of file systems. It never mounts,
// and never decides whether a device may be formatted.
//
// Invariant: a program that was started does not outlive the driver, so a
// killed driver leaves no mkfs behind that writes to a device. The one that
// does, the guard of a frozen file system, outlives it to thaw.
package filesystem

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// Type is a kind of file system, by the kernel's name.
type Type string

// The types that the driver makes.
const (
	Ext4  Type = "ext4"
	XFS   Type = "xfs"
	Btrfs Type = "btrfs"
)

// Types lists them, the default first.
func Types() []Type { return []Type{Ext4, XFS, Btrfs} }

// MinSize is the smallest device on which the type is made, in bytes.
func (t Type) MinSize() int64 {
	switch t {
	case Ext4:
		// mke2fs leaves out the journal below 2 MiB, and at 2 MiB the journal
		// is half of it.
		return 4 << 20
	case XFS:
		// mkfs.xfs refuses less since xfsprogs 5.19.
		return 300 << 20
	case Btrfs:
		// mkfs.btrfs makes smaller ones, which the kernel then refuses to grow.
		return 256 << 20
	}
	return 0
}

// arguments are those of mkfs. again: the device holds what an earlier mkfs
// left unfinished.
func (t Type) arguments(device, uuid string, again bool) []string {
	switch t {
	case Ext4:
		// -F: a whole device without partitions is meant. It does not override
		// the check that the device is not mounted. Errors make it read-only
		// rather than worse; nothing is kept back for root.
		return []string{"-q", "-F", "-m", "0", "-e", "remount-ro", "-U", uuid, device}
	case XFS:
		args := []string{"-q", "-m", "uuid=" + uuid}
		if again {
			args = append(args, "-f") // without it, mkfs.xfs spares what it finds
		}
		return append(args, device)
	case Btrfs:
		return []string{"-q", "-U", uuid, device} // what it would find was wiped
	}
	return nil
}

func (t Type) program() string { return "mkfs." + string(t) }

// MissingError says that a program is not installed.
type MissingError struct {
	Program string
	// Package is what Debian and its relatives call the package.
	Package string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s is not installed; install the package %s (apt-get install %s)", e.Program, e.Package, e.Package)
}

// packages says where a program comes from.
func packages(program string) string {
	switch program {
	case "mkfs.xfs", "xfs_growfs":
		return "xfsprogs"
	case "mkfs.ext4", "resize2fs", "e2fsck":
		return "e2fsprogs"
	case "mkfs.btrfs", "btrfs":
		return "btrfs-progs"
	case "cp":
		return "coreutils"
	}
	return "util-linux"
}

// Tools are the programs, and where to look for them.
type Tools struct {
	Dirs []string
}

// SystemTools are those in $PATH and in the places of system programs, which
// the PATH of a plain user's shell lacks.
func SystemTools() Tools {
	dirs := filepath.SplitList(os.Getenv("PATH"))
	return Tools{Dirs: append(dirs, "/usr/local/sbin", "/usr/sbin", "/sbin")}
}

// Ready reports with a *MissingError what keeps Probe or Make from working.
func (t Tools) Ready(fs Type) error {
	for _, program := range []string{"blkid", fs.program()} {
		if _, err := t.find(program); err != nil {
			return err
		}
	}
	return nil
}

func (t Tools) find(program string) (string, error) {
	for _, dir := range t.Dirs {
		path := filepath.Join(dir, program)
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", &MissingError{Program: program, Package: packages(program)}
}

// Make makes a file system. again says that the device is known to hold an
// unfinished one of the driver's own.
func (t Tools) Make(ctx context.Context, fs Type, device, uuid string, again bool) error {
	if again && fs == Btrfs {
		// It insists on a UUID that no device has, and this one has it.
		if _, err := t.run(ctx, "wipefs", "--all", "--quiet", device); err != nil {
			return fmt.Errorf("make %s on %s: %w", fs, device, err)
		}
	}
	if _, err := t.run(ctx, fs.program(), fs.arguments(device, uuid, again)...); err != nil {
		return fmt.Errorf("make %s on %s: %w", fs, device, err)
	}
	return nil
}

// Found is what a device holds.
type Found struct {
	// What is a file system type, or another word for what was found, such as
	// a partition table; empty for nothing at all.
	What string
	UUID string
}

// Exit codes of blkid(8). It answers "nothing" for a device that it cannot
// read as well, so nobody may take that answer for an empty device alone.
const (
	blkidNothing   = 2
	blkidAmbiguous = 8
)

// Probe reads the device's own bytes, past any cache.
func (t Tools) Probe(ctx context.Context, device string) (Found, error) {
	if err := readable(device); err != nil {
		return Found{}, fmt.Errorf("probe %s: %w", device, err)
	}
	out, err := t.run(ctx, "blkid", "-p", "-o", "export", device)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		switch {
		case exit.ExitCode() == blkidNothing && len(exit.Stderr) == 0:
			return Found{}, nil
		case exit.ExitCode() == blkidAmbiguous:
			return Found{What: "more than one file system"}, nil
		}
	}
	if err != nil {
		return Found{}, fmt.Errorf("probe %s: %w", device, err)
	}
	values := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), "=")
		values[key] = value
	}
	found := Found{What: values["TYPE"], UUID: values["UUID"]}
	if found.What == "" {
		found.What = strings.TrimSpace(values["PTTYPE"] + " partition table")
	}
	return found, nil
}

// readable reports whether the places in which file systems leave their marks
// can be read: both ends of the device.
func readable(device string) error {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	end := make([]byte, min(size, 1<<20))
	for _, offset := range []int64{0, size - int64(len(end))} {
		if _, err := f.ReadAt(end, offset); err != nil {
			return err
		}
	}
	return nil
}

// run runs a program to its end and returns what it printed. Its complaints
// become part of the error.
func (t Tools) run(ctx context.Context, program string, args ...string) ([]byte, error) {
	path, err := t.find(program)
	if err != nil {
		return nil, err
	}
	// The kernel kills the child when the thread that started it ends, so the
	// goroutine keeps its thread until the child has ended.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, path, args...)
	// The machine's memory of what is on which device is seconds old: a program
	// that believed it would refuse a UUID that a device had before it was given
	// to another image.
	cmd.Env = append(os.Environ(), "BLKID_FILE=/dev/null")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return nil, fmt.Errorf("%s: %w: %s", program, err, firstLine(exit.Stderr))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	return out, nil
}

func firstLine(text []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return line
}
