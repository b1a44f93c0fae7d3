package state_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

func TestViewsKeepTheirMoment(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		store, err := state.New()
		if err != nil {
			t.Fatal(err)
		}
		var views []state.View
		var texts []string
		for index := range uint64(12) {
			views, texts = append(views, store.View()), append(texts, volumes(store.View()))
			tx := store.Begin(index+1, statetest.Now().Add(time.Duration(index)))
			for range rapid.IntRange(1, 4).Draw(t, "writes") {
				writeSomething(t, tx)
			}
			tx.Commit()
		}
		for i, v := range views {
			if diff := cmp.Diff(texts[i], volumes(v)); diff != "" {
				t.Fatalf("the view before commit %d has changed:\n%s", i+1, diff)
			}
		}
	})
}

// writeSomething changes, makes or removes a volume, as commands do: read,
// copy, change, put.
func writeSomething(t *rapid.T, tx *state.Tx) {
	ns, id := pick[api.NamespaceID](t, "namespace"), pick[api.VolumeID](t, "id")
	old := tx.Volume(ns, id)
	switch {
	case old == nil:
		tx.PutVolume(&api.Volume{Namespace: ns, ID: id})
	case rapid.Bool().Draw(t, "delete"):
		tx.DeleteVolume(old)
	default:
		next := *old
		next.Status.Capacity++
		tx.PutVolume(&next)
	}
}

// volumes are all that writeSomething writes, as text.
func volumes(v state.View) string { return asJSON(slices.Collect(v.Volumes(""))) }

// text is a view as it is saved.
func text(t fataler, v state.View) string {
	t.Helper()
	s, err := statetest.Text(v)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const twoVolumes = `
volume {"id":"a"}
volume {"id":"b"}
node {"id":"n1"}
node {"id":"n2"}
`

func TestForksAreIndependent(t *testing.T) {
	t.Parallel()
	store := statetest.Load(t, twoVolumes)
	committed := text(t, store.View())
	first, second := store.Fork(), store.Fork()
	first.At(statetest.Now())
	first.DeleteVolume(first.Volume("default", "a"))
	first.PutVolume(&api.Volume{Namespace: "default", ID: "c"})
	if first.Volume("default", "a") != nil || first.Volume("default", "c") == nil {
		t.Error("the fork does not see its own writes")
	}
	if got := first.Volume("default", "c").CreateTime; !got.Equal(statetest.Now()) {
		t.Errorf("a row of the fork was created at %s, want the time that was set", got)
	}
	if diff := cmp.Diff(committed, text(t, second.View)); diff != "" {
		t.Errorf("another fork sees the write:\n%s", diff)
	}
	if diff := cmp.Diff(committed, text(t, store.View())); diff != "" {
		t.Errorf("the store sees the write:\n%s", diff)
	}
	tx := store.Begin(2, statetest.Now())
	tx.DeleteVolume(tx.Volume("default", "b"))
	tx.Commit()
	if first.Volume("default", "b") == nil {
		t.Error("the fork sees what was committed after it was made")
	}
}

func TestAbortForgetsTheWrites(t *testing.T) {
	t.Parallel()
	store := statetest.Load(t, twoVolumes)
	before := text(t, store.View())
	tx := store.Begin(2, statetest.Now())
	tx.DeleteVolume(tx.Volume("default", "a"))
	tx.Touch("n1")
	tx.Abort()
	if diff := cmp.Diff(before, text(t, store.View())); diff != "" {
		t.Errorf("an aborted transaction left something:\n%s", diff)
	}
	tx = store.Begin(3, statetest.Now())
	tx.DeleteVolume(tx.Volume("default", "a"))
	tx.Commit()
	tx.Abort()
	if store.View().Volume("default", "a") != nil {
		t.Error("abort after commit undid the commit")
	}
}

func TestCommitNotesTheIndexOfEveryTableThatWasWritten(t *testing.T) {
	t.Parallel()
	store := statetest.Load(t, twoVolumes)
	tx := store.Begin(7, statetest.Now())
	tx.DeleteVolume(tx.Volume("default", "a"))
	tx.Commit()
	v := store.View()
	got := []uint64{v.Index(), v.VolumesIndex(), v.NodesIndex(), v.JobsIndex()}
	if diff := cmp.Diff([]uint64{7, 7, 1, 0}, got); diff != "" {
		t.Errorf("index of the whole, of volumes, nodes and jobs (-want +got):\n%s", diff)
	}
	store.Begin(8, statetest.Now()).Commit()
	if store.View().Index() != 7 {
		t.Errorf("a commit without a write is at index %d, want the last write's 7", store.View().Index())
	}
}

func TestEveryTableHasAnIndexOfItsOwn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		put  func(*state.Tx)
		read func(state.View) uint64
	}{
		"allocations":  {func(tx *state.Tx) { tx.PutAllocation(&api.Allocation{ID: "a"}) }, state.View.AllocationsIndex},
		"attachments":  {func(tx *state.Tx) { tx.PutAttachment(&api.Attachment{AllocID: "a"}) }, state.View.AttachmentsIndex},
		"rooms":        {func(tx *state.Tx) { tx.PutRoom(&api.Room{PluginID: "p", ID: "r"}) }, state.View.RoomsIndex},
		"variables":    {func(tx *state.Tx) { tx.PutVariable(&api.Variable{Path: "a"}) }, state.View.VariablesIndex},
		"findings":     {func(tx *state.Tx) { tx.PutFinding(&api.Finding{ID: "leak-1"}) }, state.View.FindingsIndex},
		"instances":    {func(tx *state.Tx) { tx.PutInstance(&api.Instance{NodeID: "n1"}) }, state.View.InstancesIndex},
		"jobs":         {func(tx *state.Tx) { tx.PutJob(&api.Job{ID: "j"}) }, state.View.JobsIndex},
		"nodes":        {func(tx *state.Tx) { tx.PutNode(&api.Node{ID: "n9"}) }, state.View.NodesIndex},
		"operations":   {func(tx *state.Tx) { tx.PutOperation(&api.Operation{ID: "o"}) }, state.View.OperationsIndex},
		"publications": {func(tx *state.Tx) { tx.PutPublication(&api.Publication{NodeID: "n1"}) }, state.View.PublicationsIndex},
		"volumes":      {func(tx *state.Tx) { tx.PutVolume(&api.Volume{ID: "v"}) }, state.View.VolumesIndex},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := statetest.Load(t, "")
			tx := store.Begin(9, statetest.Now())
			c.put(tx)
			tx.Commit()
			if got := c.read(store.View()); got != 9 {
				t.Errorf("index of %s = %d, want 9", name, got)
			}
		})
	}
}

