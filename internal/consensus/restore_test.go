package consensus_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

func TestRestore(t *testing.T) {
	t.Parallel()

	t.Run("BeginsAGeneration", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := formed(t, 3)
			leader := c.leader()
			propose(t, leader, volume(1))
			backup := save(t, leader)
			propose(t, leader, volume(2))
			c.settled()
			watches := map[*server]*state.Watch{}
			for _, s := range c.servers {
				watches[s] = state.NewWatch()
				s.View().Watching(watches[s]).Volume(api.DefaultNamespace, volume(1).ID)
			}
			clock := leader.View().Log().Clock
			time.Sleep(time.Minute)
			if err := leader.Restore(t.Context(), bytes.NewReader(backup)); err != nil {
				t.Fatal(err)
			}
			c.settled()
			for _, s := range c.servers {
				v := s.View()
				if err := watches[s].Wait(t.Context()); err != nil {
					t.Errorf("%s: who watched the state before has not heard of it", s.id)
				}
				if v.Volume(api.DefaultNamespace, volume(1).ID) == nil || v.Volume(api.DefaultNamespace, volume(2).ID) != nil {
					t.Errorf("%s has not the saved state", s.id)
				}
				if g := v.Cluster().Generation; g.Number != 2 || !g.Recovering || !g.Since.After(clock) || v.Log().Clock.Before(g.Since) {
					t.Errorf("%s: generation %+v, clock %s", s.id, g, v.Log().Clock)
				}
			}
			propose(t, c.leader(), &command.ConfirmGeneration{Number: 2})
			propose(t, c.leader(), volume(3))
			if err := leader.Restore(t.Context(), bytes.NewReader(backup)); err != nil {
				t.Fatal(err)
			}
			if g := c.settled().View().Cluster().Generation; g.Number != 3 {
				t.Errorf("the second restore of the same state has generation %d", g.Number)
			}
			sound(t, c.leader())
		})
	})

	// While others write and read: each writer hears the truth, up to the
	// restore, and no index goes back.
	t.Run("UnderLoad", func(t *testing.T) {
		t.Parallel()
		for seed := range seeds(3) {
			synctest.Test(t, func(t *testing.T) { restoreUnderLoad(t, seed) })
		}
	})

	// What was planned on the state before must not come true on the restored
	// one, even if nothing was written in between.
	t.Run("VoidsWhatWasPlannedBefore", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := formed(t, 1)
			leader := c.leader()
			backup := save(t, leader)
			before := leader.View().Log().Last
			if err := leader.Restore(t.Context(), bytes.NewReader(backup)); err != nil {
				t.Fatal(err)
			}
			if leader.View().Log().Last == before {
				t.Error("an entry that was planned on the state before fits the restored one")
			}
		})
	})

	// A cluster that was lost altogether: the new one's log has just begun, and
	// the saved state has high indexes.
	t.Run("IntoANewCluster", func(t *testing.T) {
		t.Parallel()
		var backup []byte
		var index uint64
		synctest.Test(t, func(t *testing.T) {
			c := formed(t, 1)
			for i := range 300 {
				propose(t, c.leader(), job("job", i))
			}
			backup, index = save(t, c.leader()), c.leader().View().Index()
		})
		synctest.Test(t, func(t *testing.T) {
			c := formed(t, 3)
			if err := c.leader().Restore(t.Context(), bytes.NewReader(backup)); err != nil {
				t.Fatal(err)
			}
			leader := c.settled()
			restored := leader.View().Index()
			if restored <= index {
				t.Errorf("who has seen index %d of the lost cluster is told %d", index, restored)
			}
			propose(t, leader, job("job", 1))
			if now := leader.View().Index(); now <= restored {
				t.Errorf("index %d follows %d", now, restored)
			}
			if jobs := leader.View().JobsIndex(); jobs <= restored {
				t.Errorf("the jobs were last written at %d, before the restore at %d", jobs, restored)
			}
		})
	})

	t.Run("RefusesWhatIsNoSavedState", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := formed(t, 1)
			leader := c.leader()
			propose(t, leader, volume(1))
			backup := save(t, leader)
			empty, err := state.New()
			if err != nil {
				t.Fatal(err)
			}
			tests := map[string][]byte{
				"Nothing":      nil,
				"AnotherFile":  []byte("#!/bin/sh\nexit 1\n"),
				"Cut":          backup[:len(backup)-1],
				"CutInHalf":    backup[:len(backup)/2],
				"Newer":        pack(t, strings.Replace(unpack(t, backup), `"format":1`, `"format":99`, 1)),
				"UnknownTable": pack(t, strings.Replace(unpack(t, backup), `{"table":"volumes","row"`, `{"table":"pigeons","row"`, 1)),
				"UnknownField": pack(t, strings.Replace(unpack(t, backup), `"uid":`, `"pigeon":`, 1)),
				"RowMissing":   pack(t, withoutLine(unpack(t, backup), `"volumes"`)),
				"NotFormed":    saved(t, empty.View()),
			}
			before := saved(t, leader.View())
			for name, b := range tests {
				if err := leader.Restore(t.Context(), bytes.NewReader(b)); api.CodeOf(err) != api.CodeInvalid {
					t.Errorf("%s was answered with %v", name, err)
				}
				if !bytes.Equal(before, saved(t, leader.View())) {
					t.Fatalf("%s has changed the state", name)
				}
			}
			if n := leader.Counters().Drops.Load(); n != 0 {
				t.Errorf("the overlay was dropped %d times", n)
			}
			propose(t, leader, volume(2))
		})
	})

	t.Run("NotOnAFollower", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := formed(t, 3)
			backup := save(t, c.leader())
			before := c.settled().View().Log()
			for _, s := range c.servers {
				if s == c.leader() {
					continue
				}
				if err := s.Restore(t.Context(), bytes.NewReader(backup)); api.CodeOf(err) != api.CodeUnavailable {
					t.Errorf("%s, which does not lead, answered %v", s.id, err)
				}
			}
			if c.settled().View().Log() != before {
				t.Error("something was written")
			}
		})
	})
}

