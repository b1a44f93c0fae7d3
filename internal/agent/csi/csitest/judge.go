package csitest

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
)

// judge holds a call against the rules that the specification sets for
// callers, and finds the things that it is about. It does not answer; a call
// that breaks a rule is carried out as far as a driver would.
func (b *Backend) judge(c *call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if gate := b.missing(c.Method); gate != "" {
		b.violate(c, "the driver lacks %s", gate)
		return
	}
	v := b.volumes[c.Volume]
	switch r := c.message.(type) {
	case *csi.CreateVolumeRequest:
		b.judgeCreate(c, v, r)
	case *csi.DeleteVolumeRequest:
		b.judgeDelete(c, v)
	case *csi.CreateSnapshotRequest:
		b.judgeSnapshot(c, r)
	case *csi.ControllerPublishVolumeRequest:
		b.judgeAttach(c, v, r)
	case *csi.ControllerUnpublishVolumeRequest:
		b.judgeDetach(c, v, r.GetNodeId())
	case *csi.NodeStageVolumeRequest:
		b.judgeStage(c, v, r)
	case *csi.NodeUnstageVolumeRequest:
		b.judgeUnstage(c, v, r)
	case *csi.NodePublishVolumeRequest:
		b.judgePublish(c, v, r)
	case *csi.NodeUnpublishVolumeRequest:
		b.judgeUnpublish(c, v, r)
	case *csi.ControllerExpandVolumeRequest:
		b.judgeExpand(c, v)
	case *csi.NodeExpandVolumeRequest:
		b.judgeNodeExpand(c, v, r)
	}
	c.attempt()
}

func (b *Backend) judgeCreate(c *call, v *volume, r *csi.CreateVolumeRequest) {
	if v != nil && !v.refused && !same(v.request, r) {
		b.violate(c, "repeated with other arguments")
	}
	if t := r.GetAccessibilityRequirements(); t != nil {
		if !b.options.Topology {
			b.violate(c, "accessibility_requirements, and the driver lacks VOLUME_ACCESSIBILITY_CONSTRAINTS")
		}
		if len(t.GetRequisite())+len(t.GetPreferred()) == 0 {
			b.violate(c, "accessibility_requirements are empty, not absent")
		}
	}
	if len(r.GetMutableParameters()) > 0 && !b.options.Modify {
		b.violate(c, "mutable_parameters, and the driver lacks MODIFY_VOLUME")
	}
	switch s := r.GetVolumeContentSource(); {
	case s.GetSnapshot() != nil && !b.options.Snapshot && len(b.options.Snapshots) == 0:
		b.violate(c, "a snapshot as source, and the driver lacks CREATE_DELETE_SNAPSHOT")
	case s.GetVolume() != nil && !b.options.Clone:
		b.violate(c, "a volume as source, and the driver lacks CLONE_VOLUME")
	}
	for _, capability := range r.GetVolumeCapabilities() {
		b.judgeMode(c, capability)
	}
}

func (b *Backend) judgeDelete(c *call, v *volume) {
	if v == nil {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(v.on)) {
		switch p := v.on[id]; {
		case p.mounted():
			b.violate(c, "staged or published on %s", id)
		case p.attachment.there():
			b.violate(c, "attached to %s", id)
		}
	}
}

func (b *Backend) judgeAttach(c *call, v *volume, r *csi.ControllerPublishVolumeRequest) {
	b.judgeMode(c, r.GetVolumeCapability())
	if r.GetReadonly() && !b.options.PublishReadonly {
		b.violate(c, "readonly, and the driver lacks PUBLISH_READONLY")
	}
	if v == nil {
		return
	}
	if !maps.Equal(r.GetVolumeContext(), v.context) {
		b.violate(c, "volume_context is not what CreateVolume answered")
	}
	for _, id := range slices.Sorted(maps.Keys(v.on)) {
		other := &v.on[id].attachment
		if id != r.GetNodeId() && other.there() && !shareable(r, other.asked) {
			b.violate(c, "attached to %s, and not for several nodes", id)
		}
	}
	p := v.presence(r.GetNodeId())
	b.judgeRepeat(c, &p.attachment)
	c.things = []*thing{&p.attachment}
}

