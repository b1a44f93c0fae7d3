package fit_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
)

// instance builds an instance of plugin disk; what says how it differs from a
// healthy monolith with all capabilities.
func instance(node api.NodeID, what ...func(*api.Instance)) *api.Instance {
	i := &api.Instance{
		PluginID: "disk", NodeID: node,
		InstanceStatus: api.InstanceStatus{
			Type: api.InstanceMonolith, Healthy: true, Driver: "disk.example",
			PluginCapabilities:     []string{api.CapControllerService, api.CapAccessibility},
			ControllerCapabilities: []string{api.CapCreateDeleteVolume, api.CapPublishUnpublish},
		},
	}
	for _, f := range what {
		f(i)
	}
	return i
}

func nodeOnly(i *api.Instance)       { i.Type, i.ControllerCapabilities = api.InstanceNode, nil }
func controllerOnly(i *api.Instance) { i.Type = api.InstanceController }
func sick(i *api.Instance)           { i.Healthy, i.Reason = false, "socket is gone" }
func silent(i *api.Instance)         { i.InstanceStatus = api.InstanceStatus{Type: i.Type} }
func headless(i *api.Instance)       { i.PluginCapabilities, i.ControllerCapabilities = nil, nil }

func can(capabilities ...string) func(*api.Instance) {
	return func(i *api.Instance) { i.ControllerCapabilities = capabilities }
}

func in(zone string) func(*api.Instance) {
	return func(i *api.Instance) { i.Topology = api.Topology{"zone": zone} }
}

func everyNode(api.NodeID) bool { return true }

