package assignment_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/assignment"
)

// heard is what the servers took of allocations, report by report.
func heard(w *world) [][]string {
	return see(w, func() (all [][]string) {
		for _, r := range w.applied {
			var facts []string
			for _, a := range r.Facts.Allocations {
				facts = append(facts, string(a.ID)+" "+string(a.Status.State))
			}
			all = append(all, facts)
		}
		return all
	})
}

func wantHeard(t *testing.T, w *world, want ...[]string) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, heard(w)); diff != "" {
		t.Errorf("heard (-want +got):\n%s", diff)
	}
}

func TestFactsBeforeTheSessionAreOneReportInOrder(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		facts := assignment.NewFacts()
		facts.SetAllocation(alloc("b", api.AllocPending))
		facts.SetAllocation(alloc("a", api.AllocRunning))
		facts.SetAllocation(alloc("b", api.AllocRunning))
		facts.SetAllocation(alloc("c", api.AllocRunning))
		facts.ForgetAllocation("c", nil)
		_, stop := w.start(facts)
		defer stop()
		wantHeard(t, w, []string{"a running", "b running"})
	})
}

// Hooks look twice a minute at everything that runs and say how it is; each
// report is an entry of the replicated log.
func TestFactThatIsAsItWasIsNotReported(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		facts := assignment.NewFacts()
		_, stop := w.start(facts)
		defer stop()
		say := func() {
			started := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			a := alloc("a", api.AllocRunning)
			a.Status.Tasks = map[string]api.TaskStatus{"pg": {State: api.TaskRunning, Started: started}}
			facts.SetAllocation(a)
			facts.SetAttachment(api.AttachmentFact{AllocID: "a", Name: "data", State: api.NodePublished})
			facts.SetPublication(api.PublicationFact{Namespace: "default", VolumeID: "v", Staged: true})
			synctest.Wait()
		}
		say()
		n := see(w, func() int { return len(w.applied) })
		for range 10 {
			say()
		}
		if got := see(w, func() int { return len(w.applied) }); got != n || n == 0 {
			t.Errorf("%d reports, and %d after nothing changed", n, got)
		}
	})
}

func TestManyFactsAreSplit(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		facts := assignment.NewFacts()
		for i := range 1200 {
			facts.SetAllocation(alloc(fmt.Sprintf("a%04d", i), api.AllocRunning))
		}
		_, stop := w.start(facts)
		defer stop()
		var sizes []int
		for _, r := range heard(w) {
			sizes = append(sizes, len(r))
		}
		if diff := cmp.Diff([]int{500, 500, 200}, sizes); diff != "" {
			t.Errorf("reports (-want +got):\n%s", diff)
		}
	})
}

func TestOneReportIsInFlightAndTheRestIsTheNext(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		facts := assignment.NewFacts()
		_, stop := w.start(facts)
		defer stop()
		began := time.Now()
		w.change(func() { w.refuse = failing("report", api.Errorf(api.CodeUnavailable, "no leader")) })
		facts.SetAllocation(alloc("a", api.AllocPending))
		synctest.Wait()
		facts.SetAllocation(alloc("b", api.AllocRunning))
		facts.SetAllocation(alloc("a", api.AllocRunning))
		w.change(func() { w.refuse = works })
		after(time.Second)
		wantHeard(t, w, []string{"a pending"}, []string{"a running", "b running"})
		facts.SetAllocation(alloc("c", api.AllocRunning))
		synctest.Wait()
		if n := len(heard(w)); n != 3 || time.Since(began) != time.Second {
			t.Errorf("%d reports after %s: a fact waits although none is in flight", n, time.Since(began))
		}
	})
}

func TestWhatIsOverIsForgottenWhenItIsAcknowledged(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		facts := assignment.NewFacts()
		facts.SetAllocation(alloc("a", api.AllocRunning))
		facts.SetPublication(api.PublicationFact{VolumeID: "v"})
		facts.SetInstance(api.InstanceFact{PluginID: "p", Gone: true})
		var gone []api.PluginID
		facts.Gone(func(i api.InstanceFact) { gone = append(gone, i.PluginID) })
		_, stop := w.start(facts)
		if diff := cmp.Diff([]api.PluginID{"p"}, gone); diff != "" {
			t.Errorf("the plugins of which it is heard that they are gone (-want +got):\n%s", diff)
		}
		defer stop()
		// In a new epoch everything is said again that still is.
		w.change(func() {
			w.answer.Epoch, w.assigned.Epoch, w.assigned.Index = 2, 2, 11
		})
		after(time.Second)
		last := see(w, func() api.Facts { return w.applied[len(w.applied)-1].Facts })
		want := api.Facts{Allocations: []api.AllocFact{alloc("a", api.AllocRunning)}}
		if diff := cmp.Diff(want, last); diff != "" {
			t.Errorf("said in the new epoch (-want +got):\n%s", diff)
		}
	})
}