func (b *Backend) judgeDetach(c *call, v *volume, nodeID string) {
	c.undo = true
	if v == nil {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(v.on)) {
		if nodeID != "" && id != nodeID {
			continue
		}
		p := v.on[id]
		if p.mounted() && !b.options.DetachIsFence {
			b.violate(c, "staged or published on %s", id)
		}
		c.things = append(c.things, &p.attachment)
	}
}

func (b *Backend) judgeStage(c *call, v *volume, r *csi.NodeStageVolumeRequest) {
	b.judgeMode(c, r.GetVolumeCapability())
	if v == nil {
		return
	}
	p := v.presence(c.Node)
	b.judgeContexts(c, v, p, r)
	b.judgePath(c, &p.stage, r.GetStagingTargetPath())
	b.judgeOthers(c, v, r)
	b.judgeRepeat(c, &p.stage)
	c.things = []*thing{&p.stage}
}

func (b *Backend) judgeUnstage(c *call, v *volume, r *csi.NodeUnstageVolumeRequest) {
	c.undo, c.path = true, r.GetStagingTargetPath()
	if v == nil || v.on[c.Node] == nil {
		return
	}
	p := v.on[c.Node]
	for _, path := range slices.Sorted(maps.Keys(p.targets)) {
		if p.targets[path].there() {
			b.violate(c, "published at %s", path)
		}
	}
	if at := p.stagedAt(); p.stage.there() && at != r.GetStagingTargetPath() {
		b.violate(c, "staged at %s, not at %s", at, r.GetStagingTargetPath())
	}
	c.things = []*thing{&p.stage}
}

func (b *Backend) judgePublish(c *call, v *volume, r *csi.NodePublishVolumeRequest) {
	b.judgeMode(c, r.GetVolumeCapability())
	if v == nil {
		return
	}
	p := v.presence(c.Node)
	b.judgeContexts(c, v, p, r)
	b.judgeOthers(c, v, r)
	switch {
	case !b.options.Stage:
	case !p.stage.sure():
		b.violate(c, "before NodeStageVolume succeeded")
	case r.GetStagingTargetPath() != p.stagedAt():
		b.violate(c, "staged at %s, not at %q", p.stagedAt(), r.GetStagingTargetPath())
	}
	for _, path := range slices.Sorted(maps.Keys(p.targets)) {
		if path != r.GetTargetPath() && p.targets[path].there() && !manyTargets(r.GetVolumeCapability()) {
			b.violate(c, "published at %s, and its access mode allows one target", path)
		}
	}
	t := p.target(r.GetTargetPath())
	b.judgePath(c, t, r.GetTargetPath())
	b.judgeRepeat(c, t)
	c.things = []*thing{t}
}

func (b *Backend) judgeUnpublish(c *call, v *volume, r *csi.NodeUnpublishVolumeRequest) {
	c.undo, c.path = true, r.GetTargetPath()
	if v == nil || v.on[c.Node] == nil {
		return
	}
	if t := v.on[c.Node].targets[r.GetTargetPath()]; t != nil {
		c.things = []*thing{t}
	}
}

func (b *Backend) judgeMode(c *call, capability *csi.VolumeCapability) {
	if mode := capability.GetAccessMode().GetMode(); countsWriters(mode) && !b.options.MultiWriter {
		b.violate(c, "access mode %s, and the driver lacks SINGLE_NODE_MULTI_WRITER", mode)
	}
	if group := capability.GetMount().GetVolumeMountGroup(); group != "" && !b.options.MountGroup {
		b.violate(c, "volume_mount_group %s, and the driver lacks VOLUME_MOUNT_GROUP", group)
	}
}

// countsWriters reports whether the mode needs SINGLE_NODE_MULTI_WRITER.
func countsWriters(mode csi.VolumeCapability_AccessMode_Mode) bool {
	return mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER ||
		mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
}

func (b *Backend) judgeRepeat(c *call, t *thing) {
	if t.there() && !same(t.asked, c.message) {
		b.violate(c, "repeated with other arguments")
	}
}

// mounting is what NodeStageVolume and NodePublishVolume have in common.
type mounting interface {
	proto.Message
	GetVolumeId() string
	GetVolumeCapability() *csi.VolumeCapability
	GetVolumeContext() map[string]string
	GetPublishContext() map[string]string
}

