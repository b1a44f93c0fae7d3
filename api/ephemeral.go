package api

// EphemeralVolume is a volume that is made for an allocation and goes with it.
// Its capability and mount options are the request's.
type EphemeralVolume struct {
	PluginID PluginID `json:"plugin_id"`
	// CapacityMin and CapacityMax bound the size in bytes; 0 leaves a bound to
	// the plugin.
	CapacityMin int64             `json:"capacity_min,omitempty"`
	CapacityMax int64             `json:"capacity_max,omitempty"`
	Parameters  map[string]string `json:"parameters,omitempty"`
	// SnapshotID is the snapshot that each begins as, as in a volume's spec; empty
	// for empty ones.
	SnapshotID string `json:"snapshot_id,omitempty"`
}

// EphemeralID is the id of an allocation's volume for the request of that name.
func EphemeralID(alloc AllocID, request string) VolumeID {
	return VolumeID(string(alloc) + "." + request)
}

// maxEphemeralName is what a volume's id leaves to the request's name.
const maxEphemeralName = 30

// Spec is the spec of an allocation's volume for the request.
func (e *EphemeralVolume) Spec(r *VolumeRequest) VolumeSpec {
	return VolumeSpec{
		PluginID:    e.PluginID,
		CapacityMin: e.CapacityMin, CapacityMax: e.CapacityMax,
		Capabilities: []Capability{{AccessMode: r.AccessMode, AttachmentMode: r.AttachmentMode}},
		MountOptions: r.MountOptions,
		Parameters:   e.Parameters,
		SnapshotID:   e.SnapshotID,
	}
}

// validateEphemeral reports what is wrong with a volume that is made for each
// allocation, beside what the request says of every volume.
func (r *VolumeRequest) validateEphemeral(p *Problems, path string) {
	none := func(name string, there bool) {
		if there {
			p.Add(path+"."+name, "makes no sense beside ephemeral: each allocation gets a new volume of its own", "remove one of them")
		}
	}
	none("source", r.Source != "")
	none("per_alloc", r.PerAlloc)
	none("wait_timeout", r.WaitTimeout != 0)
	if len(r.Name) > maxEphemeralName {
		p.Addf(path, "shorten the name", "is longer than the %d characters that an ephemeral volume's request may have", maxEphemeralName)
	}
	if r.ReadOnly && r.Ephemeral.SnapshotID == "" {
		p.Add(path+".read_only", "makes no sense for a new volume, which is empty", "remove it, or add ephemeral { snapshot_id }")
	}
	at := path + ".ephemeral."
	p.Name(at+"plugin_id", string(r.Ephemeral.PluginID))
	var below Problems
	s := r.Ephemeral.Spec(r)
	s.validateCapacity(&below)
	validateMap(&below, "parameters", s.Parameters)
	validateID(&below, "snapshot_id", s.SnapshotID)
	for _, f := range below.fields {
		p.Add(at+f.Path, f.Message, f.Mend)
	}
}
