package dispatcher_test

import (
	"fmt"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/controller/dispatcher"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// waiting is a world with a controller, and so many operations that wait for it
// on as many volumes.
func waiting(tb testing.TB, n int) *state.Store {
	tb.Helper()
	store := statetest.Load(tb, node("n1")+call("create", "running", running("now-1s")))
	tx := store.Begin(2, statetest.Now())
	defer tx.Abort()
	for i := range n {
		name := fmt.Sprintf("create/default/v%06d", i)
		tx.PutOperation(&api.Operation{
			ID: api.NewOperationID(name, 1), Name: name, Kind: api.OperationCreate, Namespace: "default",
			VolumeID: api.VolumeID(fmt.Sprintf("v%06d", i)), PluginID: "disk",
			Request: api.OperationRequest{Create: &api.CreateRequest{}}, Status: api.OperationStatus{State: api.OperationWaiting},
		})
	}
	tx.Commit()
	return store
}

// TestWaitingCostsNothing: anchors 3, where each write wakes every volume's
// watcher. What a look at a plugin costs depends on the calls that it may have,
// not on how many operations wait for them: so ten times as many are served in
// ten times the work.
func TestWaitingCostsNothing(t *testing.T) { //nolint:paralleltest // it counts allocations
	few, many := waiting(t, 100), waiting(t, 10_000)
	for name, c := range map[string]struct {
		limits   dispatcher.Calls
		assigned int
	}{
		"SlotsAreFree":  {dispatcher.Calls{Max: 9}, 8},
		"SlotsAreFull":  {dispatcher.Calls{Max: 1}, 0},
		"TheNodeIsFull": {dispatcher.Calls{MaxPerNode: 1}, 0},
	} {
		ctl := dispatcher.New(dispatcher.Limits{"disk": c.limits})
		cost := func(store *state.Store) float64 {
			v := store.View()
			return testing.AllocsPerRun(20, func() {
				plan, err := ctl.Reconcile(v, statetest.Now(), "disk")
				if err != nil || len(plan.Commands) != c.assigned {
					t.Fatalf("%s: %d operations are assigned, %v, want %d", name, len(plan.Commands), err, c.assigned)
				}
			})
		}
		if a, b := cost(few), cost(many); b > a+5 {
			t.Errorf("%s: a look costs %.0f allocations where 100 wait, %.0f where 10,000 do", name, a, b)
		}
	}
	pending := func(store *state.Store) float64 {
		v := store.View()
		return testing.AllocsPerRun(20, func() {
			for range (dispatcher.Controller{}).Pending(v) {
			}
		})
	}
	if a, b := pending(few), pending(many); b > a+5 {
		t.Errorf("the query costs %.0f allocations where 100 wait, %.0f where 10,000 do", a, b)
	}
}

// BenchmarkDispatch looks at a plugin that 10,000 operations wait for.
func BenchmarkDispatch(b *testing.B) {
	store := waiting(b, 10_000)
	ctl := dispatcher.New(dispatcher.Limits{"disk": {Max: 65}})
	for b.Loop() {
		if plan, err := ctl.Reconcile(store.View(), statetest.Now(), "disk"); err != nil || len(plan.Commands) != 64 {
			b.Fatal(plan, err)
		}
	}
}
