package record

import (
	"fmt"
	"maps"
	"slices"
)

// State is where a volume is in its life. It only moves forward.
type State string

// The states.
const (
	// Creating: the content may be missing or half made. Nobody was told of
	// the volume yet, so it can be finished and it can be undone.
	Creating State = "creating"
	// Ready: the content is whole.
	Ready State = "ready"
	// Deleting: the content is going or gone, and must not be used again.
	Deleting State = "deleting"
)

// Content is what a volume is made of.
type Content string

// The contents.
const (
	// Directory is a plain directory on the node's own file system: no size,
	// no limit.
	Directory Content = "directory"
	// Image is a sparse file that holds a file system of its own.
	Image Content = "image"
	// Block is a sparse file that its user gets as a block device.
	Block Content = "block"
	// Subvolume is a subvolume of the node's own btrfs, with or without a limit.
	Subvolume Content = "subvolume"
)

// Body is what a volume or a snapshot consists of.
type Body struct {
	Content Content `json:"content"`
	// Capacity is the size of the image or the limit of the subvolume in bytes;
	// 0 for what has none.
	Capacity int64 `json:"capacity,omitempty"`
	// FileSystem is what an image holds; nil for all others.
	FileSystem *FileSystem `json:"file_system,omitempty"`
}

// Sparse reports whether the content is a sparse file on a loop device.
func (b Body) Sparse() bool { return b.Content == Image || b.Content == Block }

// check reports what in a body no driver has written.
func (b Body) check() error {
	switch {
	case b.Content == Directory && b.FileSystem == nil && b.Capacity == 0:
	case b.Content == Subvolume && b.FileSystem == nil:
	case b.Content == Image && b.FileSystem != nil && b.Capacity > 0:
	case b.Content == Block && b.FileSystem == nil && b.Capacity > 0:
	default:
		return fmt.Errorf("its content is %q and does not fit the rest", b.Content)
	}
	return nil
}

// clone is a copy that shares nothing with b.
func (b Body) clone() Body {
	if b.FileSystem != nil {
		fs := *b.FileSystem
		b.FileSystem = &fs
	}
	return b
}

// Volume is all that the driver knows of a volume.
type Volume struct {
	ID string `json:"id"`
	// Name is the CSI name that CreateVolume was called with.
	Name  string `json:"name"`
	State State  `json:"state"`
	Body
	// Source is what the content was copied from; nil for what began empty.
	Source *Source `json:"source,omitempty"`
	// Frozen is written before the file system is frozen to be copied, and
	// removed after it was thawed.
	Frozen bool `json:"frozen,omitempty"`
	// BootID is the boot in which Staging and Publications were written; they
	// mean nothing after another one.
	BootID  string   `json:"boot_id,omitempty"`
	Staging *Staging `json:"staging,omitempty"`
	// Publications are by target path.
	Publications map[string]Publication `json:"publications,omitempty"`
}

// Source is the id of a snapshot or of a volume.
type Source struct {
	Snapshot string `json:"snapshot,omitempty"`
	Volume   string `json:"volume,omitempty"`
}

// FileSystem is what an image holds.
type FileSystem struct {
	Type string `json:"type"`
	// UUID is chosen when the volume is made, and given to mkfs. A file system
	// that carries it while Formatted is false is the driver's own work, cut
	// off or not yet noted, and was never mounted.
	UUID string `json:"uuid"`
	// Formatted is written after mkfs has ended and before the first mount.
	Formatted bool `json:"formatted"`
	// Grow: the image has become larger, and the file system has not yet.
	Grow bool `json:"grow,omitempty"`
}

// Use is how the orchestrator said that it will use a volume: a
// VolumeCapability in plain words.
type Use struct {
	AccessMode string   `json:"access_mode"`
	Block      bool     `json:"block,omitempty"`
	FSType     string   `json:"fs_type,omitempty"`
	MountFlags []string `json:"mount_flags,omitempty"`
	// Group is the number of the group that may read and write all of it.
	Group string `json:"group,omitempty"`
}

// Equal reports whether two uses are the same.
func (u Use) Equal(o Use) bool {
	return u.AccessMode == o.AccessMode && u.Block == o.Block && u.FSType == o.FSType &&
		slices.Equal(u.MountFlags, o.MountFlags) && u.Group == o.Group
}

// Staging is the one place at which a volume is staged, or about to be.
type Staging struct {
	Path string `json:"path"`
	Use
}

// Equal reports whether two stagings are the same.
func (s Staging) Equal(o Staging) bool { return s.Path == o.Path && s.Use.Equal(o.Use) }

// Publication is what was asked for at one target path.
type Publication struct {
	ReadOnly bool `json:"read_only,omitempty"`
	Use
}

// Equal reports whether two publications are the same.
func (p Publication) Equal(o Publication) bool { return p.ReadOnly == o.ReadOnly && p.Use.Equal(o.Use) }

func (v Volume) ident() string { return v.ID }

// check reports what in a record no driver has written.
func (v Volume) check() error {
	if err := v.State.check(); err != nil {
		return err
	}
	return v.Body.check()
}

func (s State) check() error {
	switch s {
	case Creating, Ready, Deleting:
		return nil
	default:
		return fmt.Errorf("its state is %q", s)
	}
}

// Clone is a copy that shares nothing with v.
func (v Volume) Clone() Volume {
	v.Body = v.Body.clone()
	if v.Source != nil {
		source := *v.Source
		v.Source = &source
	}
	if v.Staging != nil {
		staging := *v.Staging
		staging.MountFlags = slices.Clone(staging.MountFlags)
		v.Staging = &staging
	}
	v.Publications = maps.Clone(v.Publications)
	for target, p := range v.Publications {
		p.MountFlags = slices.Clone(p.MountFlags)
		v.Publications[target] = p
	}
	return v
}
