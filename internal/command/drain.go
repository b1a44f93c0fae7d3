package command

import (
	"cmp"
	"slices"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

// DrainNode says that a node is to be emptied, and makes it ineligible. Of a
// node that is being drained it changes how.
type DrainNode struct {
	NodeID api.NodeID `json:"node_id"`
	// Within is how long it may take from now, unless it is Unbounded.
	Within    api.Duration `json:"within,omitempty"`
	Unbounded bool         `json:"unbounded,omitempty"`
	// KeepDeadline: a drain that goes on keeps the deadline that it has.
	KeepDeadline bool `json:"keep_deadline,omitempty"`
	// IgnoreSystem is nil for what it is.
	IgnoreSystem *bool  `json:"ignore_system,omitempty"`
	By           string `json:"by,omitempty"`
	Reason       string `json:"reason,omitempty"`
	// Version is the node's, 0 for any.
	Version uint64 `json:"version,omitempty"`
}

// Kind implements Command.
func (*DrainNode) Kind() Kind { return "node.drain" }

// Validate implements Command.
func (c *DrainNode) Validate() error {
	var p api.Problems
	p.Name("node_id", string(c.NodeID))
	p.Merge((&api.DrainRequest{Deadline: c.Within, By: c.By, Reason: c.Reason}).Validate())
	return p.Err("the drain")
}

// Apply implements Command. What runs there is moved by those who placed it.
func (c *DrainNode) Apply(tx *state.Tx) error {
	node, err := nodeAt(tx, c.NodeID, c.Version)
	if err != nil {
		return err
	}
	drain := &api.Drain{Started: tx.Now()}
	old := node.Spec.Drain
	if old != nil {
		copied := *old
		drain = &copied
	}
	drain.By, drain.Reason = cmp.Or(c.By, drain.By), cmp.Or(c.Reason, drain.Reason)
	if c.IgnoreSystem != nil {
		drain.IgnoreSystem = *c.IgnoreSystem
	}
	switch {
	case old != nil && c.KeepDeadline:
	case c.Unbounded:
		drain.Deadline = time.Time{}
	default:
		drain.Deadline = tx.Now().Add(time.Duration(c.Within))
	}
	if old != nil && *old == *drain {
		return nil
	}
	next := *node
	next.Spec = api.NodeSpec{Ineligible: true, Drain: drain}
	tx.PutNode(&next)
	return nil
}

// nodeAt is the node, if it has that version, or if any will do.
func nodeAt(tx *state.Tx, id api.NodeID, version uint64) (*api.Node, error) {
	node := tx.Node(id)
	if node == nil {
		return nil, api.Errorf(api.CodeNotFound, "node %s does not exist", id)
	}
	return node, checkVersion("node", string(id), &node.Meta, version)
}

// StopDrain calls a drain off. What was told to stop stops, and is placed anew.
type StopDrain struct {
	NodeID api.NodeID `json:"node_id"`
	// KeepIneligible: the node gets nothing new nevertheless.
	KeepIneligible bool `json:"keep_ineligible,omitempty"`
	// Version is the node's, 0 for any.
	Version uint64 `json:"version,omitempty"`
	// By is who asks, by the caller's word.
	By string `json:"by,omitempty"`
}

// Kind implements Command.
func (*StopDrain) Kind() Kind { return "node.undrain" }

// Validate implements Command.
func (c *StopDrain) Validate() error {
	var p api.Problems
	validateBy(&p, c.By)
	return p.Err("the end of the drain")
}

// Apply implements Command. Of a node that is not being drained it changes
// nothing.
func (c *StopDrain) Apply(tx *state.Tx) error {
	node, err := nodeAt(tx, c.NodeID, c.Version)
	if err != nil || node.Spec.Drain == nil {
		return err
	}
	endDrain(tx, node, api.Drained{CalledOffBy: c.By}, c.KeepIneligible)
	return nil
}

// endDrain notes that a drain is over.
func endDrain(tx *state.Tx, node *api.Node, how api.Drained, ineligible bool) {
	d := node.Spec.Drain
	how.Started, how.Ended, how.By, how.Reason = d.Started, tx.Now(), d.By, d.Reason
	next := *node
	next.Spec = api.NodeSpec{Ineligible: ineligible}
	next.Status.Drained = &how
	tx.PutNode(&next)
	if !ineligible {
		unsettleEverywhere(tx)
	}
}

// FinishDrain notes that nothing is left on a node that was drained. It stays
// ineligible, so that nothing comes back.
type FinishDrain struct {
	NodeID  api.NodeID `json:"node_id"`
	Version uint64     `json:"version"`
}

// Kind implements Command.
func (*FinishDrain) Kind() Kind { return "node.drained" }

// Validate implements Command.
func (c *FinishDrain) Validate() error { return nil }

// Apply implements Command.
func (c *FinishDrain) Apply(tx *state.Tx) error {
	node := tx.Node(c.NodeID)
	if node == nil || node.Version != c.Version || node.Spec.Drain == nil {
		return conflict("node %s has changed", c.NodeID)
	}
	if left := Undrained(tx.View, node); !left.None() {
		return conflict("node %s is not empty", c.NodeID)
	}
	endDrain(tx, node, api.Drained{Complete: true}, true)
	return nil
}

// SetEligibility says whether a node gets new allocations.
type SetEligibility struct {
	NodeID   api.NodeID `json:"node_id"`
	Eligible bool       `json:"eligible"`
	// Version is the node's, 0 for any.
	Version uint64 `json:"version,omitempty"`
	// By is who asks, by the caller's word.
	By string `json:"by,omitempty"`
}

// Kind implements Command.
func (*SetEligibility) Kind() Kind { return "node.eligibility" }

// Validate implements Command.
func (c *SetEligibility) Validate() error {
	var p api.Problems
	validateBy(&p, c.By)
	return p.Err("the eligibility")
}

// Apply implements Command.
func (c *SetEligibility) Apply(tx *state.Tx) error {
	node, err := nodeAt(tx, c.NodeID, c.Version)
	switch {
	case err != nil:
		return err
	case node.Spec.Drain != nil && c.Eligible:
		return api.Errorf(api.CodeInUse, "node %s is being drained; call that off with 'berth node drain --disable %s'", c.NodeID, c.NodeID)
	case node.Spec.Ineligible != c.Eligible:
		return nil
	}
	next := *node
	next.Spec.Ineligible, next.Spec.EligibilityBy = !c.Eligible, c.By
	tx.PutNode(&next)
	if c.Eligible {
		unsettleEverywhere(tx)
	}
	return nil
}

// Left is what is still on a node that is being drained.
type Left struct {
	// Allocations run there, or may.
	Allocations []*api.Allocation
	// Publications are the volumes that are there, or that the provider may
	// still have attached to it.
	Publications []*api.Publication
}

// None reports whether nothing is left.
func (l Left) None() bool { return len(l.Allocations) == 0 && len(l.Publications) == 0 }

// Undrained says what is still on a node that is to go before its drain ends.
// What stays there, and its volumes, are not in it.
func Undrained(v state.View, node *api.Node) (left Left) {
	type volume struct {
		ns api.NamespaceID
		id api.VolumeID
	}
	stay := map[volume]bool{}
	for a := range v.NodeAllocations(node.ID) {
		switch {
		case a.Terminal():
		case StaysDrained(v, node, a):
			for at := range v.AllocAttachments(a.ID) {
				stay[volume{at.Namespace, at.VolumeID}] = true
			}
		default:
			left.Allocations = append(left.Allocations, a)
		}
	}
	left.Publications = slices.Collect(v.NodePublications(node.ID, ""))
	left.Publications = slices.DeleteFunc(left.Publications, func(p *api.Publication) bool { return stay[volume{p.Namespace, p.VolumeID}] })
	return left
}

// Needed reports whether volumes on an ineligible node need a group's plugin
// there: nothing else can unmount them, so that one may be started anew. It
// ends with the last of them, as does a plugin's stay on a drained node. One
// that undoes what it ran and is not drained needs the plugin too.
func Needed(v state.View, node *api.Node, group *api.TaskGroup) bool {
	if node.Status.State != api.NodeReady || len(group.Volumes) > 0 {
		return false
	}
	for i := range group.Tasks {
		p := group.Tasks[i].CSIPlugin
		if p == nil || p.Type == api.InstanceController || HostServes(v, node.ID, p.ID) {
			continue
		}
		if node.Status.Owes && node.Spec.Drain == nil {
			return true
		}
		for range v.NodePublications(node.ID, p.ID) {
			return true
		}
	}
	return false
}

// HostServes reports whether a plugin serves the node's volumes without any
// allocation, as one that the host runs.
func HostServes(v state.View, node api.NodeID, plugin api.PluginID) bool {
	for i := range v.NodePlugin(node, plugin) {
		if i.AllocID == "" && i.ServesNode() && i.Healthy {
			return true
		}
	}
	return false
}

// StaysDrained reports whether an allocation stays on a node that is drained: of
// a system job where those stay, or serving a volume that one of those has.
func StaysDrained(v state.View, node *api.Node, a *api.Allocation) bool {
	if node.Spec.Drain == nil || !node.Spec.Drain.IgnoreSystem {
		return false
	}
	if everywhere(v, a) {
		return true
	}
	for i := range v.NodeInstances(node.ID) {
		if i.AllocID == a.ID && i.ServesNode() && !HostServes(v, node.ID, i.PluginID) && usedByStaying(v, node, i.PluginID) {
			return true
		}
	}
	return false
}

// usedByStaying reports whether what stays on a node has a plugin's volume.
func usedByStaying(v state.View, node *api.Node, plugin api.PluginID) bool {
	for a := range v.NodeAllocations(node.ID) {
		if a.Terminal() || !everywhere(v, a) {
			continue
		}
		for at := range v.AllocAttachments(a.ID) {
			if at.PluginID == plugin && at.Holds() {
				return true
			}
		}
	}
	return false
}

// everywhere reports whether an allocation is of a job that runs on every node.
func everywhere(v state.View, a *api.Allocation) bool {
	job := v.Job(a.Namespace, a.JobID)
	return job != nil && job.UID == a.JobUID && job.Desired == api.Present && job.Spec.Type.Everywhere()
}
