package cli_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/cli"
)

const drainedNode = "n1-9f31c2aa"

// TestDrainOfAnEmptyNode: it may be over before the servers answer.
func TestDrainOfAnEmptyNode(t *testing.T) {
	t.Parallel()
	before := &api.Node{ID: drainedNode, Name: "n1"}
	after := &api.Node{ID: drainedNode, Name: "n1", Spec: api.NodeSpec{Ineligible: true}}
	after.Status.Drained = &api.Drained{Started: time.Unix(1000, 0), Ended: time.Unix(1001, 0), Complete: true}
	want := result{stdout: "node n1-9f31c2aa is drained; it gets nothing new until 'berth node eligibility --enable n1-9f31c2aa'\n"}
	for _, flag := range []string{"--timeout=1m", "--detach"} {
		f := newFake(t, map[string]any{
			"GET /v1/node/" + drainedNode:             inTurn{api.NodeInfo{Node: before}, api.NodeInfo{Node: after}},
			"POST /v1/node/" + drainedNode + "/drain": api.NodeInfo{Node: after},
		})
		if diff := cmp.Diff(want, run(t, f.URL, "node", "drain", drainedNode, flag), cmp.AllowUnexported(result{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", flag, diff)
		}
	}
}

// TestDrainOfADrainingNode: without flags the drain is watched, and nothing of it
// changes. (That said something else than it did: --ignore-system was undone.)
func TestDrainOfADrainingNode(t *testing.T) {
	t.Parallel()
	goesOn := &api.Node{ID: drainedNode, Name: "n1", Spec: api.NodeSpec{Ineligible: true, Drain: &api.Drain{Started: time.Unix(1000, 0), IgnoreSystem: true}}}
	over := &api.Node{ID: drainedNode, Name: "n1", Spec: api.NodeSpec{Ineligible: true}}
	over.Status.Drained = &api.Drained{Started: time.Unix(1000, 0), Ended: time.Unix(1001, 0), Complete: true}
	for flag, want := range map[string][]string{
		"":                {},
		"--deadline=2h":   {`{"deadline":"2h0m0s","by":"ada"}`},
		"--ignore-system": {`{"ignore_system":true,"by":"ada"}`},
		"--reason=disks":  {`{"by":"ada","reason":"disks"}`},
	} {
		f := newFake(t, map[string]any{
			"GET /v1/node/" + drainedNode:             inTurn{api.NodeInfo{Node: goesOn}, api.NodeInfo{Node: over}},
			"POST /v1/node/" + drainedNode + "/drain": api.NodeInfo{Node: goesOn},
		})
		args := []string{"node", "drain", drainedNode}
		if flag != "" {
			args = append(args, flag)
		}
		env := cli.Env{Getenv: variables(map[string]string{"BERTH_ADDRESS": f.URL, "NO_COLOR": "1", "USER": "ada"})}
		if got := runWith(t, env, f.URL, args...); got.status != 0 {
			t.Errorf("%s: %+v", flag, got)
		}
		if got := f.bodies(); !slices.Equal(got, want) {
			t.Errorf("%s: sent %q, want %q", flag, got, want)
		}
	}
}

// TestDetachOfAStrayNode: of what only the provider has attached either name of
// the node is known, and they are one.
func TestDetachOfAStrayNode(t *testing.T) {
	t.Parallel()
	stray := &api.Finding{Observation: api.Observation{Kind: api.FindingAttached, ExternalNodeID: "db-1/i-0abc", NodeID: "db-1"}}
	vol := volumeIn(api.VolumeReady, "")
	vol.Findings = []*api.Finding{stray}
	for _, name := range []string{"db-1", "db-1/i-0abc", "db"} {
		f := newFake(t, map[string]any{"GET /v1/volume/default/pg": vol, "POST /v1/volume/default/pg/detach": api.Detach{}})
		want := result{stdout: "volume default/pg is to be detached\n"}
		if diff := cmp.Diff(want, run(t, f.URL, "volume", "detach", "pg", name, "--no-wait", "--by", "ada"), cmp.AllowUnexported(result{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got, want := f.bodies(), []string{`{"node_id":"db-1","by":"ada"}`}; !slices.Equal(got, want) {
			t.Errorf("%s: sent %q, want %q", name, got, want)
		}
	}
}

// TestDetachOfAStrayNodeTwice: it is known by the same name while it is on its way
// off, and is waited for.
func TestDetachOfAStrayNodeTwice(t *testing.T) {
	t.Parallel()
	left := &api.Publication{NodeID: "attached-0a1b", Status: api.PublicationStatus{Left: true, ExternalNodeID: "rack/7", Outcome: api.OutcomeUncertain}}
	vol, gone := volumeIn(api.VolumeReady, ""), volumeIn(api.VolumeReady, "")
	vol.Publications = []*api.Publication{left}
	f := newFake(t, map[string]any{
		"GET /v1/volume/default/pg":         inTurn{vol, vol, gone},
		"POST /v1/volume/default/pg/detach": api.Detach{Publications: []*api.Publication{left}},
	})
	want := result{stdout: "volume default/pg is being detached\nvolume default/pg is detached\n"}
	if diff := cmp.Diff(want, run(t, f.URL, "volume", "detach", "pg", "rack/7", "--by", "ada"), cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, want := f.bodies(), []string{`{"node_id":"attached-0a1b","by":"ada"}`}; !slices.Equal(got, want) {
		t.Errorf("sent %q, want %q", got, want)
	}
}
