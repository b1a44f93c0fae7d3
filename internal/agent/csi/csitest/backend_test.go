package csitest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
)

func TestTwoNodesAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, csitest.Options{Stage: true})
	w.mode = api.MultiNodeMultiWriter
	w.walk("create stage stage:n2 publish publish:n2", nil)
	w.wantViolations()
	want := []csitest.Volume{{
		ID: w.volume.ExternalID, Name: "pg", Capacity: 1 << 20,
		Staged: []string{"n1", "n2"}, Published: []string{"n1:/target/n1", "n2:/target/n2"},
	}}
	if diff := cmp.Diff(want, w.backend.Volumes()); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
}

func TestReboot_TakesMountsAwayAndLeavesAttachments(t *testing.T) {
	t.Parallel()
	w := newWorld(t, csitest.Options{Attach: true, Stage: true})
	w.walk(setUp, nil)
	w.backend.Reboot("n1")
	if v := w.backend.Volumes()[0]; len(v.Staged)+len(v.Published) > 0 || len(v.Attached) != 1 {
		t.Errorf("after the reboot: %+v", v)
	}
	w.walk("detach attach:n2 stage:n2 publish:n2", nil)
	w.wantViolations()
}

func TestDetachIsFence_CutsTheOldNodeOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, csitest.Options{Attach: true, Stage: true, DetachIsFence: true})
	w.walk(setUp+"detach attach:n2 stage:n2 publish:n2 unpublish unstage", nil)
	w.wantViolations()
}

func TestMaxVolumes(t *testing.T) {
	t.Parallel()
	b := csitest.NewBackend(csitest.Options{Attach: true})
	c := client(t, b.Node(csitest.Node{ID: "n1", MaxVolumes: 1}), csitest.Options{})
	capability := api.Capability{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}
	var codes []string
	for _, name := range []string{"a", "b"} {
		v, err := c.CreateVolume(t.Context(), api.CreateRequest{Name: name, Capabilities: []api.Capability{capability}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.ControllerPublish(t.Context(), api.PublishRequest{
			ExternalID: v.ExternalID, ExternalNodeID: "n1", Capability: capability, Context: v.Context,
		})
		codes = append(codes, csi.CodeOf(err))
	}
	if diff := cmp.Diff([]string{csi.CodeOK, csi.CodeResourceExhausted}, codes); diff != "" {
		t.Error(diff)
	}
}

func TestTopology(t *testing.T) {
	t.Parallel()
	w := newWorld(t, csitest.Options{Topology: true})
	capabilities := []api.Capability{w.capability()}
	for name, test := range map[string]struct {
		request *api.TopologyRequest
		want    []api.Topology
		code    string
	}{
		"preferred first": {
			request: &api.TopologyRequest{
				Required:  []api.Topology{{"zone": "n1"}, {"zone": "n2"}},
				Preferred: []api.Topology{{"Zone": "n2"}},
			},
			want: []api.Topology{{"Zone": "n2"}},
		},
		"no room": {
			request: &api.TopologyRequest{Required: []api.Topology{{"zone": "n3"}}},
			code:    csi.CodeResourceExhausted,
		},
		"where the driver is": {want: []api.Topology{{"zone": "n1"}}},
	} {
		got, err := w.clients["n1"].CreateVolume(t.Context(), api.CreateRequest{
			Name: name, Capabilities: capabilities, TopologyRequest: test.request,
		})
		if test.code != "" && csi.CodeOf(err) != test.code || test.code == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(test.want, got.AccessibleTopology); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	w.wantViolations()
}

func TestCapacity(t *testing.T) {
	t.Parallel()
	w := newWorld(t, csitest.Options{Capacity: 10 << 30})
	capabilities := []api.Capability{w.capability()}
	for _, test := range []struct {
		name        string
		least, most int64
		want        int64
		code        string
	}{
		{"default", 0, 0, 1 << 30, csi.CodeOK},
		{"least", 2 << 30, 0, 2 << 30, csi.CodeOK},
		{"most", 0, 1 << 20, 1 << 20, csi.CodeOK},
		{"none", 2, 1, 0, csi.CodeOutOfRange},
		{"too much", 8 << 30, 0, 0, csi.CodeResourceExhausted},
	} {
		got, err := w.clients["n1"].CreateVolume(t.Context(), api.CreateRequest{
			Name: test.name, Capabilities: capabilities, CapacityMin: test.least, CapacityMax: test.most,
		})
		if csi.CodeOf(err) != test.code || got.Capacity != test.want {
			t.Errorf("%s: %d bytes, %v; want %d, %s", test.name, got.Capacity, err, test.want, test.code)
		}
	}
}
