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
)

// Volume is all that the driver knows of a volume.
type Volume struct {
	ID string `json:"id"`
	// Name is the CSI name that CreateVolume was called with.
	Name    string  `json:"name"`
	State   State   `json:"state"`
	Content Content `json:"content"`
	// Capacity is the size of the image in bytes; 0 for a directory.
	Capacity int64 `json:"capacity,omitempty"`
	// FileSystem is nil for a directory.
	FileSystem *FileSystem `json:"file_system,omitempty"`
	// BootID is the boot in which Staging and Publications were written; they
	// mean nothing after another one.
	BootID  string   `json:"boot_id,omitempty"`
	Staging *Staging `json:"staging,omitempty"`
	// Publications are by target path.
	Publications map[string]Publication `json:"publications,omitempty"`
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
}

// Use is how the orchestrator said that it will use a volume: a
// VolumeCapability in plain words.
type Use struct {
	AccessMode string   `json:"access_mode"`
	FSType     string   `json:"fs_type,omitempty"`
	MountFlags []string `json:"mount_flags,omitempty"`
}

// Equal reports whether two uses are the same.
func (u Use) Equal(o Use) bool {
	return u.AccessMode == o.AccessMode && u.FSType == o.FSType && slices.Equal(u.MountFlags, o.MountFlags)
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

// check reports what in a record no driver has written.
func (v Volume) check() error {
	switch v.State {
	case Creating, Ready, Deleting:
	default:
		return fmt.Errorf("its state is %q", v.State)
	}
	switch {
	case v.Content == Directory && v.FileSystem == nil:
	case v.Content == Image && v.FileSystem != nil && v.Capacity > 0:
	default:
		return fmt.Errorf("its content is %q and does not fit the rest", v.Content)
	}
	return nil
}

// Clone is a copy that shares nothing with v.
func (v Volume) Clone() Volume {
	if v.FileSystem != nil {
		fs := *v.FileSystem
		v.FileSystem = &fs
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
