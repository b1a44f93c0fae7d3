package csitest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
)

// These tests say what csi.Client never would.

func capability(mode spec.VolumeCapability_AccessMode_Mode) *spec.VolumeCapability {
	return &spec.VolumeCapability{
		AccessMode: &spec.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}},
	}
}

func snapshotSource(id string) *spec.VolumeContentSource {
	return &spec.VolumeContentSource{Type: &spec.VolumeContentSource_Snapshot{Snapshot: &spec.VolumeContentSource_SnapshotSource{SnapshotId: id}}}
}

func volumeSource(id string) *spec.VolumeContentSource {
	return &spec.VolumeContentSource{Type: &spec.VolumeContentSource_Volume{Volume: &spec.VolumeContentSource_VolumeSource{VolumeId: id}}}
}

func TestCreateVolume_WhatTheDriverLacksIsCounted(t *testing.T) {
	t.Parallel()
	b := csitest.NewBackend(csitest.Options{})
	c := spec.NewControllerClient(connect(t, b.Node(csitest.Node{ID: "n1"})))
	single := []*spec.VolumeCapability{capability(spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)}
	for _, test := range []struct {
		request *spec.CreateVolumeRequest
		code    codes.Code
	}{
		{&spec.CreateVolumeRequest{Name: "a", VolumeCapabilities: single, AccessibilityRequirements: &spec.TopologyRequirement{}}, codes.OK},
		{&spec.CreateVolumeRequest{Name: "b", VolumeCapabilities: []*spec.VolumeCapability{
			capability(spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER),
		}}, codes.InvalidArgument},
		{&spec.CreateVolumeRequest{Name: "c", VolumeCapabilities: []*spec.VolumeCapability{{AccessMode: single[0].GetAccessMode()}}}, codes.InvalidArgument},
		{&spec.CreateVolumeRequest{Name: "d", VolumeCapabilities: single, MutableParameters: map[string]string{"iops": "1"}}, codes.InvalidArgument},
		{&spec.CreateVolumeRequest{Name: "e", VolumeCapabilities: single, VolumeContentSource: &spec.VolumeContentSource{}}, codes.InvalidArgument},
		{&spec.CreateVolumeRequest{Name: "f", VolumeCapabilities: single, VolumeContentSource: snapshotSource("s")}, codes.NotFound},
		{&spec.CreateVolumeRequest{Name: "g", VolumeCapabilities: single, VolumeContentSource: volumeSource("vol-a")}, codes.NotFound},
	} {
		if _, err := c.CreateVolume(t.Context(), test.request); status.Code(err) != test.code {
			t.Errorf("%s: %v, want %s", test.request.GetName(), err, test.code)
		}
	}
	want := []string{
		"call 1, CreateVolume a: accessibility_requirements, and the driver lacks VOLUME_ACCESSIBILITY_CONSTRAINTS",
		"call 1, CreateVolume a: accessibility_requirements are empty, not absent",
		"call 2, CreateVolume b: access mode SINGLE_NODE_MULTI_WRITER, and the driver lacks SINGLE_NODE_MULTI_WRITER",
		"call 4, CreateVolume d: mutable_parameters, and the driver lacks MODIFY_VOLUME",
		"call 6, CreateVolume f: a snapshot as source, and the driver lacks CREATE_DELETE_SNAPSHOT",
		"call 7, CreateVolume g: a volume as source, and the driver lacks CLONE_VOLUME",
	}
	if diff := cmp.Diff(want, b.Violations()); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
}

func TestRepetition_WithOtherSecretsIsARepetition(t *testing.T) {
	t.Parallel()
	b := csitest.NewBackend(csitest.Options{})
	c := spec.NewControllerClient(connect(t, b.Node(csitest.Node{ID: "n1"})))
	for _, password := range []string{"old", "new"} {
		_, err := c.CreateVolume(t.Context(), &spec.CreateVolumeRequest{
			Name: "pg", Secrets: map[string]string{"password": password},
			VolumeCapabilities: []*spec.VolumeCapability{capability(spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)},
		})
		if err != nil {
			t.Error(err)
		}
	}
	if v := b.Violations(); len(v) > 0 {
		t.Error(v)
	}
}

func TestDetach_WithoutANodeIsFromEveryNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, csitest.Options{Attach: true})
	w.mode = api.MultiNodeMultiWriter
	w.walk("create attach attach:n2", nil)
	raw := spec.NewControllerClient(connect(t, w.backend.Node(csitest.Node{ID: "n3"})))
	_, err := raw.ControllerUnpublishVolume(t.Context(), &spec.ControllerUnpublishVolumeRequest{VolumeId: w.volume.ExternalID})
	if v := w.backend.Volumes()[0]; err != nil || len(v.Attached) > 0 {
		t.Errorf("attached to %v, %v", v.Attached, err)
	}
	w.walk("delete", nil)
	w.wantViolations()
}

func TestPaths_OfTwoVolumesMayNotMeet(t *testing.T) {
	t.Parallel()
	b := csitest.NewBackend(csitest.Options{})
	c := client(t, b.Node(csitest.Node{ID: "n1"}), csitest.Options{})
	use := api.Capability{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}
	publish := func(name, path string) string {
		v, err := c.CreateVolume(t.Context(), api.CreateRequest{Name: name, Capabilities: []api.Capability{use}})
		if err != nil {
			t.Fatal(err)
		}
		r := csi.PublishRequest{ExternalID: v.ExternalID, TargetPath: path, Capability: use, Context: v.Context}
		if err := c.NodePublish(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		return v.ExternalID
	}
	a := publish("a", "/target")
	publish("b", "/target")
	publish("c", "relative")
	want := []string{
		"call 4, NodePublishVolume b n1: the path /target is in use",
		`call 6, NodePublishVolume c n1: the path "relative" is not absolute`,
	}
	if diff := cmp.Diff(want, b.Violations()); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
	// A path is free again when its volume has left it.
	if err := c.NodeUnpublish(t.Context(), csi.UnpublishRequest{ExternalID: a, TargetPath: "/target"}); err != nil {
		t.Error(err)
	}
	publish("d", "/target")
	if got := b.Violations(); len(got) != len(want) {
		t.Errorf("violations = %v", got)
	}
}

func TestCapability_ThatTheVolumeWasNotMadeFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, csitest.Options{Attach: true, Stage: true})
	w.walk("create", nil)
	w.mode = api.MultiNodeReaderOnly
	w.walk("attach", map[string]string{"attach": csi.CodeFailedPrecondition})
	w.mode = api.SingleNodeWriter
	w.walk("attach", nil)
	w.mode = api.MultiNodeReaderOnly
	w.walk("stage", map[string]string{"stage": csi.CodeFailedPrecondition})
}

