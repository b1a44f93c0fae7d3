package cli_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
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
