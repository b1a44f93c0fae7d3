// Package process names processes. It owns the difference between a process
// and its number: it never signals a number without having made sure that the
// number still belongs to the process that was meant.
//
// Invariant: an ID that was once read names at most one process, whatever the
// kernel does with the number afterwards, across reboots too.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ID names one process for ever.
type ID struct {
	PID int `json:"pid"`
	// Start is when the process started, in clock ticks since boot
	// (proc_pid_stat(5), field 22).
	Start uint64 `json:"start"`
	// Boot is the kernel's boot id: ticks count from zero again after it changes.
	Boot string `json:"boot"`
}

// Self names the calling process.
func Self() (ID, error) { return Of(os.Getpid()) }

// Of names the process that has the number now. The error wraps
// os.ErrProcessDone if none has.
func Of(pid int) (ID, error) {
	st, err := readStat(pid)
	if err != nil {
		return ID{}, err
	}
	boot, err := Boot()
	if err != nil {
		return ID{}, err
	}
	return ID{PID: pid, Start: st.start, Boot: boot}, nil
}

// Boot is the id of the running kernel's boot.
func Boot() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Signal signals the process. The error wraps os.ErrProcessDone if it is gone,
// and also if another process has its number now.
func (id ID) Signal(sig syscall.Signal) error {
	if id.PID <= 0 {
		return os.ErrProcessDone
	}
	fd, err := unix.PidfdOpen(id.PID, 0)
	if errors.Is(err, unix.ENOSYS) {
		return id.signalByNumber(sig)
	}
	if err != nil {
		return done("open", id.PID, err)
	}
	defer func() { _ = unix.Close(fd) }()
	// The descriptor pins whatever has the number now, so this look cannot be
	// overtaken.
	if err := id.verify(); err != nil {
		return err
	}
	return done("signal", id.PID, unix.PidfdSendSignal(fd, sig, nil, 0))
}

// signalByNumber serves kernels before 5.3, where a process that dies between
// the look and the signal cannot be excluded.
func (id ID) signalByNumber(sig syscall.Signal) error {
	if err := id.verify(); err != nil {
		return err
	}
	return done("signal", id.PID, unix.Kill(id.PID, sig))
}

// verify is nil if the number still belongs to the process.
func (id ID) verify() error {
	now, err := Of(id.PID)
	if err != nil {
		return err
	}
	if now != id {
		return fmt.Errorf("process %d is another one now: %w", id.PID, os.ErrProcessDone)
	}
	return nil
}

// done makes "no such process" comparable.
func done(verb string, pid int, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.ESRCH) {
		err = os.ErrProcessDone
	}
	return fmt.Errorf("%s process %d: %w", verb, pid, err)
}

// stat is what this package reads of /proc/PID/stat.
type stat struct {
	state   byte
	session int
	start   uint64
}

func readStat(pid int) (stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return stat{}, fmt.Errorf("look at process %d: %w", pid, os.ErrProcessDone)
	}
	if err != nil {
		return stat{}, fmt.Errorf("look at process %d: %w", pid, err)
	}
	// The second field is the command's name in parentheses, and may itself
	// hold spaces and parentheses: count from the last one.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	const state, session, start = 0, 3, 19
	if len(fields) <= start {
		return stat{}, fmt.Errorf("look at process %d: its stat has %d fields", pid, len(fields))
	}
	st := stat{state: fields[state][0]}
	if st.session, err = strconv.Atoi(string(fields[session])); err != nil {
		return stat{}, fmt.Errorf("look at process %d: session: %w", pid, err)
	}
	if st.start, err = strconv.ParseUint(string(fields[start]), 10, 64); err != nil {
		return stat{}, fmt.Errorf("look at process %d: start time: %w", pid, err)
	}
	return st, nil
}
