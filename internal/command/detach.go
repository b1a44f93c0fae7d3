package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

// DetachVolume is a person's word that a volume is to come off a node: what
// still runs with it is stopped if that is said too, what waits for its next try
// is tried now, and what only the provider knows is detached there.
type DetachVolume struct {
	Namespace api.NamespaceID `json:"namespace"`
	ID        api.VolumeID    `json:"id"`
	// UID is the volume's: another one that has its name is not touched.
	UID  string         `json:"uid"`
	From api.DetachFrom `json:"from"`
	// Stop ends also allocations that are to run.
	Stop bool   `json:"stop,omitempty"`
	By   string `json:"by,omitempty"`
}

// Kind implements Command.
func (*DetachVolume) Kind() Kind { return "volume.detach" }

// Validate implements Command.
func (c *DetachVolume) Validate() error {
	var p api.Problems
	p.VolumeID("id", string(c.ID))
	p.Merge((&api.DetachRequest{DetachFrom: c.From, By: c.By}).Validate())
	return p.Err("the detach")
}

// Apply implements Command. It says what is wanted, and does no step of the
// way: the node lets go of the volume, and then the provider is asked. So it
// loosens nothing that a machine may still be writing to.
func (c *DetachVolume) Apply(tx *state.Tx) error {
	vol := tx.Volume(c.Namespace, c.ID)
	switch {
	case vol == nil:
		return api.Errorf(api.CodeNotFound, "volume %s does not exist in namespace %s", c.ID, c.Namespace)
	case vol.UID != c.UID:
		return conflict("volume %s is another one by now", c.ID)
	}
	held := Detaching(tx.View, vol, c.From)
	if err := held.check(vol, c.From, c.Stop); err != nil {
		return err
	}
	why := fmt.Sprintf("volume %s is to be detached", vol.ID)
	if c.By != "" {
		why += ", says " + c.By
	}
	for _, a := range held.Running {
		next := *a
		next.Desired, next.DesiredReason = api.DesireStop, why
		tx.PutAllocation(&next)
		beginRelease(tx, a.ID)
		tx.Touch(a.NodeID)
	}
	for _, f := range held.Found {
		tx.PutPublication(strayPublication(tx, vol, f))
		tx.DeleteFinding(f)
	}
	for _, pub := range held.Publications {
		// What a node that is gone has asked for may still be running: it is waited for.
		if op := tx.Operation(pub.Status.Operation); op != nil && !pub.Status.Lingers.After(tx.Now()) {
			tryNow(tx, op)
		}
	}
	return nil
}

// Held is what of a volume is to come off nodes.
type Held struct {
	// Attachments still hold the volume, on their way out or not.
	Attachments []*api.Attachment
	// Running are the allocations among their owners that are to run.
	Running []*api.Allocation
	// Publications are on the nodes that are meant.
	Publications []*api.Publication
	// Found are attachments that the provider has, and the state has not.
	Found []*api.Finding
}

// Detaching is what a detach would be about.
func Detaching(v state.View, vol *api.Volume, from api.DetachFrom) Held {
	var held Held
	for at := range v.Holders(vol.Namespace, vol.ID) {
		if from.NodeID != "" && at.NodeID != from.NodeID || from.AllocID != "" && at.AllocID != from.AllocID {
			continue
		}
		held.Attachments = append(held.Attachments, at)
		a := v.Allocation(at.AllocID)
		if a != nil && !a.Terminal() && a.Desired == api.DesireRun && !slices.Contains(held.Running, a) {
			held.Running = append(held.Running, a)
		}
	}
	for pub := range v.VolumePublications(vol.Namespace, vol.ID) {
		concerned := slices.ContainsFunc(held.Attachments, func(at *api.Attachment) bool { return at.NodeID == pub.NodeID })
		if concerned || from.AllocID == "" && (from.NodeID == "" || from.NodeID == pub.NodeID) {
			held.Publications = append(held.Publications, pub)
		}
	}
	for f := range v.VolumeFindings(vol.Namespace, vol.ID) {
		node := strayNode(f)
		meant := from.AllocID == "" && (from.NodeID == "" || from.NodeID == node || string(from.NodeID) == f.ExternalNodeID)
		if f.Kind == api.FindingAttached && meant && v.Publication(vol.Namespace, vol.ID, node) == nil {
			held.Found = append(held.Found, f)
		}
	}
	return held
}

// check says why the volume cannot be taken away as is asked.
func (h *Held) check(vol *api.Volume, from api.DetachFrom, stop bool) error {
	if len(h.Attachments)+len(h.Publications)+len(h.Found) == 0 {
		return api.Errorf(api.CodeNotFound, "volume %s is %s", vol.ID, from.Nowhere())
	}
	if len(h.Running) > 0 && !stop {
		users := make([]string, len(h.Running))
		for i, a := range h.Running {
			users[i] = fmt.Sprintf("allocation %s of job %s on node %s", a.ID.Short(), a.JobID, a.NodeID)
		}
		return api.Errorf(api.CodeInUse, "volume %s is used by %s: stop the job, or say that what uses it is to be stopped", vol.ID, strings.Join(users, ", "))
	}
	return nil
}

// strayNode is under which name an attachment is kept that only the provider
// knows: the node's, or that which the provider gives it. Where that is no name
// that a node can have here, it is made from the finding's.
func strayNode(f *api.Finding) api.NodeID {
	var p api.Problems
	switch p.Name("node", f.ExternalNodeID); {
	case f.NodeID != "":
		return f.NodeID
	case p.Err("the node") == nil:
		return api.NodeID(f.ExternalNodeID)
	}
	return api.NodeID(f.ID)
}

// strayPublication is an attachment that only the provider knows, to be ended
// like one that a restored state had forgotten.
func strayPublication(tx *state.Tx, vol *api.Volume, f *api.Finding) *api.Publication {
	pub := &api.Publication{
		Namespace: vol.Namespace, VolumeID: vol.ID, NodeID: strayNode(f), PluginID: vol.Spec.PluginID,
		Status: api.PublicationStatus{ExternalNodeID: f.ExternalNodeID, Outcome: api.OutcomeUncertain, Left: true},
	}
	if n := tx.Node(pub.NodeID); n != nil {
		pub.Status.NodeEpoch = n.Status.Epoch
	}
	return pub
}
