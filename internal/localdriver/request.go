package localdriver

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
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
		if group := access.Mount.GetVolumeMountGroup(); group != "" {
			return use, refuse(unsupported, "volume_mount_group is not offered")
		}
		return record.Use{
			AccessMode: mode.String(),
			FSType:     access.Mount.GetFsType(),
			MountFlags: access.Mount.GetMountFlags(),
		}, nil
	case *csi.VolumeCapability_Block:
		return use, refuse(unsupported, "block access is not offered: a local volume is mounted")
	default:
		return use, refuse(codes.InvalidArgument, "access_type is missing: a mount is offered")
	}
}

// readCapabilities reads what a new volume must be able to do, and which file
// system that needs; "" is none in particular.
func readCapabilities(capabilities []*csi.VolumeCapability) (filesystem.Type, error) {
	if len(capabilities) == 0 {
		return "", refuse(codes.InvalidArgument, "volume_capabilities are missing")
	}
	var fsType filesystem.Type
	for _, c := range capabilities {
		use, err := readCapability(c, codes.InvalidArgument)
		if err != nil {
			return "", err
		}
		if _, err := mount.Parse(use.MountFlags); err != nil {
			return "", refuse(codes.InvalidArgument, "%v", err)
		}
		asked := filesystem.Type(use.FSType)
		if asked == "" {
			continue
		}
		if !slices.Contains(filesystem.Types(), asked) {
			return "", refuse(codes.InvalidArgument, "fs_type %q is not offered; use one of %v", asked, filesystem.Types())
		}
		if fsType != "" && fsType != asked {
			return "", refuse(codes.InvalidArgument, "a volume cannot be both %s and %s", fsType, asked)
		}
		fsType = asked
	}
	return fsType, nil
}

// directoryFlags refuses mount flags that a plain directory cannot have.
func directoryFlags(flags []string) error {
	options, err := mount.Parse(flags)
	if err != nil {
		return refuse(codes.InvalidArgument, "%v", err)
	}
	if bad, ok := options.ForDirectory(); !ok {
		return refuse(codes.InvalidArgument,
			"a volume without a capacity is a plain directory and cannot have the mount flag %q; ask for a capacity or leave it out", bad)
	}
	return nil
}

// size is a CapacityRange.
type size struct {
	// wanted: a range was given, so the volume needs a limit of its own.
	wanted          bool
	required, limit int64
}

// sector is what sizes are multiples of: a loop device has whole sectors.
const sector = 512

func readSize(r *csi.CapacityRange) (size, error) {
	s := size{required: r.GetRequiredBytes(), limit: r.GetLimitBytes()}
	s.wanted = s.required != 0 || s.limit != 0
	if s.required < 0 || s.limit < 0 {
		return s, refuse(codes.InvalidArgument, "capacity_range is negative")
	}
	if s.limit > 0 && s.required > s.limit {
		return s, refuse(codes.InvalidArgument, "capacity_range requires %d bytes, more than its limit of %d", s.required, s.limit)
	}
	return s, nil
}

// defaultCapacity is that of an image where only a limit is given.
const defaultCapacity = 1 << 30

// choose is the capacity of an image in the range: what is required, rounded
// up to what can be made.
func (s size) choose(fsType filesystem.Type) (int64, error) {
	if s.required > math.MaxInt64-sector {
		return 0, refuse(codes.OutOfRange, "no file can have %d bytes", s.required)
	}
	capacity := (s.required + sector - 1) / sector * sector
	if s.required == 0 {
		capacity = min(s.limit/sector*sector, defaultCapacity)
	}
	capacity = max(capacity, fsType.MinSize())
	if s.limit > 0 && capacity > s.limit {
		return 0, refuse(codes.OutOfRange,
			"the smallest volume of %s that has %d bytes has %d, more than the limit of %d (at least %d are needed, in steps of %d)",
			fsType, s.required, capacity, s.limit, fsType.MinSize(), sector)
	}
	return capacity, nil
}

// readParameters refuses all parameters by name: there are none yet.
func readParameters(parameters map[string]string) error {
	if len(parameters) == 0 {
		return nil
	}
	keys := slices.Sorted(maps.Keys(parameters))
	return refuse(codes.InvalidArgument, "unknown parameters: %s; the local driver takes none", strings.Join(keys, ", "))
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
