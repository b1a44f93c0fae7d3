package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// KillSession kills every process of the session that leader began, and
// returns when none is left or ctx ends. Leader itself may be long gone.
//
// It is for machines without a cgroup to keep processes in: one that began a
// session of its own has escaped.
func KillSession(ctx context.Context, leader ID) error { return KillSessionAmong(ctx, leader, All) }

// KillSessionAmong is KillSession where all members are among the processes that a
// function lists by their numbers.
func KillSessionAmong(ctx context.Context, leader ID, list func() ([]int, error)) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		members, err := session(leader, list)
		if err != nil {
			return err
		}
		if len(members) == 0 {
			return nil
		}
		for _, m := range members {
			if err := m.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return fmt.Errorf("kill session %d: %w", leader.PID, err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %d processes of session %d to die: %w", len(members), leader.PID, ctx.Err())
		}
	}
}

// session lists the living processes of leader's session. The kernel gives
// away no number that a session still uses, so a stranger with leader's number
// means that the session is over.
func session(leader ID, list func() ([]int, error)) ([]ID, error) {
	boot, err := Boot()
	if err != nil {
		return nil, err
	}
	if leader.PID <= 0 || leader.Boot != boot {
		return nil, nil
	}
	if st, err := readStat(leader.PID); err == nil && st.start != leader.Start {
		return nil, nil
	}
	pids, err := list()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var ids []ID
	for _, pid := range pids {
		st, err := readStat(pid)
		if err != nil || st.state == 'Z' || st.state == 'X' {
			continue
		}
		if st.session == leader.PID && st.start >= leader.Start {
			ids = append(ids, ID{PID: pid, Start: st.start, Boot: boot})
		}
	}
	return ids, nil
}

// All lists the processes of the machine by their numbers.
func All() ([]int, error) {
	names, err := readNames("/proc")
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	return d.Readdirnames(-1)
}
