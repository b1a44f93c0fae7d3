package integration_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/test/host"
)

// finish stops the job and deletes its volume, and looks that nothing is left.
func (m *machine) finish() {
	m.tb.Helper()
	m.stop("db")
	m.untilFree("pg")
	m.settled("stopped", 0)
	m.berth.Run("volume", "delete", "pg")
}

// ticks waits until the writer goes on.
func (m *machine) ticks() {
	m.tb.Helper()
	before := m.lines("ticks")
	m.await("the next tick", func() bool { return m.lines("ticks") > before })
}

// TestRebootMountsAgain cuts the power of a machine on which a job writes to
// its volume, once while it runs and once in the middle of a start. After the
// boot the volume is mounted again and the job runs, on the data that was there.
func TestRebootMountsAgain(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(m *machine){
		"WhileItRuns": func(m *machine) {
			m.writer()
			m.untilRunning("db")
			m.ticks()
		},
		"InTheMiddleOfAStart": func(m *machine) {
			m.writer()
			m.untilRunning("db")
			m.ticks()
			m.stop("db")
			m.untilFree("pg")
			held := m.gate.Hold("NodePublishVolume", true)
			m.writer()
			<-held.Reached
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			boot := host.StartBoot(t)
			m := newMachine(t, host.Options{Apart: true, Boot: boot})
			m.prepare()
			before(m)
			boot.PowerCut(m.berth, m.plugin)
			m.gate.Open()
			boot = host.StartBoot(t)
			m.plugin.Boot = boot
			m.berth.Reboot(boot)
			m.plugin.Start()
			m.berth.Resume()
			m.await("another start", func() bool { return m.lines("starts") == 2 })
			m.settled("after a reboot", 1)
			m.finish()
		})
	}
}

// TestAgentRestartsWithoutServers kills agent and server and starts the agent
// alone: the task goes on, and no volume is claimed or mounted again; nor when
// the server comes back.
func TestAgentRestartsWithoutServers(t *testing.T) {
	t.Parallel()
	m := newMachine(t, host.Options{Apart: true})
	m.prepare()
	m.writer()
	before := m.untilRunning("db")
	m.await("the first ticks", func() bool { return m.lines("ticks") > 0 })
	ticks := filepath.Join(m.target(), "ticks")
	lines := func() int {
		b, err := os.ReadFile(ticks)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(b), "\n")
	}
	m.settled("running", 1)
	calls, supervisor := m.gate.Calls(), m.supervisor("writer")
	m.berth.KillServer()
	for range 2 {
		m.berth.Kill()
		m.berth.Launch()
		now := lines()
		m.await("the next ticks", func() bool { return lines() > now+10 })
	}
	m.berth.StartServer()
	m.settled("with the server again", 1)
	if n := m.gate.Calls(); n != calls {
		t.Errorf("the plugin was called %d times to mount or unmount, %d times before", n, calls)
	}
	if pid := m.supervisor("writer"); pid != supervisor {
		t.Errorf("the supervisor is %d, and was %d", pid, supervisor)
	}
	if after := m.untilRunning("db"); after.ID != before.ID || m.lines("starts") != 1 {
		t.Errorf("allocation %s with %d starts, want %s with one", after.ID, m.lines("starts"), before.ID)
	}
	m.finish()
}

// TestFullDisk takes all room of the agent's file system in each phase of a
// start and a stop, and kills the agent in some of them. It says what is wrong,
// and goes on when there is room again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	m := newMachine(t, host.Options{Apart: true, Disk: 24})
	m.prepare()
	kill := map[string]bool{"AfterStage": true, "TaskRuns": true, "AfterUnpublish": true}
	whole := os.Getenv("BERTH_KILL_MATRIX") == "all"
	for _, p := range phases() {
		if !whole && !kill[p.name] && p.name != "TaskEnds" {
			continue
		}
		for _, killed := range []bool{false, true} {
			if killed && !kill[p.name] {
				continue
			}
			m.cell(fmt.Sprintf("%s with a full disk, agent killed: %t", p.name, killed), p, victim{func(m *machine) {
				m.berth.Fill()
				if killed {
					m.berth.Kill()
				}
			}, func(m *machine) {
				if killed {
					m.berth.Resume()
				}
				m.complained(p.stops)
				m.berth.Empty()
			}})
		}
	}
	// From the start.
	m.berth.Fill()
	m.writer()
	m.berth.Eventually("it is said that the disk is full", limit, func() error {
		waits, _, _ := m.berth.Try("job", "status", "db")
		if !strings.Contains(waits, "no space left on device") {
			return errors.New(waits)
		}
		return nil
	})
	m.berth.Empty()
	m.untilRunning("db")
	m.settled("started on a full disk", 1)
	m.finish()
}

// TestFullDiskIsNoReasonToHangUp takes all room of a node that runs a job, and
// starts its agent again: it is in contact, and what ends there ends, down to the
// volume. An agent that could not record its session was out of contact instead,
// and could not say why.
func TestFullDiskIsNoReasonToHangUp(t *testing.T) {
	t.Parallel()
	m := newMachine(t, host.Options{Apart: true, Disk: 24})
	m.prepare()
	m.writer()
	m.untilRunning("db")
	m.ticks()
	m.berth.Fill()
	m.berth.Kill()
	m.berth.Resume()
	m.stop("db")
	m.untilFree("pg")
	m.settled("stopped on a full disk", 0)
	m.berth.Empty()
	m.writer()
	m.untilRunning("db")
	m.finish()
}

// complained waits until the allocation says that the disk is full, or is as it
// should be all the same.
func (m *machine) complained(stopped bool) {
	m.tb.Helper()
	m.berth.Eventually("it is said that the disk is full, or needs not be", limit, func() error {
		allocs, _, err := m.client.Allocations(m.tb.Context(), client.Query{})
		if err != nil {
			return err
		}
		var last string
		for _, a := range allocs {
			if a.Status.Problem != nil && strings.Contains(a.Status.Problem.Message, "no space left") {
				return nil
			}
			done := a.Status.State == api.AllocRunning && !stopped || a.Status.State.Terminal() && stopped
			if done && a.Desired == api.DesireRun != stopped {
				return nil
			}
			last = fmt.Sprintf("%s %+v", a.Status.State, a.Status.Problem)
		}
		return errors.New(last)
	})
}
