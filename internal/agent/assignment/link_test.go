package assignment_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/assignment"
)

var errLost = errors.New("connection reset")

func TestSessionRegistersPollsAndReports(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		facts := assignment.NewFacts()
		facts.SetAllocation(alloc("a", api.AllocRunning))
		l, stop := w.start(facts)
		if !l.State().Registered {
			t.Errorf("state is %+v", l.State())
		}
		reg := w.attempts[0]
		want := api.Registration{
			NodeID: "n1-00000001", Name: "n1", Session: reg.Session, Known: []string{}, BootID: "boot", Version: "test",
			FeatureLevel: api.FeatureLevel, Drivers: map[string]api.Driver{"exec": {Healthy: true}},
		}
		if diff := cmp.Diff(want, reg); diff != "" {
			t.Errorf("registration (-want +got):\n%s", diff)
		}
		wantHeard(t, w, []string{"a running"})
		w.change(func() { w.assigned.Index = 12 })
		after(time.Minute)
		stop()
		if diff := cmp.Diff([]uint64{10, 12}, w.consumed); diff != "" {
			t.Errorf("consumed (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]uint64{0, 10, 12}, w.polls[:3]); diff != "" {
			t.Errorf("polled from (-want +got):\n%s", diff)
		}
		if n := w.node; n.ClusterID != "c1" || n.Session != reg.Session || n.Epoch != 1 || n.Generation != 1 || n.Index != 12 {
			t.Errorf("recorded: %+v", n)
		}
	})
}

// What an agent says of its machine may change while it runs. It is the same
// session, and nothing that is on its way is lost or said twice.
func TestNodeRegistersAgainWhenItsMachineHasChanged(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		facts := assignment.NewFacts()
		l, stop := w.start(facts)
		facts.SetAllocation(alloc("a", api.AllocRunning))
		w.change(func() { w.profile = api.Profile{Class: "big"} })
		l.Register()
		l.Register()
		after(time.Second)
		facts.SetAllocation(alloc("b", api.AllocRunning))
		after(time.Minute)
		stop()
		n := len(w.attempts)
		if n < 2 || slices.ContainsFunc(w.attempts, func(r api.Registration) bool { return r.Session != w.attempts[0].Session }) {
			t.Fatalf("%d registrations: %+v", n, w.attempts)
		}
		if before, now := w.attempts[0].Profile.Class, w.attempts[n-1].Profile.Class; before != "" || now != "big" {
			t.Errorf("registered as %q, then as %q", before, now)
		}
		wantHeard(t, w, []string{"a running"}, []string{"b running"})
	})
}

// Who follows a log is not cut off by a change of the node's configuration, only
// by an end of the session that another agent, or the servers, have made.
func TestStreamsOutliveAChangeOfTheMachine(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.assigned.Streams = []api.StreamOffer{{ID: "s1", Kind: api.StreamLogs}}
		l, stop := w.start(assignment.NewFacts())
		open := func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			select {
			case <-w.streams[0]:
				return false
			default:
				return true
			}
		}
		w.change(func() { w.profile = api.Profile{Class: "big"} })
		l.Register()
		after(time.Minute)
		if n := see(w, func() int { return len(w.attempts) }); n < 2 || !open() {
			t.Errorf("after %d registrations the stream goes on: %t", n, open())
		}
		w.change(func() { w.refuse = failing("poll", api.Errorf(api.CodeStaleSession, "over")) })
		after(time.Minute)
		if open() {
			t.Error("the stream outlives its session")
		}
		w.change(func() { w.refuse = works })
		after(time.Minute)
		stop()
		for _, over := range w.streams {
			select {
			case <-over:
			default:
				t.Error("a stream outlives the agent")
			}
		}
	})
}

func TestAgentWhoseRegistrationGotNoAnswerIsStillKnown(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		_, stop := w.start(assignment.NewFacts())
		stop()
		confirmed := w.node.Session
		var lost []string
		for range 3 {
			w.lose = failing("register", errLost)
			_, stop = w.start(assignment.NewFacts())
			after(time.Hour)
			stop()
			lost = append(lost, w.node.Pending[0])
		}
		w.lose = works
		_, stop = w.start(assignment.NewFacts())
		stop()
		known := w.attempts[len(w.attempts)-1].Known
		if !slices.Contains(known, confirmed) || !slices.Contains(known, lost[0]) || !slices.Contains(known, lost[2]) {
			t.Errorf("shows %v, want %s and %v", known, confirmed, lost)
		}
		tokens := map[string]bool{}
		for _, a := range w.attempts {
			tokens[a.Session] = true
		}
		if len(tokens) != 5 {
			t.Errorf("%d tokens of 5 agents", len(tokens))
		}
	})
}