func (b *Backend) judgeContexts(c *call, v *volume, p *presence, r mounting) {
	if !maps.Equal(r.GetVolumeContext(), v.context) {
		b.violate(c, "volume_context is not what CreateVolume answered")
	}
	switch {
	case b.options.Attach && !p.attachment.sure():
		b.violate(c, "before ControllerPublishVolume succeeded")
	case !maps.Equal(r.GetPublishContext(), p.context):
		b.violate(c, "publish_context is not what ControllerPublishVolume answered")
	}
	if !accessible(v.topology, b.nodes[c.Node].topology) {
		b.violate(c, "the volume cannot be reached from the node")
	}
}

// judgePath sees to it that no two volumes share a path.
func (b *Backend) judgePath(c *call, t *thing, path string) {
	if !filepath.IsAbs(path) {
		b.violate(c, "the path %q is not absolute", path)
	}
	paths := b.nodes[c.Node].paths
	if other := paths[path]; other != nil && other != t && other.there() {
		b.violate(c, "the path %s is in use", path)
		return
	}
	paths[path] = t
}

// judgeOthers is the rule that matters most: no second node has the volume
// mounted, unless its access mode says so.
func (b *Backend) judgeOthers(c *call, v *volume, r mounting) {
	for _, id := range slices.Sorted(maps.Keys(v.on)) {
		p := v.on[id]
		if id == c.Node || p.cut {
			continue
		}
		if p.stage.there() && !shareable(r, p.stage.asked) {
			b.violate(c, "staged on %s, and not for several nodes", id)
		}
		for path, t := range p.targets {
			switch {
			case !t.there():
			case !shareable(r, t.asked):
				b.violate(c, "published on %s at %s, and not for several nodes", id, path)
			case writes(r) && writes(t.asked):
				b.violate(c, "published on %s at %s, and for a single writer", id, path)
			}
		}
	}
}

// mounted reports whether callers must treat the volume as staged or published
// on the node.
func (p *presence) mounted() bool {
	if p.stage.there() {
		return true
	}
	for _, t := range p.targets {
		if t.there() {
			return true
		}
	}
	return false
}

func (p *presence) stagedAt() string {
	r, _ := p.stage.asked.(*csi.NodeStageVolumeRequest)
	return r.GetStagingTargetPath()
}

func mode(m proto.Message) csi.VolumeCapability_AccessMode_Mode {
	r, _ := m.(interface {
		GetVolumeCapability() *csi.VolumeCapability
	})
	if r == nil {
		return csi.VolumeCapability_AccessMode_UNKNOWN
	}
	return r.GetVolumeCapability().GetAccessMode().GetMode()
}

// shareable reports whether two requests can hold on two nodes at once.
func shareable(a, b proto.Message) bool { return multiNode(mode(a)) && multiNode(mode(b)) }

// writes reports whether the request is the one writer of its volume.
func writes(m proto.Message) bool {
	r, ok := m.(*csi.NodePublishVolumeRequest)
	return ok && !r.GetReadonly() && mode(r) == csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER
}

// manyTargets reports whether a volume in that mode may be published at several
// paths of a node (CSI spec, NodePublishVolume, second table).
func manyTargets(c *csi.VolumeCapability) bool {
	m := c.GetAccessMode().GetMode()
	return multiNode(m) || m == csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
}

// same compares two requests but for their secrets.
func same(a, b proto.Message) bool {
	return a != nil && b != nil && proto.Equal(withoutSecrets(a), withoutSecrets(b))
}

func withoutSecrets(m proto.Message) proto.Message {
	field := m.ProtoReflect().Descriptor().Fields().ByName("secrets")
	if field == nil || !m.ProtoReflect().Has(field) {
		return m
	}
	m = proto.Clone(m)
	m.ProtoReflect().Clear(field)
	return m
}

// accessible reports whether a node is in one of a volume's topologies. Keys
// compare without regard to case.
func accessible(volume []map[string]string, node map[string]string) bool {
	return len(volume) == 0 || slices.ContainsFunc(volume, func(t map[string]string) bool { return within(t, node) })
}

// within reports whether node has every segment.
func within(segments, node map[string]string) bool {
	for key, value := range segments {
		found := false
		for k, v := range node {
			found = found || strings.EqualFold(k, key) && v == value
		}
		if !found {
			return false
		}
	}
	return true
}