func restoreUnderLoad(t *testing.T, seed uint64) {
	c := formed(t, 3)
	c.network.delay(5*time.Millisecond, rand.New(rand.NewPCG(seed, 9)))
	leader := c.leader()
	for i := range 20 {
		propose(t, leader, volume(int64(i)))
	}
	backup := save(t, leader)
	ctx, cancel := context.WithCancel(t.Context())
	var readers, writers sync.WaitGroup
	for _, s := range c.servers {
		readers.Go(func() { readIndexes(ctx, t, s) })
	}
	before := newLedger()
	writers.Go(func() { before.writes(t, leader, 1000, 30, 20) })
	time.Sleep(time.Duration(10+seed*7) * time.Millisecond)
	if err := leader.Restore(ctx, bytes.NewReader(backup)); err != nil {
		t.Errorf("restore: %v", err)
	}
	writers.Wait()
	settled := c.settled()
	// Which of them came before the restore only the state can tell; all were
	// answered, and none is there that was told not written.
	codes := map[api.Code]int{}
	for n, told := range before.told {
		if len(told) != 1 {
			t.Errorf("volume %d: %d answers", n, len(told))
		}
		code := api.CodeOf(told[0])
		codes[code]++
		if there := settled.View().Volume(api.DefaultNamespace, volume(n).ID) != nil; there && code == api.CodeUnavailable {
			t.Errorf("volume %d: was told not written, and is there", n)
		}
		if code != "" && code != api.CodeUnavailable && code != api.CodeUncertain {
			t.Errorf("volume %d: %v", n, told[0])
		}
	}
	if codes[""] == 0 || codes[""] == len(before.told) {
		t.Errorf("the restore was not in the middle of the writes: %v", codes)
	}
	if g := settled.View().Cluster().Generation; !g.Recovering || g.Number != 2 {
		t.Errorf("the generation is %+v", g)
	}
	leader = c.leader()
	after := newLedger()
	after.writes(t, leader, 5000, 10, 5)
	if codes := after.check(t, leader.View()); codes[""] != 50 {
		t.Errorf("afterwards: %v", codes)
	}
	sound(t, leader)
	c.settled()
	cancel()
	readers.Wait()
}

// readIndexes looks at a server's state whenever it changes. The index never
// goes back.
func readIndexes(ctx context.Context, tb testing.TB, s *server) {
	var last uint64
	for ctx.Err() == nil {
		w := state.NewWatch()
		v := s.View().Watching(w)
		if v.Index() < last {
			tb.Errorf("%s: went back from index %d to %d", s.id, last, v.Index())
		}
		last = v.Index()
		_ = w.Wait(ctx) // its end is the loop's
	}
}

func propose(t *testing.T, s *server, c command.Command) {
	t.Helper()
	if _, err := s.Propose(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func save(t *testing.T, s *server) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Save(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func unpack(t *testing.T, b []byte) string {
	t.Helper()
	z, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	text, err := z.DecodeAll(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func pack(t *testing.T, text string) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return z.EncodeAll([]byte(text), nil)
}

// withoutLine is text without the first line that has what in it.
func withoutLine(text, what string) string {
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		if strings.Contains(line, what) {
			return strings.Join(append(lines[:i:i], lines[i+1:]...), "")
		}
	}
	return text
}
