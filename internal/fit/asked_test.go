package fit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
)

// asked renders what the attempts of a create ask for.
func asked(r api.CreateRequest, attempts int) []string {
	zones := func(all []api.Topology) string {
		var s strings.Builder
		for _, t := range all {
			s.WriteString(t["zone"])
		}
		return s.String()
	}
	var all []string
	for r.Search = range attempts {
		a := fit.Asked(&r)
		text := fmt.Sprintf("%d anywhere", a.CapacityMin)
		if t := a.TopologyRequest; t != nil {
			text = fmt.Sprintf("%d in %s, first %s", a.CapacityMin, zones(t.Required), zones(t.Preferred))
		}
		all = append(all, text)
	}
	return all
}

func TestAskedAsEarlierAttemptsDid(t *testing.T) {
	t.Parallel()
	zones := func(names string) (all []api.Topology) {
		for _, z := range names {
			all = append(all, api.Topology{"zone": string(z)})
		}
		return all
	}
	first := &api.TopologyRequest{Required: zones("ab")}
	for name, tc := range map[string]struct {
		request api.CreateRequest
		want    []string
	}{
		"Nowhere": {api.CreateRequest{CapacityMin: 7}, []string{"7 anywhere", "7 anywhere"}},
		"OnePlace": {
			api.CreateRequest{CapacityMin: 7, TopologyRequest: &api.TopologyRequest{Required: zones("a")}},
			[]string{"7 in a, first ", "7 anywhere", "7 in a, first "},
		},
		"AnotherPlaceThanFirst": {
			api.CreateRequest{CapacityMin: 7, First: first, TopologyRequest: fit.Elsewhere(first)},
			[]string{"7 in ab, first ba", "7 in ab, first ", "7 in ab, first ba", "7 in ab, first ab", "7 anywhere", "7 in ab, first ba"},
		},
		"ToBeDeleted": {
			api.CreateRequest{CapacityMin: 7, Loose: true, TopologyRequest: &api.TopologyRequest{Required: zones("a")}},
			[]string{"7 in a, first ", "0 anywhere", "7 anywhere", "0 anywhere", "7 in a, first "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, asked(tc.request, len(tc.want))); diff != "" {
				t.Errorf("asked for (-want +got):\n%s", diff)
			}
		})
	}
}

func TestVolumeOfUnknownSizeThatWasFoundIsNotAsAskedFor(t *testing.T) {
	t.Parallel()
	r := api.CreateRequest{CapacityMin: 7, Search: 1, Loose: true}
	if wrong := fit.Mismatch(&r, &api.OperationResult{ExternalID: "v"}); !strings.Contains(wrong, "does not say how many bytes") {
		t.Errorf("Mismatch: %q", wrong)
	}
}

func TestBears(t *testing.T) {
	t.Parallel()
	const name = "berth-0123"
	for _, v := range []api.ExternalVolume{{ExternalID: "pool/" + name}, {ExternalID: "7", Context: map[string]string{"pv": name}}} {
		if !fit.Bears(&v, name) {
			t.Errorf("%+v does not bear the name", v)
		}
	}
	for _, v := range []api.ExternalVolume{{ExternalID: "berth-01"}, {Context: map[string]string{name: ""}}, {}} {
		if fit.Bears(&v, name) || fit.Bears(&v, "") {
			t.Errorf("%+v bears the name", v)
		}
	}
}
