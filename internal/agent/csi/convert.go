package csi

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"

	"github.com/berth-dev/berth/api"
)

// What a driver answers is held to eight times the specification's sizes: 1 KiB
// a string, 32 KiB a map. Widely used drivers exceed its 128 bytes (a volume id
// that is a resource path of a cloud), and a volume that was made and then
// refused would leak.
const (
	maxString = 8 * 128
	maxMap    = 8 * 4 << 10
)

// accessMode is the specification's mode. A driver that does not tell single
// from multiple writers on a node knows one mode for both.
func accessMode(mode api.AccessMode, multiWriter bool) (csi.VolumeCapability_AccessMode_Mode, error) {
	switch mode {
	case api.SingleNodeWriter:
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, nil
	case api.SingleNodeReaderOnly:
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY, nil
	case api.SingleNodeSingleWriter:
		if multiWriter {
			return csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, nil
		}
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, nil
	case api.SingleNodeMultiWriter:
		if multiWriter {
			return csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER, nil
		}
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, nil
	case api.MultiNodeReaderOnly:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, nil
	case api.MultiNodeSingleWriter:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER, nil
	case api.MultiNodeMultiWriter:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, nil
	}
	return 0, fmt.Errorf("the access mode is %q", mode)
}

func volumeCapability(c api.Capability, o *api.MountOptions, multiWriter bool) (*csi.VolumeCapability, error) {
	mode, err := accessMode(c.AccessMode, multiWriter)
	if err != nil {
		return nil, err
	}
	out := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode}}
	switch c.AttachmentMode {
	case api.BlockDevice:
		out.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	case api.FileSystem:
		mount := &csi.VolumeCapability_MountVolume{}
		if o != nil {
			mount.FsType, mount.MountFlags = o.FSType, o.MountFlags
		}
		out.AccessType = &csi.VolumeCapability_Mount{Mount: mount}
	default:
		return nil, fmt.Errorf("the attachment mode is %q", c.AttachmentMode)
	}
	return out, nil
}

// setGroup asks that a mounted volume be a group's. Drivers that support it take
// a number for it (CSI spec, VOLUME_MOUNT_GROUP).
func setGroup(c *csi.VolumeCapability, group int) {
	if mount := c.GetMount(); mount != nil && group != 0 {
		mount.VolumeMountGroup = strconv.Itoa(group)
	}
}

// volumeCapabilities has each capability once, also if two modes became one.
func volumeCapabilities(all []api.Capability, o *api.MountOptions, multiWriter bool) ([]*csi.VolumeCapability, error) {
	var out []*csi.VolumeCapability
	for _, c := range all {
		converted, err := volumeCapability(c, o, multiWriter)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(out, func(o *csi.VolumeCapability) bool { return proto.Equal(o, converted) }) {
			out = append(out, converted)
		}
	}
	return out, nil
}

// requirement is nil if nothing is required or preferred: drivers take an
// empty requirement for one that no place fulfils.
func requirement(r *api.TopologyRequest) (*csi.TopologyRequirement, error) {
	if r == nil {
		return nil, nil
	}
	requisite, errR := toTopologies(r.Required)
	preferred, errP := toTopologies(r.Preferred)
	if err := errors.Join(errR, errP); err != nil {
		return nil, err
	}
	if len(requisite) == 0 && len(preferred) == 0 {
		return nil, nil
	}
	return &csi.TopologyRequirement{Requisite: requisite, Preferred: preferred}, nil
}

// toTopologies leaves out topologies without segments, which say nothing.
func toTopologies(list []api.Topology) ([]*csi.Topology, error) {
	var out []*csi.Topology
	for _, t := range list {
		if err := checkSegments(t); err != nil {
			return nil, err
		}
		if len(t) > 0 {
			out = append(out, &csi.Topology{Segments: t})
		}
	}
	return out, nil
}

// fromTopologies is where a volume can be reached: in any of the topologies.
// One without segments is everywhere, so then there is no constraint at all.
func fromTopologies(list []*csi.Topology) ([]api.Topology, error) {
	var out []api.Topology
	for _, t := range list {
		topology, err := fromTopology(t)
		if err != nil {
			return nil, err
		}
		if topology == nil {
			return nil, nil
		}
		out = append(out, topology)
	}
	return out, nil
}

func fromTopology(t *csi.Topology) (api.Topology, error) {
	if len(t.GetSegments()) == 0 {
		return nil, nil
	}
	if err := checkMap("topology segments", t.GetSegments()); err != nil {
		return nil, err
	}
	if err := checkSegments(t.GetSegments()); err != nil {
		return nil, err
	}
	return t.GetSegments(), nil
}

// checkSegments refuses keys that differ in case only: they are one key (CSI
// spec, Topology), and must not have two values.
func checkSegments(segments map[string]string) error {
	seen := make(map[string]string, len(segments))
	for key := range segments {
		folded := strings.ToLower(key)
		if other, twice := seen[folded]; twice {
			first, second := min(key, other), max(key, other)
			return fmt.Errorf("topology has the keys %q and %q, which are one", first, second)
		}
		seen[folded] = key
	}
	return nil
}

func checkString(what, s string) error {
	if len(s) > maxString {
		return fmt.Errorf("%s has %d bytes, more than %d", what, len(s), maxString)
	}
	return nil
}

func checkMap(what string, m map[string]string) error {
	size := 0
	for k, v := range m {
		size += len(k) + len(v)
	}
	if size > maxMap {
		return fmt.Errorf("%s has %d bytes, more than %d", what, size, maxMap)
	}
	return nil
}
