package localdriver

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/berth-dev/berth/internal/localdriver/filesystem"
	"github.com/berth-dev/berth/internal/localdriver/mount"
	"github.com/berth-dev/berth/internal/localdriver/record"
)

// required refuses a request in which one of the fields is empty. Fields and
// values take turns.
func required(fields ...string) error {
	for i := 0; i < len(fields); i += 2 {
		if fields[i+1] == "" {
			return refuse(codes.InvalidArgument, "%s is missing", fields[i])
		}
	}
	return nil
}

// readName checks a CSI name (CSI spec, CreateVolumeRequest.name).
func readName(name string) error {
	if name == "" {
		return refuse(codes.InvalidArgument, "name is missing")
	}
	if len(name) > maxNameLength {
		return refuse(codes.InvalidArgument, "name has %d bytes, CSI allows %d", len(name), maxNameLength)
	}
	for _, r := range name {
		if r <= 0x1f && r != '\t' && r != '\n' && r != '\r' || r >= 0x7f && r <= 0x9f {
			return refuse(codes.InvalidArgument, "name has the control character %U, which CSI forbids", r)
		}
	}
	return nil
}

// readPath checks that a path is one that the kernel can have.
func readPath(path string) error {
	switch {
	case !filepath.IsAbs(path):
		return refuse(codes.InvalidArgument, "path %q is not absolute", path)
	case strings.ContainsRune(path, 0):
		return refuse(codes.InvalidArgument, "path %q has a NUL character", path)
	case len(path) >= unix.PathMax:
		return refuse(codes.InvalidArgument, "a path has %d bytes, and %d are possible", len(path), unix.PathMax-1)
	}
	for part := range strings.SplitSeq(path, "/") {
		if len(part) > maxPart {
			return refuse(codes.InvalidArgument, "path %s has a part of %d bytes, and %d are possible", path, len(part), maxPart)
		}
	}
	return nil
}

// maxPart is the kernel's NAME_MAX.
const maxPart = 255

// readCapability reads one capability. unsupported is the code for one that is
// well formed but not offered: the specification wants INVALID_ARGUMENT when a
// volume is made, and FAILED_PRECONDITION when it is used.
func readCapability(c *csi.VolumeCapability, unsupported codes.Code) (record.Use, error) {
	var use record.Use
	if c == nil {
		return use, refuse(codes.InvalidArgument, "volume_capability is missing")
	}
	mode := c.GetAccessMode().GetMode()
	switch mode {
	case csi.VolumeCapability_AccessMode_UNKNOWN:
		return use, refuse(codes.InvalidArgument, "access_mode is missing")
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
	case csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		return use, refuse(unsupported, "access mode %s is not offered: a local volume is on one node only", mode)
	default:
		return use, refuse(unsupported, "access mode %s is not known", mode)
	}
	switch access := c.GetAccessType().(type) {
	case *csi.VolumeCapability_Mount:
		group := access.Mount.GetVolumeMountGroup()
		if _, err := readGroup(group); err != nil {
			return use, err
		}
		return record.Use{
			AccessMode: mode.String(),
			FSType:     access.Mount.GetFsType(),
			MountFlags: access.Mount.GetMountFlags(),
			Group:      group,
		}, nil
	case *csi.VolumeCapability_Block:
		return record.Use{AccessMode: mode.String(), Block: true}, nil
	default:
		return use, refuse(codes.InvalidArgument, "access_type is missing: mount and block are offered")
	}
}

// readCapabilities reads into a plan what a new volume must be able to do.
func (p *plan) readCapabilities(capabilities []*csi.VolumeCapability) error {
	if len(capabilities) == 0 {
		return refuse(codes.InvalidArgument, "volume_capabilities are missing")
	}
	for i, c := range capabilities {
		use, err := readCapability(c, codes.InvalidArgument)
		if err != nil {
			return err
		}
		if i > 0 && use.Block != p.block {
			return refuse(codes.InvalidArgument, "a volume is either a block device or mounted")
		}
		p.block = use.Block
		if _, err := mount.Parse(use.MountFlags); err != nil {
			return refuse(codes.InvalidArgument, "%v", err)
		}
		p.flags = append(p.flags, use.MountFlags...)
		asked := filesystem.Type(use.FSType)
		if asked == "" {
			continue
		}
		if !slices.Contains(filesystem.Types(), asked) {
			return refuse(codes.InvalidArgument, "fs_type %q is not offered; use one of %v", asked, filesystem.Types())
		}
		if p.fsType != "" && p.fsType != asked {
			return refuse(codes.InvalidArgument, "a volume cannot be both %s and %s", p.fsType, asked)
		}
		p.fsType = asked
	}
	if p.block && p.fsType != "" {
		return refuse(codes.InvalidArgument, "a block device holds no %s; leave fs_type out", p.fsType)
	}
	return nil
}

// readSource reads a volume_content_source.
func readSource(s *csi.VolumeContentSource) (*record.Source, error) {
	switch source := s.GetType().(type) {
	case nil:
		if s != nil {
			return nil, refuse(codes.InvalidArgument, "volume_content_source is empty")
		}
		return nil, nil
	case *csi.VolumeContentSource_Snapshot:
		return &record.Source{Snapshot: source.Snapshot.GetSnapshotId()}, required("snapshot_id", source.Snapshot.GetSnapshotId())
	case *csi.VolumeContentSource_Volume:
		return &record.Source{Volume: source.Volume.GetVolumeId()}, required("volume_id", source.Volume.GetVolumeId())
	default:
		return nil, refuse(codes.InvalidArgument, "volume_content_source is of a kind that is not known")
	}
}

// onlyKnown names the keys of a map that nobody reads.
func onlyKnown(field string, values map[string]string, known ...string) error {
	var strange []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(known, key) {
			strange = append(strange, key)
		}
	}
	switch {
	case len(strange) == 0:
		return nil
	case len(known) == 0:
		return refuse(codes.InvalidArgument, "unknown %s: %s; the local driver takes none", field, strings.Join(strange, ", "))
	}
	return refuse(codes.InvalidArgument, "unknown %s: %s; the local driver takes %s", field, strings.Join(strange, ", "), strings.Join(known, ", "))
}

// topology is where the volumes of a node can be reached.
func topology(node string) *csi.Topology {
	return &csi.Topology{Segments: map[string]string{TopologyKey: node}}
}

// covers reports whether a topology has the node in it. Keys know no case (CSI
// spec, Topology).
func covers(t *csi.Topology, node string) bool {
	for key, value := range t.GetSegments() {
		if !strings.EqualFold(key, TopologyKey) || value != node {
			return false
		}
	}
	return true
}

// readTopology reports whether a volume may be made on the node. Preferences
// alone forbid nothing.
func readTopology(r *csi.TopologyRequirement, node string) (here bool) {
	requisite := r.GetRequisite()
	return len(requisite) == 0 || slices.ContainsFunc(requisite, func(t *csi.Topology) bool { return covers(t, node) })
}
