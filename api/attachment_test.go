package api_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
)

// TestAttachmentStatesAreInOrder: the order is part of the log's meaning.
func TestAttachmentStatesAreInOrder(t *testing.T) {
	t.Parallel()
	want := []api.AttachmentState{
		"claimed", "controller-published", "node-published", "unpublishing", "node-detached", "controller-detached", "freed",
	}
	states := api.AttachmentStates()
	if diff := cmp.Diff(want, states); diff != "" {
		t.Fatalf("states (-want +got):\n%s", diff)
	}
	for i, s := range states {
		if s.Rank() != i {
			t.Errorf("%s.Rank() = %d, want %d", s, s.Rank(), i)
		}
		for j, other := range states {
			if got := s.Before(other); got != (i < j) {
				t.Errorf("%s.Before(%s) = %v", s, other, got)
			}
		}
	}
	if none := api.AttachmentState("gone"); none.Rank() != -1 || !none.Before(api.Claimed) {
		t.Errorf("%q has rank %d, want one before all", none, none.Rank())
	}
}

func TestAttachmentHoldsAndWants(t *testing.T) {
	t.Parallel()
	for i, s := range api.AttachmentStates() {
		a := api.Attachment{Status: api.AttachmentStatus{State: s}}
		if got, want := a.Holds(), s != api.Freed; got != want {
			t.Errorf("%s: Holds = %v, want %v", s, got, want)
		}
		if got, want := a.Wanted(), i < 3; got != want {
			t.Errorf("%s: Wanted = %v, want %v", s, got, want)
		}
	}
}

func TestAttachmentWrites(t *testing.T) {
	t.Parallel()
	readers := map[api.AccessMode]bool{api.SingleNodeReaderOnly: true, api.MultiNodeReaderOnly: true}
	for _, mode := range api.AccessModes() {
		a := api.Attachment{AccessMode: mode}
		if got := a.Writes(); got == readers[mode] {
			t.Errorf("%s: Writes = %v", mode, got)
		}
		a.ReadOnly = true
		if a.Writes() {
			t.Errorf("%s, read only: Writes = true", mode)
		}
	}
}

func TestPublicationMayBeAttached(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[api.Outcome]bool{
		api.OutcomeNone: false, api.OutcomeUncertain: true, api.OutcomePublished: true, api.OutcomeDetached: false,
	} {
		p := api.Publication{Status: api.PublicationStatus{Outcome: outcome}}
		if got := p.MayBeAttached(); got != want {
			t.Errorf("%s: MayBeAttached = %v, want %v", outcome, got, want)
		}
	}
}
