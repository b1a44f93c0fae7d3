package httpapi_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
)

// TestDetachOfWhatOnlyTheProviderHasAttachedIsNotDoneAtOnce: whoever waits for it
// is told what to wait for, by whichever name of the node it was asked for, also
// when it is asked for again.
func TestDetachOfWhatOnlyTheProviderHasAttachedIsNotDoneAtOnce(t *testing.T) {
	t.Parallel()
	const stray = `cluster {}
node {"id":"n1","status":{"state":"ready"}}
volume {"id":"pg","status":{"state":"ready","external_id":"ext-pg"}}
finding {"kind":"attached","plugin_id":"disk","external_id":"ext-pg","namespace":"default","volume_id":"pg","external_node_id":%q,"node_id":%q}
`
	for name, tc := range map[string]struct {
		external, node string // the node's names
		ask, want      string // the request's node, and the name that is kept
	}{
		"ANameThatNoNodeCanHave": {"rack/7", "", "rack/7", "attached-"},
		"OfNobody":               {"i-9", "", "i-9", "i-9"},
		"OfANode":                {"ext-n1", "n1", "n1", "n1"},
		"OfANodeByItsOtherName":  {"ext-n1", "n1", "ext-n1", "n1"},
		"Everywhere":             {"rack/7", "", "", "attached-"},
	} {
		f := newFake(t, fmt.Sprintf(stray, tc.external, tc.node), nil)
		f.commits = true
		for _, time := range []string{"once", "twice"} {
			got := into[api.Detach](t, f.send(http.MethodPost, "/v1/volume/default/pg/detach", fmt.Sprintf(`{"node_id":%q}`, tc.ask)))
			if len(got.Publications) != 1 {
				t.Errorf("%s %s: it is about %+v, want the attachment to %s", name, time, got, tc.external)
				continue
			}
			pub := got.Publications[0]
			if tc.want == "attached-" && len(pub.NodeID) > len(tc.want) {
				pub.NodeID = pub.NodeID[:len(tc.want)]
			}
			if diff := cmp.Diff([]string{tc.want, tc.external}, []string{string(pub.NodeID), pub.Status.ExternalNodeID}); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", name, time, diff)
			}
		}
	}
}
