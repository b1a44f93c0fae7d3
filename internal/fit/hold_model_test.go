package fit_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
)

// model is who holds a volume, as plain maps, and the specification's words on
// each access mode (CSI spec, VolumeCapability.AccessMode and NodePublishVolume,
// second publish).
type model struct {
	holders map[int]holder
	// lacks are the nodes whose plugin takes one target path of a volume, unless
	// it is for many nodes.
	lacks map[api.NodeID]bool
}

// instance is the plugin's on a node.
func (m model) instance(node api.NodeID) *api.Instance {
	i := &api.Instance{PluginID: "disk", NodeID: node, InstanceStatus: api.InstanceStatus{Driver: "disk.example"}}
	if !m.lacks[node] {
		i.NodeCapabilities = []string{api.CapSingleNodeMultiWrite}
	}
	return i
}

type holder struct {
	mode     api.AccessMode
	node     api.NodeID
	readOnly bool
	device   bool
}

func (h holder) writes() bool {
	return !h.readOnly && h.mode != api.SingleNodeReaderOnly && h.mode != api.MultiNodeReaderOnly
}

func (h holder) attachment(i int) *api.Attachment {
	mode := api.FileSystem
	if h.device {
		mode = api.BlockDevice
	}
	return &api.Attachment{
		AllocID: api.AllocID(fmt.Sprintf("%032d", i)), JobID: "job", NodeID: h.node, VolumeID: "v",
		AccessMode: h.mode, ReadOnly: h.readOnly, AttachmentMode: mode,
	}
}

// keeps reports whether a set of holders is one that every mode of theirs
// allows. It looks at the whole set, where fit.Hold looks at one who comes.
func (m model) keeps() bool {
	nodes, kinds, modes := map[api.NodeID]int{}, map[bool]int{}, map[api.AccessMode]int{}
	writers := 0
	for _, h := range m.holders {
		nodes[h.node]++
		kinds[h.device]++
		modes[h.mode]++
		if h.writes() {
			writers++
		}
	}
	alone := modes[api.SingleNodeWriter] + modes[api.SingleNodeReaderOnly] + modes[api.SingleNodeSingleWriter]
	switch {
	case len(kinds) > 1:
		return false
	case alone > 0:
		return len(m.holders) == 1
	case modes[api.SingleNodeMultiWriter] > 0 && (len(nodes) > 1 || len(m.holders) > 1 && m.lacks[slices.Collect(maps.Keys(nodes))[0]]):
		return false
	case modes[api.MultiNodeReaderOnly] > 0 && writers > 0:
		return false
	case modes[api.MultiNodeSingleWriter] > 0 && writers > 1:
		return false
	}
	return true
}

func drawHolder(t *rapid.T) holder {
	h := holder{
		mode:     rapid.SampledFrom(api.AccessModes()).Draw(t, "mode"),
		node:     rapid.SampledFrom([]api.NodeID{"n1", "n2", "n3"}).Draw(t, "node"),
		readOnly: rapid.Bool().Draw(t, "read-only"),
		device:   rapid.IntRange(0, 9).Draw(t, "device") == 0,
	}
	h.readOnly = h.readOnly || h.mode.ReadersOnly()
	return h
}

// TestHoldsAgainstAModel lets holders come and go. Who is let in is exactly who
// the model has room for: never two writers where one may be, never two nodes
// where one may be, and nobody is kept out without need.
func TestHoldsAgainstAModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := model{holders: map[int]holder{}, lacks: map[api.NodeID]bool{}}
		for _, node := range []api.NodeID{"n1", "n2", "n3"} {
			m.lacks[node] = rapid.Bool().Draw(t, "lacks")
		}
		held := map[int]*api.Attachment{}
		for i := range rapid.IntRange(1, 30).Draw(t, "steps") {
			if len(held) > 0 && rapid.IntRange(0, 2).Draw(t, "leave") == 0 {
				gone := rapid.SampledFrom(slices.Sorted(maps.Keys(held))).Draw(t, "who")
				delete(held, gone)
				delete(m.holders, gone)
				continue
			}
			h := drawHolder(t)
			reason := fit.Hold(h.attachment(i), slices.Collect(maps.Values(held)), m.instance(h.node))
			m.holders[i] = h
			if fits := m.keeps(); fits != (reason == "") {
				t.Fatalf("%+v beside %v: the model says %v, and the reason is %q", h, m.holders, fits, reason)
			}
			if reason != "" {
				delete(m.holders, i)
				continue
			}
			held[i] = h.attachment(i)
		}
	})
}

// TestHoldsDoNotDependOnTheOrder has the same holders come in two orders: a set
// of which all got in gets in whatever the order.
func TestHoldsDoNotDependOnTheOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var all []*api.Attachment
		for i := range rapid.IntRange(1, 6).Draw(t, "holders") {
			all = append(all, drawHolder(t).attachment(i))
		}
		other := rapid.Permutation(all).Draw(t, "order")
		if one, two := allHold(all), allHold(other); one != two {
			t.Fatalf("all hold in one order: %v, in the other: %v", one, two)
		}
	})
}

func allHold(all []*api.Attachment) bool {
	for i, a := range all {
		if fit.Hold(a, all[:i], tells) != "" {
			return false
		}
	}
	return true
}

// TestValidationRefusesWhatCouldNeverHold compares what a job's validator says
// of two requests for one volume with fit.Hold: a job that could never be
// placed is refused when it is applied, and no other.
func TestValidationRefusesWhatCouldNeverHold(t *testing.T) {
	t.Parallel()
	for _, a := range ways() {
		for _, b := range ways() {
			for _, device := range []bool{false, true} {
				one, two := a.on("n1"), b.on("n1")
				if device {
					two.AttachmentMode = api.BlockDevice
				}
				spec := api.JobSpec{Type: api.JobService, Groups: []api.TaskGroup{{
					Name: "g", Count: 1, Volumes: []api.VolumeRequest{request("one", one), request("two", two)},
					Tasks: []api.Task{{Name: "t", Driver: "exec"}},
				}}}
				hold, err := fit.Hold(two, []*api.Attachment{one}, tells), spec.Validate()
				if (hold == "") != (err == nil) {
					t.Errorf("%s and %s, device %v: fit.Hold says %q, the validator %v", a, b, device, hold, err)
				}
			}
		}
	}
}

// TestValidationRefusesCrowds is the same with three requests: what no two of
// them show.
func TestValidationRefusesCrowds(t *testing.T) {
	t.Parallel()
	for _, a := range ways() {
		for _, b := range ways() {
			for _, c := range ways() {
				all := []*api.Attachment{a.on("n1"), b.on("n1"), c.on("n1")}
				spec := api.JobSpec{Type: api.JobService, Groups: []api.TaskGroup{{
					Name: "g", Count: 1, Volumes: []api.VolumeRequest{request("one", all[0]), request("two", all[1]), request("three", all[2])},
					Tasks: []api.Task{{Name: "t", Driver: "exec"}},
				}}}
				if err := spec.Validate(); allHold(all) != (err == nil) {
					t.Errorf("%s, %s and %s hold together: %v, and the validator says %v", a, b, c, allHold(all), err)
				}
			}
		}
	}
}

func request(name string, a *api.Attachment) api.VolumeRequest {
	return api.VolumeRequest{
		Name: name, Type: api.VolumeTypeCSI, Source: "v",
		AccessMode: a.AccessMode, AttachmentMode: a.AttachmentMode, ReadOnly: a.ReadOnly,
	}
}
