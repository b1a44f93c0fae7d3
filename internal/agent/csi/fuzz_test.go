package csi_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
)

// FuzzAnswers lets a driver answer anything: the client must neither panic nor
// hand out what the state must not hold.
func FuzzAnswers(f *testing.F) {
	for _, m := range []proto.Message{
		&spec.CreateVolumeResponse{Volume: &spec.Volume{
			VolumeId: oddID, CapacityBytes: 1, VolumeContext: map[string]string{"k": "v"},
			AccessibleTopology: []*spec.Topology{{Segments: map[string]string{"zone": "a"}}, {}},
		}},
		&spec.CreateVolumeResponse{Volume: &spec.Volume{VolumeId: "v", CapacityBytes: -1}},
		&spec.ControllerPublishVolumeResponse{PublishContext: map[string]string{"k": "v"}},
		&spec.NodeGetInfoResponse{NodeId: "n", MaxVolumesPerNode: 3, AccessibleTopology: &spec.Topology{Segments: map[string]string{"Z": "1"}}},
		&spec.GetPluginInfoResponse{Name: "n", VendorVersion: "1"},
		&spec.ControllerGetCapabilitiesResponse{Capabilities: []*spec.ControllerServiceCapability{{}}},
		&spec.NodeGetVolumeStatsResponse{Usage: []*spec.VolumeUsage{{Total: 1}}, VolumeCondition: &spec.VolumeCondition{Message: "m"}},
	} {
		bytes, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes)
	}
	var next atomic.Pointer[[]byte]
	c := serve(f, func(context.Context, string, []byte) ([]byte, error) { return *next.Load(), nil })
	f.Fuzz(func(t *testing.T, answer []byte) {
		next.Store(&answer)
		ctx := t.Context()
		created, err := c.CreateVolume(ctx, api.CreateRequest{})
		if err == nil && (created.ExternalID == "" || created.Capacity < 0) {
			t.Errorf("created = %+v", created)
		}
		check(t, err, created.ExternalID)
		published, err := c.ControllerPublish(ctx, api.PublishRequest{Capability: writer})
		check(t, err)
		for k, v := range published.PublishContext {
			check(t, nil, k, v)
		}
		node, err := c.NodeInfo(ctx)
		if err == nil && (node.ID == "" || node.MaxVolumes < 0 || node.Topology != nil && len(node.Topology) == 0) {
			t.Errorf("node = %+v", node)
		}
		check(t, err, node.ID)
		info, err := c.Info(ctx)
		check(t, err, info.Name, info.VendorVersion)
		_, err = c.Probe(ctx)
		check(t, err)
		for _, list := range []func(context.Context) ([]string, error){c.PluginCapabilities, c.ControllerCapabilities, c.NodeCapabilities} {
			names, err := list(ctx)
			check(t, err, names...)
		}
		stats, err := c.NodeStats(ctx, csi.StatsRequest{})
		check(t, err)
		if u := stats.Bytes; u != nil && (u.Total < 0 || u.Used < 0 || u.Available < 0) {
			t.Errorf("usage = %+v", u)
		}
	})
}

// check holds strings and errors against what may reach the state.
func check(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if len(w) > 32<<10 || !utf8.ValidString(w) {
			t.Errorf("%q is too long or not UTF-8", w)
		}
	}
	if err == nil {
		return
	}
	var e *csi.Error
	if !errors.As(err, &e) || e.Code != csi.CodeInternal || e.Unsent || !utf8.ValidString(e.Message) || len(e.Message) > 4<<10 {
		t.Errorf("error = %#v, want one that is INTERNAL and fit to show", err)
	}
}
