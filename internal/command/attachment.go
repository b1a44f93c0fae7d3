package command

import (
	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

// AdvanceAttachment moves an attachment forward by the servers' own knowledge.
type AdvanceAttachment struct {
	AllocID api.AllocID         `json:"alloc_id"`
	Name    string              `json:"name"`
	Version uint64              `json:"version"`
	To      api.AttachmentState `json:"to"`
	// Skipped: the plugin's capabilities do not need the step.
	Skipped bool `json:"skipped,omitempty"`
}

// Kind implements Command.
func (*AdvanceAttachment) Kind() Kind { return "attachment.advance" }

// Validate implements Command.
func (c *AdvanceAttachment) Validate() error {
	var p api.Problems
	if c.To.Rank() < 0 {
		p.Addf("to", "use a state of an attachment", "is %q", c.To)
	}
	return p.Err("the step")
}

// Apply implements Command. The checks are those of the specification's order:
// nothing is mounted that is not attached, and nothing is freed that may still
// be mounted or attached.
func (c *AdvanceAttachment) Apply(tx *state.Tx) error {
	a := tx.Attachment(c.AllocID, c.Name)
	if a == nil || a.Version != c.Version {
		return conflict("attachment %s of allocation %s has changed", c.Name, c.AllocID.Short())
	}
	if !a.Status.State.Before(c.To) {
		return conflict("attachment %s is %s already", c.Name, a.Status.State)
	}
	if err := c.inOrder(tx, a); err != nil {
		return err
	}
	next := *a
	step(tx, &next, c.To, c.Skipped)
	tx.PutAttachment(&next)
	if c.To.Before(api.NodeDetached) {
		tx.Touch(a.NodeID)
	}
	if c.To == api.Freed {
		endEphemeral(tx, a)
	}
	return nil
}

// inOrder checks that everything that must come before the step has come.
func (c *AdvanceAttachment) inOrder(tx *state.Tx, a *api.Attachment) error {
	switch c.To {
	case api.ControllerPublished:
		return c.attached(tx, a)
	case api.NodePublished, api.NodeDetached:
		return conflict("only node %s can say that attachment %s is %s", a.NodeID, c.Name, c.To)
	case api.ControllerDetached, api.Freed:
		if a.Status.State.Before(api.NodeDetached) {
			return conflict("attachment %s may still be mounted on node %s", c.Name, a.NodeID)
		}
		return c.alone(tx, a)
	case api.Claimed, api.Unpublishing:
	}
	return nil
}

// attached checks that the provider has attached the volume, or was never
// asked to because the plugin does not need it.
func (c *AdvanceAttachment) attached(tx *state.Tx, a *api.Attachment) error {
	want := api.OutcomePublished
	if c.Skipped {
		want = api.OutcomeNone
	}
	if pub := tx.Publication(a.Namespace, a.VolumeID, a.NodeID); pub == nil || pub.Status.Outcome != want {
		return conflict("volume %s is not attached to node %s", a.VolumeID, a.NodeID)
	}
	if vol := tx.Volume(a.Namespace, a.VolumeID); vol != nil {
		if other := Called(tx.View, vol); other != "" {
			return conflict("volume %s waits for operation %s", a.VolumeID, other)
		}
	}
	return nil
}

// alone checks that the last attachment to leave a node does not leave its
// volume attached there.
func (c *AdvanceAttachment) alone(tx *state.Tx, a *api.Attachment) error {
	for other := range tx.NodeHolders(a.Namespace, a.VolumeID, a.NodeID) {
		if other.Status.State.Before(api.NodeDetached) {
			return nil
		}
	}
	pub := tx.Publication(a.Namespace, a.VolumeID, a.NodeID)
	if pub != nil && (pub.MayBeAttached() || pub.Status.Staged) {
		return conflict("volume %s may still be attached to node %s", a.VolumeID, a.NodeID)
	}
	return nil
}

// step moves an attachment to a state and records the way: what lies between
// is recorded as passed over.
func step(tx *state.Tx, a *api.Attachment, to api.AttachmentState, skipped bool) {
	steps := make([]api.AttachmentStep, len(a.Status.Steps), len(a.Status.Steps)+2)
	copy(steps, a.Status.Steps)
	for _, s := range api.AttachmentStates() {
		if s.Rank() <= a.Status.State.Rank() || s.Rank() > to.Rank() {
			continue
		}
		steps = append(steps, api.AttachmentStep{State: s, Time: tx.Now(), Skipped: skipped || s != to})
	}
	a.Status.State, a.Status.Steps = to, steps
}

// ForgetPublication removes a publication that nobody uses and that the
// provider does not have.
type ForgetPublication struct {
	Namespace api.NamespaceID `json:"namespace"`
	VolumeID  api.VolumeID    `json:"volume_id"`
	NodeID    api.NodeID      `json:"node_id"`
	Version   uint64          `json:"version"`
}

// Kind implements Command.
func (*ForgetPublication) Kind() Kind { return "publication.forget" }

// Validate implements Command.
func (c *ForgetPublication) Validate() error { return nil }

// Apply implements Command. A publication that was ever asked for is detached
// before it is forgotten.
func (c *ForgetPublication) Apply(tx *state.Tx) error {
	pub := tx.Publication(c.Namespace, c.VolumeID, c.NodeID)
	if pub == nil || pub.Version != c.Version {
		return conflict("the publication of volume %s on node %s has changed", c.VolumeID, c.NodeID)
	}
	if pub.MayBeAttached() || pub.Status.Staged || pub.Status.Operation != "" {
		return conflict("volume %s may still be attached to node %s", c.VolumeID, c.NodeID)
	}
	for h := range tx.NodeHolders(c.Namespace, c.VolumeID, c.NodeID) {
		return conflict("allocation %s uses volume %s on node %s", h.AllocID.Short(), c.VolumeID, c.NodeID)
	}
	tx.DeletePublication(pub)
	return nil
}
