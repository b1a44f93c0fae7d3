package api

// DetachFrom says from where a volume is to be detached; empty is everywhere.
type DetachFrom struct {
	// NodeID is a node, or the provider's name of one.
	NodeID NodeID `json:"node_id,omitempty"`
	// AllocID is the whole id of an allocation that holds the volume.
	AllocID AllocID `json:"alloc_id,omitempty"`
}

// Nowhere says where nothing is attached.
func (f DetachFrom) Nowhere() string {
	switch {
	case f.NodeID != "":
		return "not attached to node " + string(f.NodeID)
	case f.AllocID != "":
		return "not held by allocation " + f.AllocID.Short()
	}
	return "attached to no node, and held by no allocation"
}

// DetachRequest asks for a volume to be detached.
type DetachRequest struct {
	DetachFrom
	// Stop stops the allocations that use it first. Without it they keep it.
	Stop bool `json:"stop,omitempty"`
	// By is who asks, for the record.
	By string `json:"by,omitempty"`
}

// maxNodeName is how long a provider's name of a node may be (CSI spec, Size
// Limits).
const maxNodeName = 256

// Validate reports every problem of the request.
func (r *DetachRequest) Validate() error {
	var p Problems
	if r.NodeID != "" && r.AllocID != "" {
		p.Add("alloc_id", "is given, and so is node_id", "give one of them")
	}
	// It may be the provider's name, which is a name of its own kind.
	if len(r.NodeID) > maxNodeName {
		p.Addf("node_id", "give the node's id, or the provider's name for it", "is %d bytes long, and may be %d", len(r.NodeID), maxNodeName)
	}
	if r.AllocID != "" {
		p.Name("alloc_id", string(r.AllocID))
	}
	p.said(r.By, "")
	return p.Err("the detachment")
}

// Detach is what a detachment is about, as it was asked for. It is done when
// none of the attachments holds the volume, and no publication is left on which
// there is none.
type Detach struct {
	Attachments []*Attachment `json:"attachments"`
	// Stopped are the allocations that are stopped for it.
	Stopped      []*Allocation  `json:"stopped"`
	Publications []*Publication `json:"publications"`
	// Waits are for what the volume waits.
	Waits []Wait `json:"waits,omitempty"`
}
