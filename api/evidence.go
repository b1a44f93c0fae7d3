package api

import "time"

// EvidenceKind is on whose word a node's hold on its volumes counts no more.
type EvidenceKind string

// The kinds of evidence.
const (
	// EvidenceReported: the node itself has said that nothing is mounted. Steps
	// that a node has said are not passed over, and carry no evidence.
	EvidenceReported EvidenceKind = "reported"
	// EvidenceDetach: the plugin has detached the volume, and its configuration
	// says that this cuts the node off.
	EvidenceDetach EvidenceKind = "detach-is-fence"
	// EvidenceOperator: a person says that the machine is off, or cut off from
	// its storage.
	EvidenceOperator EvidenceKind = "operator"
	// EvidenceAgent: a fence agent has switched the machine off.
	EvidenceAgent EvidenceKind = "fence-agent"
	// EvidenceLease: the node's lease has run out, and the time that it has to
	// kill its tasks has passed.
	EvidenceLease EvidenceKind = "lease"
)

// EvidenceKinds lists the kinds.
func EvidenceKinds() []EvidenceKind {
	return []EvidenceKind{EvidenceReported, EvidenceDetach, EvidenceOperator, EvidenceAgent, EvidenceLease}
}

// Evidence is why the steps of a node that cannot answer are passed over. It is
// kept with whatever moves because of it.
type Evidence struct {
	Kind EvidenceKind `json:"kind"`
	// By is who says so, as far as it is known.
	By string `json:"by,omitempty"`
	// Reason is how they know.
	Reason string    `json:"reason"`
	Time   time.Time `json:"time,omitzero"`
	// Epoch is the node's epoch that ended by it.
	Epoch uint64 `json:"epoch"`
}

// String is the evidence as people read it.
func (e *Evidence) String() string {
	if e == nil {
		return ""
	}
	who := string(e.Kind)
	if e.By != "" {
		who += " " + e.By
	}
	return who + ": " + e.Reason
}

// FenceRequest is somebody's word that a node is off, or cut off from its
// storage.
type FenceRequest struct {
	// By is who says so, for the record.
	By string `json:"by,omitempty"`
	// Reason is how they know that the node can write to nothing any more.
	Reason string `json:"reason"`
	// Force fences a node although its agent is in contact.
	Force bool `json:"force,omitempty"`
}

// The longest words of an evidence, in bytes: they stand in every step that is
// passed over.
const (
	maxBy     = 128
	maxReason = 512
)

// Validate reports what is wrong with the evidence.
func (e *Evidence) Validate() error {
	var p Problems
	oneOf(&p, "kind", e.Kind, EvidenceKinds()...)
	if e.Reason == "" {
		p.Add("reason", "is empty", "say how you know that the machine is off, or cut off from its storage")
	}
	p.said(e.By, e.Reason)
	return p.Err("the evidence")
}