func TestNoNumberOfRestartsMakesTheNodeAStranger(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		_, stop := w.start(assignment.NewFacts())
		stop()
		confirmed := w.node.Session
		w.refuse = failing("register", errLost)
		for range 40 {
			_, stop = w.start(assignment.NewFacts())
			stop()
		}
		known := w.attempts[len(w.attempts)-1].Known
		if len(known) > 20 || !slices.Contains(known, confirmed) {
			t.Errorf("shows %d tokens, the confirmed one %v", len(known), slices.Contains(known, confirmed))
		}
	})
}

func TestReportWhoseAnswerIsLostIsAppliedOnce(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"SameAgent": false, "NextAgent": true} {
		for when, arrives := range map[string]bool{"Arrived": true, "Lost": false} {
			t.Run(name+"/"+when, func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T, w *world) {
					facts := assignment.NewFacts()
					_, stop := w.start(facts)
					if arrives {
						w.change(func() { w.lose = failing("report", errLost) })
					} else {
						w.change(func() { w.refuse = failing("report", errLost) })
					}
					facts.SetAllocation(alloc("a", api.AllocRunning))
					after(time.Minute)
					if restart {
						stop()
						facts = assignment.NewFacts()
						_, stop = w.start(facts)
					}
					w.change(func() { w.lose, w.refuse = works, works })
					after(time.Minute)
					facts.SetAllocation(alloc("b", api.AllocRunning))
					synctest.Wait()
					wantHeard(t, w, []string{"a running"}, []string{"b running"})
					if got := w.applied[1].Sequence; got != 2 {
						t.Errorf("the next report has sequence %d", got)
					}
					stop()
				})
			})
		}
	}
}

func TestStaleSessionRegistersAgainWithItsToken(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		_, stop := w.start(assignment.NewFacts())
		defer stop()
		w.change(func() { w.refuse = failing("poll", api.Errorf(api.CodeStaleSession, "ended")) })
		synctest.Wait()
		w.change(func() { w.refuse = works })
		after(time.Second)
		got := see(w, func() []api.Registration { return slices.Clone(w.attempts) })
		if len(got) != 2 || got[0].Session != got[1].Session {
			t.Errorf("registrations: %+v", got)
		}
	})
}

// Every registration is a write to the log: servers that take it and refuse
// what comes after must not be stormed.
func TestSessionsThatFailAtOnceBackOff(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.refuse = failing("poll", api.Errorf(api.CodeInternal, "a fault"))
		_, stop := w.start(assignment.NewFacts())
		defer stop()
		after(time.Minute)
		if n := see(w, func() int { return len(w.attempts) }); n > 20 {
			t.Errorf("%d registrations in a minute", n)
		}
	})
}

func TestSessionThatEndsAfterAnOutageIsRenewedAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.refuse = failing("register", errLost)
		_, stop := w.start(assignment.NewFacts())
		defer stop()
		after(time.Hour)
		w.change(func() { w.refuse = works })
		after(6 * time.Second)
		before := see(w, func() int { return len(w.attempts) })
		w.change(func() { w.refuse = failing("poll", api.Errorf(api.CodeStaleSession, "ended")) })
		after(200 * time.Millisecond)
		w.change(func() { w.refuse = works })
		if n := see(w, func() int { return len(w.attempts) }); n == before {
			t.Error("it waits as if the servers were still away")
		}
	})
}

func TestRefusedAgentTriesSlowlyAndChangesNothing(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]api.Code{
		"IdentityInUse": api.CodeIdentityInUse, "WrongCluster": api.CodeWrongCluster, "Forbidden": api.CodeForbidden,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				w.refuse = failing("register", api.Errorf(code, "no"))
				l, stop := w.start(assignment.NewFacts())
				after(time.Hour)
				stop()
				if len(w.consumed) > 0 || len(w.polls) > 0 {
					t.Errorf("consumed %v, polled %v", w.consumed, w.polls)
				}
				if n := len(w.attempts); n > 242 || n < 200 {
					t.Errorf("%d attempts in an hour, want one in 15 seconds", n)
				}
				if st := l.State(); st.Registered || api.CodeOf(st.Problem) != code {
					t.Errorf("state: %+v", st)
				}
			})
		})
	}
}

func TestServersThatAreAwayForHoursAreFoundAgain(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		facts := assignment.NewFacts()
		_, stop := w.start(facts)
		defer stop()
		away := api.Errorf(api.CodeUnavailable, "nobody there")
		w.change(func() { w.refuse = func(string) error { return away } })
		facts.SetAllocation(alloc("a", api.AllocRunning))
		after(3 * time.Hour)
		facts.SetAllocation(alloc("b", api.AllocRunning))
		w.change(func() { w.refuse = works })
		after(6 * time.Second)
		wantHeard(t, w, []string{"a running"}, []string{"b running"})
	})
}

