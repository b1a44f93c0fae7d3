package localdriver

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/berth-dev/berth/internal/localdriver/filesystem"
	"github.com/berth-dev/berth/internal/localdriver/mount"
	"github.com/berth-dev/berth/internal/localdriver/record"
)

// The parameters of CreateVolume.
const (
	// paramKind says what the volume is made of; the driver chooses without it.
	paramKind = "kind"
	// paramFSType is the file system of an image whose capabilities name none.
	paramFSType = "fs_type"
)

// kinds are the values of paramKind.
func kinds() []record.Content {
	return []record.Content{record.Directory, record.Image, record.Subvolume}
}

// plan is what CreateVolume was asked for.
type plan struct {
	name string
	size size
	// kind is empty where the request left it to the driver.
	kind record.Content
	// fsType is empty where the request left it to the driver.
	fsType filesystem.Type
	// block: the user wants a block device.
	block bool
	// flags are all mount flags that the volume must be able to have.
	flags []string
	// source is what the volume starts as a copy of; nil for an empty one.
	source *record.Source
	// here: the volume may be made on this node.
	here bool
}

// content is what a volume is to be made of that starts empty. subvolumes: the
// node can make them.
func (p plan) content(subvolumes bool) (record.Content, error) {
	bad, fitsDirectory := directoryFlag(p.flags)
	switch {
	case p.block && p.kind != "" && p.kind != record.Image:
		return "", refuse(codes.InvalidArgument, "a volume of the kind %s cannot be a block device; use the kind image or none", p.kind)
	case p.block:
		return record.Block, nil
	case p.kind == record.Image:
		return record.Image, nil
	case p.kind == record.Subvolume && !subvolumes:
		return "", refuse(codes.InvalidArgument, "subvolumes need a root directory on btrfs, and the program btrfs (package btrfs-progs)")
	case p.kind == "" && p.size.wanted && (!subvolumes || !fitsDirectory || p.fsType != "" && p.fsType != filesystem.Btrfs):
		return record.Image, nil
	case p.kind == record.Directory && p.size.wanted:
		return "", refuse(codes.InvalidArgument, "a plain directory has no capacity; leave the capacity or the kind out")
	case p.fsType != "" && (p.kind == record.Directory || p.fsType != filesystem.Btrfs || !p.size.wanted):
		return "", refuse(codes.InvalidArgument,
			"a volume without a capacity is a plain directory and holds no %s; ask for a capacity or leave fs_type out", p.fsType)
	case !fitsDirectory:
		return "", refuse(codes.InvalidArgument,
			"a volume without a capacity is a plain directory and cannot have the mount flag %q; ask for a capacity or leave it out", bad)
	case p.kind == record.Directory || !subvolumes:
		return record.Directory, nil
	}
	return record.Subvolume, nil
}

// directoryFlag names a mount flag that only a file system of one's own has.
func directoryFlag(flags []string) (bad string, ok bool) {
	options, err := mount.Parse(flags)
	if err != nil {
		return err.Error(), false // was refused when the request was read
	}
	return options.ForDirectory()
}

// body is what an empty volume consists of.
func (p plan) body(subvolumes bool) (record.Body, error) {
	content, err := p.content(subvolumes)
	if err != nil {
		return record.Body{}, err
	}
	b := record.Body{Content: content}
	switch content {
	case record.Image:
		fsType := cmp.Or(p.fsType, filesystem.Types()[0])
		b.FileSystem = &record.FileSystem{Type: string(fsType), UUID: newUUID()}
		b.Capacity, err = p.size.choose(string(fsType), smallest(content, fsType))
	case record.Block, record.Subvolume:
		if content == record.Block || p.size.wanted {
			b.Capacity, err = p.size.choose(string(content), smallest(content, ""))
		}
	case record.Directory:
	}
	return b, err
}

// subvolumeMin leaves a subvolume room for its own administration.
const subvolumeMin = 1 << 20

// copyOf is what a copy of the original consists of.
func (p plan) copyOf(from record.Body) (record.Body, error) {
	b := record.Body{Content: from.Content, Capacity: from.Capacity}
	if p.block != (from.Content == record.Block) {
		return b, refuse(codes.InvalidArgument, "the source is a %s: block and mount access do not mix", from.Content)
	}
	if p.kind != "" && p.kind != from.Content && (p.kind != record.Image || from.Content != record.Block) {
		return b, refuse(codes.InvalidArgument, "the source is a %s, and a copy of it cannot be a %s", from.Content, p.kind)
	}
	if problem := fsMismatch(from, p.fsType); problem != "" {
		return b, refuse(codes.InvalidArgument, "the source does not fit: %s", problem)
	}
	if bad, ok := directoryFlag(p.flags); !ok && !from.Sparse() {
		return b, refuse(codes.InvalidArgument, "the source is a %s, and cannot have the mount flag %q", from.Content, bad)
	}
	if p.size.wanted && from.Content == record.Directory {
		return b, refuse(codes.InvalidArgument, "the source is a plain directory, and a copy of it has no capacity; leave the capacity out")
	}
	if p.size.wanted && (from.Capacity != 0 || p.size.required > 0) {
		larger := p.size
		larger.required = max(larger.required, from.Capacity)
		if larger.limit > 0 && larger.limit < from.Capacity {
			return b, refuse(codes.OutOfRange, "the source has %d bytes, more than the limit of %d", from.Capacity, p.size.limit)
		}
		var err error
		if b.Capacity, err = larger.choose("a copy", sector); err != nil {
			return b, err
		}
		if p.size.required > 0 && p.size.required < from.Capacity {
			return b, refuse(codes.OutOfRange, "the source has %d bytes, and a copy of it cannot have %d", from.Capacity, p.size.required)
		}
	}
	b.FileSystem = copiedFileSystem(from, b.Capacity)
	return b, nil
}

