package csitest

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Options is the kind of driver that a backend has. The zero value is a plain
// one: it creates and deletes, and publishes on nodes without attaching or
// staging.
type Options struct {
	Name          string
	VendorVersion string
	// NoController: the plugin has no controller service at all.
	NoController bool
	// Attach, Stage, Topology, PublishReadonly and MultiWriter turn on
	// PUBLISH_UNPUBLISH_VOLUME, STAGE_UNSTAGE_VOLUME,
	// VOLUME_ACCESSIBILITY_CONSTRAINTS, PUBLISH_READONLY and
	// SINGLE_NODE_MULTI_WRITER.
	Attach          bool
	Stage           bool
	Topology        bool
	PublishReadonly bool
	MultiWriter     bool
	// MountGroup turns on VOLUME_MOUNT_GROUP.
	MountGroup bool
	// Clone turns on CLONE_VOLUME. Snapshots are those that the provider has,
	// and turn on CREATE_DELETE_SNAPSHOT.
	Clone     bool
	Snapshots []string
	// GetVolume and Conditions turn on GET_VOLUME and VOLUME_CONDITION. NoList
	// turns off LIST_VOLUMES.
	GetVolume  bool
	Conditions bool
	NoList     bool
	// Endless: ListVolumes goes in circles.
	Endless bool
	// Snapshot turns on CREATE_DELETE_SNAPSHOT, with snapshots that are made of
	// volumes. SnapshotWork is how many answers say that one is not ready yet.
	// SnapshotsDepend: a volume is not deleted before its snapshots, nor a
	// snapshot before the volumes that were made from it.
	Snapshot        bool
	SnapshotWork    int
	SnapshotsDepend bool
	// ListSnapshots turns on LIST_SNAPSHOTS, of those that were made of volumes.
	ListSnapshots bool
	// Expand and NodeExpand turn on EXPAND_VOLUME of the controller and of the
	// nodes; with both, the nodes have to expand what the controller has. Offline:
	// only volumes that are on no node are expanded. NodeOffline: nodes expand only
	// what is staged, and not what is published. Largest is the most that a volume
	// can be expanded to, without limit if 0.
	Expand, NodeExpand, Offline, NodeOffline bool
	Largest                                  int64
	// Modify turns on MODIFY_VOLUME, with the parameters iops and throughput.
	Modify bool
	// UnknownPlugin, UnknownController and UnknownNode are advertised on top:
	// values that no specification may know.
	UnknownPlugin     []int32
	UnknownController []int32
	UnknownNode       []int32
	// DetachIsFence: a volume may be detached while its node has it staged or
	// published, and the node can write to it no more.
	DetachIsFence bool
	// Capacity is how many bytes there are for volumes, without limit if 0.
	Capacity int64
	// RoomAt is how many bytes there are in topologies with a segment of that
	// value, of those that have a limit.
	RoomAt map[string]int64
	// Seed is the chance's of faults with a probability.
	Seed uint64
	// Named: a volume's context has the name that it was made with.
	Named bool
	// Forget: Calls stays empty. For benchmarks of millions of calls.
	Forget bool
}

// Everything is a driver with all capabilities.
func Everything() Options {
	return Options{
		Attach: true, Stage: true, Topology: true, PublishReadonly: true, MultiWriter: true, Clone: true, Snapshot: true,
		GetVolume: true, Conditions: true,
	}
}

// Backend is a storage provider. It is safe for concurrent use.
type Backend struct {
	options Options

	mu         sync.Mutex
	volumes    map[string]*volume // by id
	snapshots  map[string]*snapshot
	cut        int // snapshots ever made
	nodes      map[string]*node
	used       int64
	attached   int // attachments ever made
	calls      []*record
	seq        int
	busy       map[string][]*call // in flight, by volume id
	violations []string
	faults     []*Fault
	deceived   map[string]bool // by volume id
	chance     *rand.Rand
}

// NewBackend makes an empty provider.
func NewBackend(o Options) *Backend {
	o.Name = cmp.Or(o.Name, "csitest.berth.dev")
	o.VendorVersion = cmp.Or(o.VendorVersion, "1.0.0")
	return &Backend{
		options: o,
		volumes: make(map[string]*volume), snapshots: make(map[string]*snapshot),
		nodes:    make(map[string]*node),
		busy:     make(map[string][]*call),
		deceived: make(map[string]bool),
		chance:   rand.New(rand.NewPCG(o.Seed, o.Seed)),
	}
}

// Add puts a volume into the provider that nobody made through CSI, and that
// may be used in every way.
func (b *Backend) Add(id string, context map[string]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.volumes[id] = &volume{
		id: id, name: id, request: &csi.CreateVolumeRequest{Name: id}, added: true,
		capacity: defaultCapacity, grown: defaultCapacity, context: context, on: make(map[string]*presence),
	}
}