func TestAnotherClusterIsRefused(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]func(w *world){
		"AtRegistration": func(w *world) { w.answer.ClusterID = "c2" },
		"InAnAnswer":     func(w *world) { w.assigned.ClusterID = "c2" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				w.node.ClusterID = "c1"
				other(w)
				l, stop := w.start(assignment.NewFacts())
				stop()
				if len(w.consumed) > 0 || w.node.ClusterID != "c1" || api.CodeOf(l.State().Problem) != api.CodeWrongCluster {
					t.Errorf("consumed %v, pinned %s, state %v", w.consumed, w.node.ClusterID, l.State().Problem)
				}
			})
		})
	}
}

func TestServersThatWentBackAreNotObeyed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		back func(w *world)
		code api.Code
	}{
		"Index":      {func(w *world) { w.node.Index = 11 }, api.CodeStaleSession},
		"Generation": {func(w *world) { w.node.Generation = 2 }, api.CodeRolledBack},
		"Answer":     {func(w *world) { w.assigned.Generation.Number = 3 }, api.CodeStaleSession},
		"Epoch":      {func(w *world) { w.assigned.Epoch = 7 }, api.CodeStaleSession},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				w.node.ClusterID, w.node.Epoch, w.node.Generation = "c1", 1, 1
				tc.back(w)
				before := w.node
				l, stop := w.start(assignment.NewFacts())
				after(time.Minute)
				stop()
				if len(w.consumed) > 0 || api.CodeOf(l.State().Problem) != tc.code {
					t.Errorf("consumed %v, state %v", w.consumed, l.State().Problem)
				}
				if w.node.Index != before.Index || w.node.Generation != before.Generation {
					t.Errorf("recorded %+v, and it was %+v", w.node, before)
				}
			})
		})
	}
}

func TestNewGenerationHearsEverythingAgain(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		facts := assignment.NewFacts()
		facts.SetAllocation(alloc("a", api.AllocRunning))
		_, stop := w.start(facts)
		w.change(func() {
			g := api.Generation{Number: 2}
			w.answer.Generation, w.assigned.Generation, w.assigned.Index = g, g, 5
		})
		after(time.Second)
		wantHeard(t, w, []string{"a running"}, []string{"a running"})
		stop()
		if w.node.Generation != 2 || w.node.Index != 5 {
			t.Errorf("recorded: %+v", w.node)
		}
		if diff := cmp.Diff([]uint64{10, 5}, w.consumed); diff != "" {
			t.Errorf("consumed (-want +got):\n%s", diff)
		}
	})
}

// While a restored cluster recovers, consumers pass over assignments. The
// servers then only name what has not changed since: an allocation that the
// node does not run would never be started.
func TestEndOfARecoverySendsEverythingAgain(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.answer.Generation.Recovering, w.assigned.Generation.Recovering = true, true
		_, stop := w.start(assignment.NewFacts())
		defer stop()
		w.change(func() { w.assigned.Generation.Recovering, w.assigned.Index = false, 11 })
		synctest.Wait()
		got := see(w, func() []uint64 { return slices.Clone(w.polls) })
		if diff := cmp.Diff([]uint64{0, 10, 0, 11}, got); diff != "" {
			t.Errorf("polled from (-want +got):\n%s", diff)
		}
		if n := see(w, func() int { return len(w.attempts) }); n != 1 {
			t.Errorf("%d registrations", n)
		}
	})
}

func TestIndexIsRecordedOnceASecond(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		_, stop := w.start(assignment.NewFacts())
		before := see(w, func() int { return w.nodeWrites })
		for range 100 {
			after(50 * time.Millisecond)
			w.change(func() { w.assigned.Index++ })
		}
		synctest.Wait()
		if n := see(w, func() int { return w.nodeWrites }) - before; n < 4 || n > 6 {
			t.Errorf("%d writes in 5 seconds", n)
		}
		stop()
		if w.node.Index != w.assigned.Index {
			t.Errorf("recorded index %d, want %d", w.node.Index, w.assigned.Index)
		}
	})
}

// A consumer ends what it does not hear of. That the allocations are the same is
// said in one word on the wire, and to consumers in full.
func TestConsumerHearsOfAllocationsThatAreTheSame(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.assigned.Allocations = []api.AllocAssignment{{ID: "a", Allocation: &api.Allocation{ID: "a"}}, {ID: "b"}}
		_, stop := w.start(assignment.NewFacts())
		defer stop()
		for range 2 {
			w.change(func() {
				w.assigned.Index++
				w.assigned.Allocations, w.assigned.Same = nil, true
			})
			synctest.Wait()
		}
		named := []api.AllocAssignment{{ID: "a"}, {ID: "b"}}
		if diff := cmp.Diff([][]api.AllocAssignment{named, named}, see(w, func() [][]api.AllocAssignment { return w.listed[1:] })); diff != "" {
			t.Errorf("consumed (-want +got):\n%s", diff)
		}
	})
}
