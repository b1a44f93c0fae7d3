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