func TestPluginSaysWhatItsInstancesSay(t *testing.T) {
	t.Parallel()
	type answer struct{ Known, ControllerMissing, Creates, Attaches, HasTopology bool }
	for name, c := range map[string]struct {
		instances []*api.Instance
		want      answer
	}{
		"no instances":        {nil, answer{}},
		"monolith":            {[]*api.Instance{instance("n1")}, answer{Known: true, Creates: true, Attaches: true, HasTopology: true}},
		"never heard of":      {[]*api.Instance{instance("n1", silent)}, answer{}},
		"nodes only so far":   {[]*api.Instance{instance("n1", nodeOnly)}, answer{Known: true, ControllerMissing: true, HasTopology: true}},
		"without controller":  {[]*api.Instance{instance("n1", nodeOnly, headless)}, answer{Known: true}},
		"split":               {[]*api.Instance{instance("n1", controllerOnly), instance("n2", nodeOnly)}, answer{Known: true, Creates: true, Attaches: true, HasTopology: true}},
		"controller is sick":  {[]*api.Instance{instance("n1", sick)}, answer{Known: true, Creates: true, Attaches: true, HasTopology: true}},
		"healthy one counts":  {[]*api.Instance{instance("n1", sick, can()), instance("n2")}, answer{Known: true, Creates: true, Attaches: true, HasTopology: true}},
		"cannot attach":       {[]*api.Instance{instance("n1", can(api.CapCreateDeleteVolume))}, answer{Known: true, Creates: true, HasTopology: true}},
		"node says too much":  {[]*api.Instance{instance("n1", func(i *api.Instance) { i.Type = api.InstanceNode })}, answer{Known: true, ControllerMissing: true, HasTopology: true}},
		"service is not told": {[]*api.Instance{instance("n1", func(i *api.Instance) { i.PluginCapabilities = nil })}, answer{Known: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fit.NewPlugin("disk", c.instances)
			got := answer{p.Known(), p.ControllerMissing(), p.Can(api.CapCreateDeleteVolume), p.Attaches(), p.HasTopology()}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("answers differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExecutors(t *testing.T) {
	t.Parallel()
	a, b := []api.Topology{{"zone": "a"}}, []api.Topology{{"zone": "b"}}
	three := []*api.Instance{instance("n1", in("a")), instance("n2", in("b")), instance("n3", in("b"), controllerOnly)}
	for name, c := range map[string]struct {
		instances []*api.Instance
		near      []api.Topology
		prefer    api.NodeID
		down      api.NodeID
		want      []api.NodeID // one of these
		reason    string
	}{
		"no instances":                    {nil, nil, "", "", nil, "no node runs plugin disk"},
		"no controller instance":          {[]*api.Instance{instance("n1", nodeOnly)}, nil, "", "", nil, "plugin disk has no controller instance"},
		"controller is sick":              {[]*api.Instance{instance("n1", sick)}, nil, "", "", nil, "no controller instance of plugin disk is healthy: on node n1, socket is gone"},
		"its node is down":                {[]*api.Instance{instance("n1")}, nil, "", "n1", nil, "no node with a controller instance of plugin disk is ready"},
		"any":                             {three, nil, "", "", []api.NodeID{"n1", "n2", "n3"}, ""},
		"the node itself":                 {three, a, "n2", "", []api.NodeID{"n2"}, ""},
		"near the volume":                 {three, b, "", "", []api.NodeID{"n2"}, ""},
		"the node itself is down":         {three, a, "n2", "n2", []api.NodeID{"n1"}, ""},
		"none is near":                    {three, []api.Topology{{"zone": "c"}}, "", "", []api.NodeID{"n1", "n2", "n3"}, ""},
		"a node that has no controller":   {append(three, instance("n4", nodeOnly)), nil, "n4", "", []api.NodeID{"n1", "n2", "n3"}, ""},
		"the healthy one of two":          {[]*api.Instance{instance("n1", sick), instance("n2")}, nil, "n1", "", []api.NodeID{"n2"}, ""},
		"a volume that is reached by all": {three, nil, "n9", "", []api.NodeID{"n1", "n2", "n3"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fit.NewPlugin("disk", c.instances)
			ready := func(n api.NodeID) bool { return n != c.down }
			chosen := map[api.NodeID]bool{}
			for i := range 100 {
				nodes, reason := p.Executors(c.near, c.prefer, ready)
				if reason != c.reason {
					t.Fatalf("reason = %q, want %q", reason, c.reason)
				}
				if len(nodes) > 0 {
					chosen[nodes[fit.Choose(fmt.Sprintf("create/default/%d", i), len(nodes))]] = true
				}
			}
			want := map[api.NodeID]bool{}
			for _, n := range c.want {
				want[n] = true
			}
			if diff := cmp.Diff(want, chosen); diff != "" {
				t.Errorf("nodes that are chosen over a hundred seeds (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTopologiesAreThoseOfReadyNodesOnceEach(t *testing.T) {
	t.Parallel()
	p := fit.NewPlugin("disk", []*api.Instance{
		instance("n1", in("a")), instance("n2", in("b")), instance("n3", in("a")), instance("n4"),
		instance("n5", in("sick"), sick), instance("n6", in("controller"), controllerOnly), instance("n7", in("down")),
	})
	want := []api.Topology{{"zone": "a"}, {"zone": "b"}}
	got := p.Topologies(func(n api.NodeID) bool { return n != "n7" })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("topologies differ (-want +got):\n%s", diff)
	}
	if got := fit.NewPlugin("disk", nil).Topologies(everyNode); got != nil {
		t.Errorf("topologies without instances = %v, want none", got)
	}
}

func TestNodeInstancePrefersAHealthyOne(t *testing.T) {
	t.Parallel()
	healthy, ill, controller := instance("n1"), instance("n1", sick), instance("n1", controllerOnly)
	for name, c := range map[string]struct {
		instances []*api.Instance
		want      *api.Instance
	}{
		"none":            {nil, nil},
		"controller only": {[]*api.Instance{controller}, nil},
		"sick one":        {[]*api.Instance{controller, ill}, ill},
		"healthy one":     {[]*api.Instance{ill, healthy}, healthy},
	} {
		if got := fit.NodeInstance(c.instances); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}
