package command_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

func entryID(sequence uint64) state.EntryID {
	return state.EntryID{Leadership: "leader", Sequence: sequence}
}

func stop(id api.JobID) command.Plan {
	return command.Plan{&command.StopJob{Namespace: "default", ID: id}}
}

const twoJobs = `
job {"id":"db"}
job {"id":"web"}
`

func TestEntryTakesEffectAsOneCommit(t *testing.T) {
	t.Parallel()
	store := statetest.Load(t, twoJobs)
	before := store.View()
	e := &command.Entry{ID: entryID(1), Time: statetest.Now(), Plans: []command.Plan{stop("db"), stop("web")}}
	if err := e.Apply(store, 7); err != nil {
		t.Fatal(err)
	}
	const want = `+ log {"last":{"leadership":"leader","sequence":1}}
- job {"id":"db"}
- job {"id":"web"}
+ job {"version":2,"id":"db","desired":"absent","status":{"waiting":"now"}}
+ job {"version":2,"id":"web","desired":"absent","status":{"waiting":"now"}}
`
	if diff := cmp.Diff(want, statetest.Diff(t, before, store.View())); diff != "" {
		t.Errorf("effect differs (-want +got):\n%s", diff)
	}
	if got := store.View().Index(); got != 7 {
		t.Errorf("index = %d, want the log's", got)
	}
	if got := store.View().Job("default", "db").ModifyIndex; got != 7 {
		t.Errorf("modify index of the row = %d, want the log's", got)
	}
}

func TestEntryWithAPlanThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	store := statetest.Load(t, twoJobs)
	before := store.View()
	e := &command.Entry{ID: entryID(1), Time: statetest.Now(), Plans: []command.Plan{stop("db"), stop("gone")}}
	if err := e.Apply(store, 7); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("Apply = %v, want the error of the second plan", err)
	}
	if diff := statetest.Diff(t, before, store.View()); diff != "" {
		t.Errorf("it has changed something:\n%s", diff)
	}
}

func TestEntriesThatRestOnAFailedOneAreVoid(t *testing.T) {
	t.Parallel()
	store := statetest.Load(t, twoJobs)
	apply := func(sequence, after uint64, p command.Plan) error {
		e := &command.Entry{ID: entryID(sequence), Time: statetest.Now(), Plans: []command.Plan{p}}
		if after > 0 {
			e.After = entryID(after)
		}
		return e.Apply(store, 10+sequence)
	}
	if err := apply(1, 0, command.Plan{}); err != nil {
		t.Fatalf("first entry: %v", err)
	}
	if err := apply(2, 1, stop("gone")); err == nil {
		t.Fatal("the entry that was to fail did not")
	}
	for _, e := range []struct{ sequence, after uint64 }{{3, 2}, {4, 3}, {5, 0}, {6, 9}} {
		if err := apply(e.sequence, e.after, stop("db")); !errors.Is(err, command.ErrVoid) {
			t.Errorf("entry %d after %d: error = %v, want ErrVoid", e.sequence, e.after, err)
		}
	}
	if got := store.View().Job("default", "db").Desired; got != api.Present {
		t.Errorf("a void entry stopped the job")
	}
	if err := apply(7, 1, stop("db")); err != nil {
		t.Errorf("the next entry on what was applied last: %v", err)
	}
}

func TestCommandTimeNeverRunsBackwards(t *testing.T) {
	t.Parallel()
	store := statetest.Load(t, twoJobs)
	first := &command.Entry{ID: entryID(1), Time: statetest.Now(), Plans: []command.Plan{stop("db")}}
	if err := first.Apply(store, 2); err != nil {
		t.Fatal(err)
	}
	second := &command.Entry{ID: entryID(2), After: entryID(1), Time: statetest.Now().Add(-time.Hour), Plans: []command.Plan{stop("web")}}
	if err := second.Apply(store, 3); err != nil {
		t.Fatal(err)
	}
	if got := store.View().Log().Clock; !got.Equal(statetest.Now()) {
		t.Errorf("the clock went to %s, want it to stay", got)
	}
	if got := store.View().Job("default", "web").ModifyTime; got.Before(statetest.Now()) {
		t.Errorf("a row was written at %s, before the one that was written before it", got)
	}
}
