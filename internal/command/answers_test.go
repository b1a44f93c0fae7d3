package command_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// subjects is a world with an assigned operation of a kind, and all that it
// may be about.
func subjects(kind api.OperationKind, status string) (world string, id api.OperationID) {
	node, snapshot, named := "", "", "pg"
	switch kind.Subject() {
	case api.SubjectPublication:
		node = "n1"
	case api.SubjectSnapshot:
		snapshot, named = "snap", "snap"
	case api.SubjectVolume:
	}
	id = api.NewOperationID(api.OperationName(kind, "default", api.VolumeID(named), api.NodeID(node)), 1)
	of := map[api.OperationSubject]string{kind.Subject(): fmt.Sprintf(`,"operation":%q`, id)}
	volume := fmt.Sprintf(`volume {"id":"pg","status":{"state":"ready"%s}}`, of[api.SubjectVolume])
	switch kind { //nolint:exhaustive // the rest is of a volume that is ready
	case api.OperationCreate:
		volume = fmt.Sprintf(`volume {"id":"pg","status":{"operation":%q}}`, id)
	case api.OperationDelete:
		volume = fmt.Sprintf(`volume {"id":"pg","desired":"absent","status":{"external_id":"ext-pg","operation":%q}}`, id)
	}
	return `node {"id":"n1","status":{"state":"ready"}}
identity {"node_id":"n1"}
` + volume + "\n" + fmt.Sprintf(`snapshot {"id":"snap","volume_id":"pg","status":{"state":"creating"%s}}
publication {"volume_id":"pg","node_id":"n1","status":{"outcome":"uncertain"%s}}
operation {"kind":%q,"volume_id":"pg","snapshot_id":%q,"node_id":%q,"status":{"state":"assigned","attempt":1,"executor":"n1","assigned":"now-1m","deadline":"now+1m"%s}}
`, of[api.SubjectSnapshot], of[api.SubjectPublication], kind, snapshot, node, status), id
}

// TestEveryAnswerToEveryCall applies each code to each kind of call: the
// operation ends, or goes on, as the table says (anchors 1.8 and 2.8).
func TestEveryAnswerToEveryCall(t *testing.T) {
	t.Parallel()
	for _, kind := range api.OperationKinds() {
		for _, code := range fit.Codes() {
			t.Run(fmt.Sprintf("%s/%s", kind, code), func(t *testing.T) {
				t.Parallel()
				a := fit.Read(kind, code)
				want := api.OperationFailed
				switch {
				case a.Done:
					want = api.OperationSucceeded
				case a.Retry:
					want = api.OperationWaiting
				}
				got := answer(t, kind, "", code)
				if got.State != want || got.Uncertain != !a.Certain || got.Code != code {
					t.Errorf("%s, uncertain %v, %s; want %s, uncertain %v", got.State, got.Uncertain, got.Code, want, !a.Certain)
				}
				if backsOff := got.Next.After(statetest.Now()); backsOff != (want == api.OperationWaiting) {
					t.Errorf("its next attempt is at %s", got.Next)
				}
				again := answer(t, kind, `,"uncertain":true`, code)
				if fit.Makes(kind) && again.State == api.OperationFailed {
					t.Errorf("refused after an attempt that may have made something, and given up: that would be lost")
				}
				if !a.Done && !again.Uncertain {
					t.Error("it is forgotten that an earlier attempt may have had its effect")
				}
			})
		}
	}
}

// answer is what became of an operation whose attempt was answered so.
func answer(t *testing.T, kind api.OperationKind, status, code string) api.OperationStatus {
	t.Helper()
	world, id := subjects(kind, status)
	store := statetest.Load(t, world)
	report(t, store, 1, statetest.Now(), api.OperationFact{ID: id, Attempt: 1, Code: code, Message: "because", Result: api.OperationResult{
		Snapshot: &api.SnapshotResult{ExternalID: "ext-snap", Ready: true},
	}})
	op := store.View().Operation(id)
	if op == nil {
		t.Fatalf("operation %s is gone", id)
	}
	return op.Status
}

func report(t *testing.T, store *state.Store, sequence uint64, now time.Time, f api.OperationFact) {
	t.Helper()
	id := store.View().Identity("n1")
	c := &command.ReportFacts{Report: api.Report{
		NodeID: "n1", Session: id.Session, Epoch: id.Epoch, Sequence: sequence, Facts: api.Facts{Operations: []api.OperationFact{f}},
	}}
	apply(t, store, now, c)
}

func apply(t *testing.T, store *state.Store, now time.Time, c command.Command) {
	t.Helper()
	tx := store.Begin(store.View().Index()+1, now)
	defer tx.Abort()
	if err := c.Apply(tx); err != nil {
		t.Fatal(err)
	}
	tx.Commit()
}

// TestNothingIsHammered: anchors 2.6, where a detach was tried each 5 ms, and
// 2.7. What fails for a day is tried some three hundred times, and never twice
// within a second, whatever it is answered; and a detach elsewhere that lets it
// be tried at once does not begin the count anew.
func TestNothingIsHammered(t *testing.T) {
	t.Parallel()
	world, id := subjects(api.OperationUnpublish, "")
	store := statetest.Load(t, world)
	now, end := statetest.Now(), statetest.Now().Add(24*time.Hour)
	last, tries := now, 0
	codes := []string{"INTERNAL", "FAILED_PRECONDITION", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED"}
	for now.Before(end) {
		op := store.View().Operation(id)
		if op.Status.State == api.OperationWaiting {
			now = op.Status.Next
			if tries > 0 && now.Sub(last) < time.Second {
				t.Fatalf("try %d comes %s after the one before", tries, now.Sub(last))
			}
			apply(t, store, now, &command.AssignOperation{ID: id, Version: op.Version, Executor: "n1", Limit: api.Duration(time.Minute)})
			op = store.View().Operation(id)
		}
		last = now
		report(t, store, uint64(tries)+1, now, api.OperationFact{ID: id, Attempt: op.Status.Attempt, Code: codes[tries%len(codes)]})
		tries++
	}
	if tries < 200 || tries > 350 {
		t.Errorf("%d tries in a day", tries)
	}
}