// volume is what the provider knows of one, and what callers were told of it.
type volume struct {
	id       string
	name     string
	added    bool // by Add
	request  *csi.CreateVolumeRequest
	capacity int64
	// grown is the size to which nodes have had it grown, or in which it was made.
	grown int64
	// told is the size that callers were told it was expanded to.
	told int64
	// inUseOn is where, node and path, it was not expanded because it was in use.
	inUseOn  string
	mutable  map[string]string
	context  map[string]string
	topology []map[string]string
	// refused: the last call to make it was answered that it made nothing, so the
	// next may be another.
	refused bool
	problem string // why it is abnormal; empty if it is well
	// on has the nodes where anything of it is, or was asked for.
	on map[string]*presence
}

// presence is one volume on one node.
type presence struct {
	attachment thing
	context    map[string]string // the publish context
	stage      thing
	targets    map[string]*thing
	// cut: it was detached as a fence; what is mounted cannot write.
	cut bool
}

// node is a machine. It outlives the drivers on it, as mounts do.
type node struct {
	topology   map[string]string
	maxVolumes int64
	attached   int64
	// paths is what was asked to be at a path.
	paths map[string]*thing
}

// Volume is what the provider has of one volume.
type Volume struct {
	ID       string
	Name     string
	Capacity int64
	// Grown is the size of what is on it, if nodes expand.
	Grown   int64
	Mutable map[string]string
	// Attached and Staged are nodes, Published is node:path.
	Attached  []string
	Staged    []string
	Published []string
}

// Volumes is everything that the provider has, by name: whatever is left at
// the end of a test leaked.
func (b *Backend) Volumes() []Volume {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Volume, 0, len(b.volumes))
	for _, v := range b.volumes {
		s := Volume{ID: v.id, Name: v.name, Capacity: v.capacity, Mutable: maps.Clone(v.mutable)}
		if b.options.NodeExpand {
			s.Grown = v.grown
		}
		for _, id := range slices.Sorted(maps.Keys(v.on)) {
			p := v.on[id]
			if p.attachment.real {
				s.Attached = append(s.Attached, id)
			}
			if p.stage.real {
				s.Staged = append(s.Staged, id)
			}
			for _, path := range slices.Sorted(maps.Keys(p.targets)) {
				if p.targets[path].real {
					s.Published = append(s.Published, id+":"+path)
				}
			}
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Volume) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Violations is every call that broke the specification's rules for callers,
// as a sentence each. At the end of a test it must be empty.
func (b *Backend) Violations() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.violations)
}

// Reboot takes everything staged and published on the node away, as a reboot
// does, or a machine that is switched off. What is attached stays attached.
func (b *Backend) Reboot(nodeID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.nodes[nodeID]; n != nil {
		clear(n.paths)
	}
	for _, v := range b.volumes {
		if p := v.on[nodeID]; p != nil {
			p.stage = thing{}
			clear(p.targets)
		}
	}
}

// volumeID is the id of the volume with that name. It is made to hurt whoever
// builds a path, a URL or a key from it.
func volumeID(name string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return fmt.Sprintf("pool a/v#%016x?x=1&y=../ü", h.Sum64())
}

// presence is the volume's row for the node; the caller holds the lock.
func (v *volume) presence(nodeID string) *presence {
	p := v.on[nodeID]
	if p == nil {
		p = &presence{targets: make(map[string]*thing)}
		v.on[nodeID] = p
	}
	return p
}

// target is the publication at the path; the caller holds the lock.
func (p *presence) target(path string) *thing {
	t := p.targets[path]
	if t == nil {
		t = &thing{}
		p.targets[path] = t
	}
	return t
}

// allows reports whether the volume was made to be used so.
func (v *volume) allows(c *csi.VolumeCapability) bool {
	return v.added || slices.ContainsFunc(v.request.GetVolumeCapabilities(), func(made *csi.VolumeCapability) bool {
		return made.GetAccessMode().GetMode() == c.GetAccessMode().GetMode() &&
			(made.GetBlock() == nil) == (c.GetBlock() == nil)
	})
}

// multiNode reports whether the volume was made for several nodes at once.
func (v *volume) multiNode() bool {
	return v.added || slices.ContainsFunc(v.request.GetVolumeCapabilities(), func(c *csi.VolumeCapability) bool {
		return multiNode(c.GetAccessMode().GetMode())
	})
}

func multiNode(mode csi.VolumeCapability_AccessMode_Mode) bool {
	switch mode {
	case csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		return true
	case csi.VolumeCapability_AccessMode_UNKNOWN,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
	}
	return false
}