func TestUnknownCapabilities_AreAdvertised(t *testing.T) {
	t.Parallel()
	options := csitest.Options{UnknownPlugin: []int32{90}, UnknownController: []int32{0, 91}, UnknownNode: []int32{92}}
	c := client(t, csitest.NewBackend(options).Node(csitest.Node{ID: "n1"}), options)
	plugin, err1 := c.PluginCapabilities(t.Context())
	controller, err2 := c.ControllerCapabilities(t.Context())
	node, err3 := c.NodeCapabilities(t.Context())
	got := [][]string{plugin, controller, node}
	want := [][]string{
		{"CONTROLLER_SERVICE", "UNKNOWN(90)"},
		{"CREATE_DELETE_VOLUME", "GET_CAPACITY", "LIST_VOLUMES", "UNKNOWN", "UNKNOWN(91)"},
		{"GET_VOLUME_STATS", "UNKNOWN(92)"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("capabilities: %v %v %v (-want +got):\n%s", err1, err2, err3, diff)
	}
}

func TestListVolumes_InPages(t *testing.T) {
	t.Parallel()
	b := csitest.NewBackend(csitest.Options{Attach: true, Capacity: 8 << 30})
	conn := connect(t, b.Node(csitest.Node{ID: "n1"}))
	c := spec.NewControllerClient(conn)
	use := capability(spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
	for i := range 5 {
		_, err := c.CreateVolume(t.Context(), &spec.CreateVolumeRequest{
			Name: fmt.Sprint(i), VolumeCapabilities: []*spec.VolumeCapability{use},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	id := b.Volumes()[3].ID
	_, err := c.ControllerPublishVolume(t.Context(), &spec.ControllerPublishVolumeRequest{
		VolumeId: id, NodeId: "n1", VolumeCapability: use, VolumeContext: map[string]string{"csitest/volume": id},
	})
	if err != nil {
		t.Fatal(err)
	}
	seen, pages, token := make(map[string][]string), 0, ""
	for token != "" || pages == 0 {
		page, err := c.ListVolumes(t.Context(), &spec.ListVolumesRequest{MaxEntries: 2, StartingToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.GetEntries() {
			seen[e.GetVolume().GetVolumeId()] = e.GetStatus().GetPublishedNodeIds()
		}
		pages, token = pages+1, page.GetNextToken()
	}
	if len(seen) != 5 || pages != 3 || len(seen[id]) != 1 {
		t.Errorf("%d volumes in %d pages, %v has the attached one; want 5, 3, n1", len(seen), pages, seen[id])
	}
	room, err := c.GetCapacity(t.Context(), &spec.GetCapacityRequest{})
	if err != nil || room.GetAvailableCapacity() != 3<<30 {
		t.Errorf("room = %v, %v; want 3 GiB", room, err)
	}
	if v := b.Violations(); len(v) > 0 {
		t.Error(v)
	}
}

func TestManyVolumesAtOnce(t *testing.T) {
	t.Parallel()
	b := csitest.NewBackend(csitest.Options{Attach: true, Stage: true})
	nodes := make([]*csi.Client, 4)
	for i := range nodes {
		nodes[i] = client(t, b.Node(csitest.Node{ID: fmt.Sprint(i)}), csitest.Options{})
	}
	var volumes sync.WaitGroup
	for i := range 40 {
		volumes.Go(func() {
			if err := live(t.Context(), nodes[i%4], fmt.Sprint(i), fmt.Sprint(i%4)); err != nil {
				t.Error(err)
			}
		})
	}
	volumes.Wait()
	if left, violations := b.Volumes(), b.Violations(); len(left)+len(violations) > 0 {
		t.Errorf("left: %v, violations: %v", left, violations)
	}
	if calls := b.Calls(); len(calls) != 40*8 {
		t.Errorf("%d calls, want %d", len(calls), 40*8)
	}
}

// live takes a volume through its life on one node.
func live(ctx context.Context, c *csi.Client, name, node string) error {
	use := api.Capability{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}
	v, err := c.CreateVolume(ctx, api.CreateRequest{Name: name, Capabilities: []api.Capability{use}})
	if err != nil {
		return err
	}
	id, staging, target := v.ExternalID, "/staging/"+name, "/target/"+name
	p, err := c.ControllerPublish(ctx, api.PublishRequest{ExternalID: id, ExternalNodeID: node, Capability: use, Context: v.Context})
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error {
			return c.NodeStage(ctx, csi.StageRequest{
				ExternalID: id, StagingPath: staging, Capability: use, Context: v.Context, PublishContext: p.PublishContext,
			})
		},
		func() error {
			return c.NodePublish(ctx, csi.PublishRequest{
				ExternalID: id, StagingPath: staging, TargetPath: target, Capability: use, Context: v.Context, PublishContext: p.PublishContext,
			})
		},
		func() error { return c.NodeUnpublish(ctx, csi.UnpublishRequest{ExternalID: id, TargetPath: target}) },
		func() error { return c.NodeUnstage(ctx, csi.UnstageRequest{ExternalID: id, StagingPath: staging}) },
		func() error {
			return c.ControllerUnpublish(ctx, api.UnpublishRequest{ExternalID: id, ExternalNodeID: node})
		},
		func() error { return c.DeleteVolume(ctx, api.DeleteRequest{ExternalID: id}) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
