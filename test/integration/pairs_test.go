package integration_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/test/host"
)

// TestKillMatrixOfPairs kills a process of a node in a phase of an allocation's
// start or stop, and then the same or another one in the middle of what comes of
// that: in the next call to the local driver, before it has it or after it has
// answered, or, where none comes, once all is as it should be.
func TestKillMatrixOfPairs(t *testing.T) {
	t.Parallel()
	often := map[string][]string{
		"BeforePublish": {"Agent/Plugin/Answered"}, "AfterStage": {"Agent/Agent"}, "TaskEnds": {"Supervisor/Agent"}, "AfterUnpublish": {"Plugin/Agent/Answered"},
	}
	whole := os.Getenv("BERTH_KILL_MATRIX") == "all"
	of := victims()
	var pairs []string
	for _, first := range []string{"Agent", "Plugin", "Supervisor"} {
		for _, second := range []string{"Agent", "Plugin", "Supervisor"} {
			pairs = append(pairs, first+"/"+second, first+"/"+second+"/Answered")
		}
	}
	for _, p := range phases() {
		cells := often[p.name]
		if whole {
			cells = pairs
		}
		if len(cells) == 0 {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, host.Options{})
			m.prepare()
			for _, cell := range cells {
				who := strings.Split(cell, "/")
				if slices.Contains(who, "Supervisor") && !p.task {
					continue
				}
				began := time.Now()
				m.cellOfTwo(p.name+"/"+cell, p, of[who[0]], of[who[1]], len(who) > 2)
				t.Logf("%s took %s", cell, time.Since(began).Round(time.Millisecond))
			}
			m.berth.Run("volume", "delete", "pg")
		})
	}
}

// cellOfTwo is a cell with another death in what comes of the first.
func (m *machine) cellOfTwo(name string, p phase, first, second victim, answered bool) {
	m.tb.Helper()
	m.reach(p)
	first.kill(m)
	m.gate.Open()
	held := m.gate.HoldAny(answered)
	first.resume(m)
	m.berth.Eventually(name+": a call comes, or the recovery to its end", limit, func() error {
		select {
		case <-held.Reached:
			return nil
		default:
		}
		a, err := m.berth.Account(m.client, m.root)
		if err != nil {
			return err
		}
		wanted := 1
		if p.stops {
			wanted = 0
		}
		if d := a.Disagreements(); len(d) > 0 || len(a.Stagings) != wanted || len(a.Running) != wanted {
			return fmt.Errorf("%d allocations run and %d volumes are staged, want %d; %s", len(a.Running), len(a.Stagings), wanted, strings.Join(d, "; "))
		}
		return nil
	})
	second.kill(m)
	m.gate.Open()
	second.resume(m)
	m.recovered(name, p)
}