// The epoch changed before the report arrived that said that a volume is not
// staged any more. If that is not said again, the volume is never detached.
func TestWhatIsOverIsSaidAgainIfItNeverArrived(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		facts := assignment.NewFacts()
		_, stop := w.start(facts)
		defer stop()
		w.change(func() { w.refuse = failing("report", api.Errorf(api.CodeStaleSession, "epoch 1 has ended")) })
		facts.SetPublication(api.PublicationFact{VolumeID: "v"})
		synctest.Wait()
		w.change(func() {
			w.refuse, w.answer.Epoch, w.assigned.Epoch = works, 2, 2
		})
		after(time.Second)
		said := see(w, func() (n int) {
			for _, r := range w.applied {
				n += len(r.Facts.Publications)
			}
			return n
		})
		if said != 1 {
			t.Errorf("it was said %d times, want once", said)
		}
	})
}

func TestFactsOfAFullDiskAreNotLost(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		facts := assignment.NewFacts()
		_, stop := w.start(facts)
		defer stop()
		w.change(func() { w.disk = failing("report", fmt.Errorf("no space left on device")) })
		facts.SetAllocation(alloc("a", api.AllocComplete))
		facts.SetPublication(api.PublicationFact{VolumeID: "v"})
		after(time.Minute)
		if n := len(heard(w)); n != 0 {
			t.Errorf("%d reports were sent that are not recorded", n)
		}
		w.change(func() { w.disk = works })
		after(10 * time.Second)
		wantHeard(t, w, []string{"a complete"})
		said := see(w, func() (n int) {
			for _, r := range w.applied {
				n += len(r.Facts.Publications)
			}
			return n
		})
		if said != 1 {
			t.Errorf("%d publications were said, want 1", said)
		}
	})
}

// An agent whose disk was full hung up at the first index that it could not
// record, and was not there to be told what to end.
func TestFullDiskEndsNoSession(t *testing.T) {
	t.Parallel()
	for _, write := range []string{"node", "report"} {
		t.Run(write, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				facts := assignment.NewFacts()
				l, stop := w.start(facts)
				defer stop()
				full := errors.New("no space left on device")
				w.change(func() { w.disk = failing(write, full) })
				facts.SetAllocation(alloc("a", api.AllocComplete))
				for range 60 {
					after(2 * time.Second)
					w.change(func() { w.assigned.Index++ })
				}
				synctest.Wait()
				if got := see(w, func() int { return len(w.consumed) }); got != 61 {
					t.Errorf("%d of 61 assignments were heard", got)
				}
				if st := l.State(); !st.Registered || !errors.Is(st.Problem, full) {
					t.Errorf("state %+v, want it registered, with the disk's problem", st)
				}
				w.change(func() { w.disk = works })
				after(10 * time.Second)
				w.change(func() { w.assigned.Index++ })
				after(10 * time.Second)
				if st := l.State(); !st.Registered || st.Problem != nil {
					t.Errorf("state when there is room again: %+v", st)
				}
				wantHeard(t, w, []string{"a complete"})
				if n := see(w, func() int { return len(w.attempts) }); n != 1 {
					t.Errorf("%d registrations, want one", n)
				}
				if got := see(w, func() uint64 { return w.node.Index }); got != w.assigned.Index {
					t.Errorf("index %d is recorded, want %d", got, w.assigned.Index)
				}
			})
		})
	}
}

// Servers of another release may not take a fact. It keeps back no other.
func TestFactThatIsRefusedHarmsNoOther(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		facts := assignment.NewFacts()
		for i := range 100 {
			facts.SetAllocation(alloc(fmt.Sprintf("a%02d", i), api.AllocRunning))
		}
		w.refuse = func(call string) error {
			if call == "report" {
				for _, a := range w.reports[len(w.reports)-1].Facts.Allocations {
					if a.ID == "a42" {
						return api.Errorf(api.CodeInvalid, "a42 has a state that nobody knows")
					}
				}
			}
			return nil
		}
		l, stop := w.start(facts)
		defer stop()
		facts.SetAllocation(alloc("later", api.AllocRunning))
		synctest.Wait()
		taken := map[string]bool{}
		for _, r := range heard(w) {
			for _, a := range r {
				taken[a] = true
			}
		}
		if len(taken) != 100 || taken["a42 running"] || !taken["later running"] {
			t.Errorf("%d of 101 facts were taken: %v", len(taken), taken)
		}
		if n := see(w, func() int { return len(w.reports) }); n > 30 {
			t.Errorf("it took %d reports", n)
		}
		if !l.State().Registered {
			t.Error("the session ended")
		}
	})
}