func TestTouchRaisesAnAssignmentVersionOnceACommit(t *testing.T) {
	t.Parallel()
	store := statetest.Load(t, twoVolumes)
	tx := store.Begin(5, statetest.Now())
	tx.Touch("n1")
	tx.Touch("n1")
	tx.Commit()
	v := store.View()
	if diff := cmp.Diff(&state.AssignmentVersion{NodeID: "n1", Index: 5, Count: 2}, v.AssignmentVersion("n1")); diff != "" {
		t.Errorf("n1's differs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&state.AssignmentVersion{NodeID: "n2", Index: 1, Count: 1}, v.AssignmentVersion("n2")); diff != "" {
		t.Errorf("n2's differs (-want +got):\n%s", diff)
	}
}

// TestNobodyIsToldOfANodeThatWasForgotten: what was there is collected later, and
// leaves no row behind for a node that there is not.
func TestNobodyIsToldOfANodeThatWasForgotten(t *testing.T) {
	t.Parallel()
	store := statetest.Load(t, twoVolumes)
	commit(store, 5, func(tx *state.Tx) { tx.DeleteNode(tx.Node("n1")); tx.Touch("n1") })
	commit(store, 6, func(tx *state.Tx) { tx.Touch("n1"); tx.TouchOperations("n7") })
	for _, id := range []api.NodeID{"n1", "n7"} {
		if a := store.View().AssignmentVersion(id); a != nil {
			t.Errorf("there is %+v of node %s, which there is not", a, id)
		}
	}
}

func TestEveryNodeHearsOfAChangeOfTheCluster(t *testing.T) {
	t.Parallel()
	store := statetest.Load(t, twoVolumes)
	tx := store.Begin(5, statetest.Now())
	tx.PutCluster(&api.Cluster{ID: "c", Generation: api.Generation{Number: 2, Recovering: true}})
	tx.Commit()
	v := store.View()
	for n := range v.Nodes() {
		if a := v.AssignmentVersion(n.ID); a.Index != 5 {
			t.Errorf("assignment version of %s is of index %d, want 5", n.ID, a.Index)
		}
	}
	if !v.Recovering() {
		t.Error("the view does not say that the cluster recovers")
	}
}

func TestOperationSerialsAreNeverUsedTwice(t *testing.T) {
	t.Parallel()
	store, err := state.New()
	if err != nil {
		t.Fatal(err)
	}
	var got []api.OperationID
	for index := range uint64(3) {
		tx := store.Begin(index+1, statetest.Now())
		got = append(got, tx.NextOperationID("create/default/pg"), tx.NextOperationID("delete/default/pg"))
		if index == 1 {
			tx.Abort()
			got = got[:len(got)-2] // nobody has seen them
			continue
		}
		tx.Commit()
	}
	want := []api.OperationID{"create/default/pg@1", "delete/default/pg@2", "create/default/pg@3", "delete/default/pg@4"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names differ (-want +got):\n%s", diff)
	}
}

func TestLogRowSaysWhereTheLogStands(t *testing.T) {
	t.Parallel()
	store := statetest.Load(t, "")
	if got := store.View().Log(); got != (state.Log{}) {
		t.Errorf("the log of an empty state stands at %+v, want the zero Log", got)
	}
	want := state.Log{Last: state.EntryID{Leadership: "x", Sequence: 4}, Clock: statetest.Now()}
	tx := store.Begin(2, statetest.Now())
	tx.PutLog(want)
	tx.Commit()
	if got := store.View().Log(); got != want {
		t.Errorf("the log stands at %+v, want %+v", got, want)
	}
}

func TestTouchOperationsLeavesTheAllocationsAsTheyWere(t *testing.T) {
	t.Parallel()
	store := statetest.Load(t, `node {"id":"n1"}`)
	for _, step := range []struct {
		index, want uint64
		touch       func(tx *state.Tx)
	}{
		{5, 5, func(tx *state.Tx) { tx.Touch("n1") }},
		{6, 5, func(tx *state.Tx) { tx.TouchOperations("n1") }},
		{7, 5, func(tx *state.Tx) { tx.TouchOperations("n1") }},
		{8, 8, func(tx *state.Tx) { tx.Touch("n1"); tx.TouchOperations("n1") }},
		{9, 8, func(tx *state.Tx) { tx.TouchOperations("n1") }},
		{10, 10, func(tx *state.Tx) { tx.TouchOperations("n1"); tx.Touch("n1") }},
	} {
		commit(store, step.index, step.touch)
		got := store.View().AssignmentVersion("n1")
		if got.Index != step.index || got.AllocationsIndex() != step.want {
			t.Errorf("at %d its assignments changed at %d and its allocations at %d, want %d", step.index, got.Index, got.AllocationsIndex(), step.want)
		}
	}
}