// copiedFileSystem is the file system of a copy with that capacity.
func copiedFileSystem(from record.Body, capacity int64) *record.FileSystem {
	if from.FileSystem == nil {
		return nil
	}
	fs := *from.FileSystem
	if fs.Formatted {
		fs.Grow = fs.Grow || capacity > from.Capacity
	} else {
		fs.UUID, fs.Grow = newUUID(), false // nothing was copied but emptiness
	}
	return &fs
}

// fsMismatch says why something is not of the file system that is asked for.
func fsMismatch(b record.Body, asked filesystem.Type) (problem string) {
	switch {
	case asked == "", b.Content == record.Subvolume && asked == filesystem.Btrfs:
		return ""
	case b.FileSystem == nil || b.FileSystem.Type != string(asked):
		return fmt.Sprintf("it does not hold %s", asked)
	}
	return ""
}

// compatible reports whether a volume that exists is what is asked for.
func (p plan) compatible(rec record.Volume) error {
	var problem string
	switch {
	case rec.Name != p.name:
		problem = fmt.Sprintf("it was made for the name %q", rec.Name)
	case !p.here:
		problem = "it is on a node that the accessibility requirements leave out"
	case !sameSource(rec.Source, p.source):
		problem = "it was not made from this volume_content_source"
	case p.block != (rec.Content == record.Block):
		problem = fmt.Sprintf("it is a %s", rec.Content)
	case p.kind != "" && !p.block && rec.Content != p.kind:
		problem = fmt.Sprintf("it is a %s", rec.Content)
	case p.size.wanted && rec.Capacity == 0:
		problem = "it is a plain directory without a capacity"
	case p.size.wanted && (rec.Capacity < p.size.required || p.size.limit > 0 && rec.Capacity > p.size.limit):
		problem = fmt.Sprintf("its capacity is %d bytes", rec.Capacity)
	default:
		if problem = fsMismatch(rec.Body, p.fsType); problem == "" {
			return nil
		}
	}
	return refuse(codes.AlreadyExists, "volume %s exists and does not fit: %s", rec.ID, problem)
}

func sameSource(a, b *record.Source) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
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

// defaultCapacity is that of an image or block device of no required size.
const defaultCapacity = 1 << 30

// choose is the capacity in the range for what, which needs at least smallest:
// what is required, rounded up to what can be made.
func (s size) choose(what string, smallest int64) (int64, error) {
	if s.required > math.MaxInt64-sector {
		return 0, refuse(codes.OutOfRange, "no file can have %d bytes", s.required)
	}
	capacity := (s.required + sector - 1) / sector * sector
	if s.required == 0 {
		capacity = defaultCapacity
		if s.limit > 0 {
			capacity = min(s.limit/sector*sector, capacity)
		}
	}
	capacity = max(capacity, smallest)
	if s.limit > 0 && capacity > s.limit {
		return 0, refuse(codes.OutOfRange,
			"the smallest volume of %s that has %d bytes has %d, more than the limit of %d (at least %d are needed, in steps of %d)",
			what, s.required, capacity, s.limit, smallest, sector)
	}
	return capacity, nil
}

// readParameters reads the parameters of a volume, and names those that are
// not known.
func (p *plan) readParameters(parameters map[string]string) error {
	if err := onlyKnown("parameters", parameters, paramKind, paramFSType); err != nil {
		return err
	}
	kind, fsType := record.Content(parameters[paramKind]), filesystem.Type(parameters[paramFSType])
	switch {
	case kind != "" && !slices.Contains(kinds(), kind):
		return refuse(codes.InvalidArgument, "parameter %s is %q; use one of %v", paramKind, kind, kinds())
	case fsType != "" && !slices.Contains(filesystem.Types(), fsType):
		return refuse(codes.InvalidArgument, "parameter %s is %q; use one of %v", paramFSType, fsType, filesystem.Types())
	case fsType != "" && kind != "" && kind != record.Image:
		return refuse(codes.InvalidArgument, "a volume of the kind %s holds no file system of its own; leave %s out", kind, paramFSType)
	case fsType != "" && p.fsType != "" && fsType != p.fsType:
		return refuse(codes.InvalidArgument, "parameter %s is %s, and a capability wants %s", paramFSType, fsType, p.fsType)
	}
	p.kind = kind
	if fsType != "" && !p.block {
		p.kind, p.fsType = record.Image, fsType
	}
	return nil
}

// smallest is the least that a volume can have, in bytes.
func smallest(content record.Content, fsType filesystem.Type) int64 {
	switch content {
	case record.Image:
		return cmp.Or(fsType, filesystem.Types()[0]).MinSize()
	case record.Block:
		return sector
	case record.Subvolume:
		return subvolumeMin
	case record.Directory:
	}
	return 0
}
