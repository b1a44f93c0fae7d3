package state_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// watched has several of everything. What is watched for a row that is
// missing, or moves because its last neighbour went, belongs to others too:
// such a watch fires for nothing, which costs one look.
const watched = `
node {"id":"n1"}
node {"id":"n2"}
volume {"id":"a"}
volume {"id":"b"}
volume {"namespace":"other","id":"a"}
attachment {"alloc_id":"x","volume_id":"a","node_id":"n1"}
attachment {"alloc_id":"y","volume_id":"a","node_id":"n2"}
attachment {"alloc_id":"z","volume_id":"b","node_id":"n1"}
attachment {"alloc_id":"w","volume_id":"c","node_id":"n1"}
job {"id":"j"}
`

func TestWatchFires(t *testing.T) {
	t.Parallel()
	volume := func(v state.View) { v.Volume("default", "a") }
	namespace := func(v state.View) { drain(v.Volumes("default")) }
	holders := func(v state.View) { drain(v.Holders("default", "a")) }
	assignments := func(v state.View) { v.AssignmentVersion("n1") }
	for name, c := range map[string]struct {
		read  func(state.View)
		write func(*state.Tx)
		fires bool
	}{
		"row changed":               {volume, resize("default", "a"), true},
		"row removed":               {volume, func(tx *state.Tx) { tx.DeleteVolume(tx.Volume("default", "a")) }, true},
		"other row changed":         {volume, resize("default", "b"), false},
		"row of the same id":        {volume, resize("other", "a"), false},
		"missing row appears":       {func(v state.View) { v.Volume("default", "c") }, newVolume("default", "c"), true},
		"row in prefix changed":     {namespace, resize("default", "b"), true},
		"row appears in prefix":     {namespace, newVolume("default", "c"), true},
		"row leaves prefix":         {namespace, func(tx *state.Tx) { tx.DeleteVolume(tx.Volume("default", "b")) }, true},
		"other prefix":              {namespace, newVolume("other", "c"), false},
		"empty prefix fills":        {func(v state.View) { drain(v.Volumes("third")) }, newVolume("third", "c"), true},
		"row changed in index":      {holders, advance("x", api.NodePublished), true},
		"row leaves index":          {holders, advance("x", api.Freed), true},
		"row of other key in index": {holders, advance("z", api.Freed), false},
		"row leaves narrow index": {
			func(v state.View) { drain(v.UnsettledAttachments()) }, advance("y", api.NodePublished), true,
		},
		"row stays out of narrow index": {
			func(v state.View) { drain(v.UnsettledJobs()) }, resize("default", "a"), false,
		},
		"own assignments changed":      {assignments, func(tx *state.Tx) { tx.Touch("n1") }, true},
		"others' assignments changed":  {assignments, func(tx *state.Tx) { tx.Touch("n2") }, false},
		"new node's assignments":       {assignments, func(tx *state.Tx) { tx.Touch("n3") }, false},
		"log goes on":                  {namespace, func(tx *state.Tx) { tx.PutLog(state.Log{Clock: tx.Now()}) }, false},
		"index of a table":             {func(v state.View) { v.VolumesIndex() }, resize("default", "a"), true},
		"index of another table":       {func(v state.View) { v.JobsIndex() }, resize("default", "a"), false},
		"read quietly":                 {func(v state.View) { volume(v.Quiet()) }, resize("default", "a"), false},
		"more rows than are few":       {readMany, resize("default", "many-99"), true},
		"none of more rows than a few": {readMany, resize("default", "a"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := statetest.Load(t, watched)
				commit(store, 2, newMany)
				w := state.NewWatch()
				c.read(store.View().Watching(w))
				fired := waits(t, w)
				commit(store, 3, c.write)
				if got := fired(); got != c.fires {
					t.Errorf("fired = %v, want %v", got, c.fires)
				}
			})
		})
	}
}

func TestWatchDoesNotFireForWhatIsNotCommitted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := statetest.Load(t, watched)
		w := state.NewWatch()
		store.View().Watching(w).Volume("default", "a")
		fired := waits(t, w)
		tx := store.Begin(2, statetest.Now())
		resize("default", "a")(tx)
		if fired() {
			t.Error("fired before the commit")
		}
		tx.Abort()
		resize("default", "a")(store.Fork())
		if fired() {
			t.Error("fired for an aborted write, or one in a fork")
		}
	})
}

func TestWatchFiresWhenTheStateIsRestored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := statetest.Load(t, watched)
		w := state.NewWatch()
		store.View().Watching(w)
		fired := waits(t, w)
		store.Restore(statetest.Load(t, `volume {"id":"old"}`))
		if !fired() {
			t.Error("who read the state before it was restored was not told")
		}
		w = state.NewWatch()
		store.View().Watching(w).Volume("default", "old")
		fired = waits(t, w)
		commit(store, 9, resize("default", "old"))
		if !fired() {
			t.Error("a watch on the restored state does not fire")
		}
	})
}

func TestWatchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := state.NewWatch()
	statetest.Load(t, watched).View().Watching(w).Volume("default", "a")
	if err := w.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait = %v, want the context's error", err)
	}
}

// waits waits for w in the background; the answer reports whether it fired.
func waits(t *testing.T, w *state.Watch) func() bool {
	t.Helper()
	fired := false
	go func() { fired = w.Wait(t.Context()) == nil }()
	return func() bool {
		synctest.Wait()
		return fired
	}
}

func commit(store *state.Store, index uint64, write func(*state.Tx)) {
	tx := store.Begin(index, statetest.Now())
	write(tx)
	tx.Commit()
}

func newVolume(ns api.NamespaceID, id api.VolumeID) func(*state.Tx) {
	return func(tx *state.Tx) { tx.PutVolume(&api.Volume{Namespace: ns, ID: id}) }
}

func resize(ns api.NamespaceID, id api.VolumeID) func(*state.Tx) {
	return func(tx *state.Tx) {
		next := *tx.Volume(ns, id)
		next.Status.Capacity++
		tx.PutVolume(&next)
	}
}

func advance(alloc api.AllocID, to api.AttachmentState) func(*state.Tx) {
	return func(tx *state.Tx) {
		next := *tx.Attachment(alloc, "data")
		next.Status.State = to
		tx.PutAttachment(&next)
	}
}

func many(i int) api.VolumeID { return api.VolumeID(fmt.Sprintf("many-%02d", i)) }

func newMany(tx *state.Tx) {
	for i := range 100 {
		newVolume("default", many(i))(tx)
	}
}

func readMany(v state.View) {
	for i := range 100 {
		v.Volume("default", many(i))
	}
}

// drain reads all of a query.
func drain[T any](rows func(func(T) bool)) {
	for range rows {
		continue
	}
}
