package command

import (
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// OpenOperation records the intent to make a call, before anybody makes it.
type OpenOperation struct {
	OperationKind api.OperationKind    `json:"operation_kind"`
	Namespace     api.NamespaceID      `json:"namespace"`
	VolumeID      api.VolumeID         `json:"volume_id"`
	SnapshotID    api.SnapshotID       `json:"snapshot_id,omitempty"`
	PluginID      api.PluginID         `json:"plugin_id"`
	NodeID        api.NodeID           `json:"node_id,omitempty"`
	Request       api.OperationRequest `json:"request"`
	// Version is that of the operation's subject.
	Version uint64 `json:"version"`
}

// Kind implements Command.
func (*OpenOperation) Kind() Kind { return "operation.open" }

// Validate implements Command.
func (c *OpenOperation) Validate() error {
	var p api.Problems
	if !c.Request.Fits(c.OperationKind) {
		p.Addf("request", "set the member that fits", "does not fit an operation of kind %q", c.OperationKind)
	}
	return p.Err("the operation")
}

// Apply implements Command. One call at a time: the volume, or its publication
// on that node, must have no other open operation. And in order: nothing is
// made twice, deleted while it is wanted or on a node, or unpublished while the
// node may use it.
func (c *OpenOperation) Apply(tx *state.Tx) error {
	name := c.name()
	if open := tx.OpenOperation(name); open != nil {
		return conflict("operation %s is open already", open.ID)
	}
	subject := c.OperationKind.Subject()
	if subject == api.SubjectSnapshot {
		return c.openSnapshot(tx, name)
	}
	vol := tx.Volume(c.Namespace, c.VolumeID)
	if vol == nil {
		return conflict("volume %s is gone", c.VolumeID)
	}
	// What takes turns with what the volume has open can be opened meanwhile; it is
	// assigned after that. See Busy and Blocked.
	turns := subject == api.SubjectPublication && (vol.Status.Operation.Kind() == api.OperationSnapshot || Changes(vol.Status.Operation.Kind()))
	if vol.Status.Operation != "" && !turns {
		return conflict("volume %s waits for operation %s", c.VolumeID, vol.Status.Operation)
	}
	switch subject {
	case api.SubjectVolume:
		return c.openVolume(tx, name, vol)
	case api.SubjectPublication:
		return c.openPublication(tx, name)
	case api.SubjectSnapshot:
	}
	return conflict("there is no operation of kind %q", c.OperationKind)
}

func (c *OpenOperation) name() string {
	if c.OperationKind.Subject() == api.SubjectSnapshot {
		return api.OperationName(c.OperationKind, c.Namespace, api.VolumeID(c.SnapshotID), "")
	}
	return api.OperationName(c.OperationKind, c.Namespace, c.VolumeID, c.NodeID)
}

func (c *OpenOperation) openVolume(tx *state.Tx, name string, vol *api.Volume) error {
	if vol.Version != c.Version {
		return conflict("volume %s has changed", c.VolumeID)
	}
	if c.OperationKind == api.OperationCreate && vol.Status.State != api.VolumeCreating {
		return conflict("volume %s is %s, and is not to be created", c.VolumeID, vol.Status.State)
	}
	if c.OperationKind == api.OperationDelete {
		if vol.Desired != api.Absent {
			return conflict("volume %s is wanted", c.VolumeID)
		}
		for pub := range tx.VolumePublications(c.Namespace, c.VolumeID) {
			return conflict("volume %s may still be attached to node %s", c.VolumeID, pub.NodeID)
		}
		if s := BeingSnapshotted(tx.View, vol); s != nil {
			return conflict("snapshot %s of volume %s is being made", s.ID, c.VolumeID)
		}
	}
	if reason := c.unwanted(vol); Changes(c.OperationKind) && reason != "" {
		return conflict("volume %s %s", c.VolumeID, reason)
	}
	next := *vol
	next.Status.Operation = c.open(tx, name, vol.Status.Trace)
	tx.PutVolume(&next)
	return nil
}

// unwanted says why the volume is not to be changed as the operation would.
func (c *OpenOperation) unwanted(vol *api.Volume) string {
	e, m := vol.Status.Expansion, vol.Status.Modification
	switch {
	case vol.Desired != api.Present || vol.Status.State != api.VolumeReady:
		return "is " + string(vol.Status.State)
	case c.OperationKind == api.OperationExpand && (e == nil || e.Refused != ""):
		return "is not to be expanded"
	case c.OperationKind == api.OperationModify && (m == nil || m.Refused != ""):
		return "is not to be modified"
	}
	return ""
}

func (c *OpenOperation) openPublication(tx *state.Tx, name string) error {
	pub := tx.Publication(c.Namespace, c.VolumeID, c.NodeID)
	if pub == nil || pub.Version != c.Version {
		return conflict("the publication of volume %s on node %s has changed", c.VolumeID, c.NodeID)
	}
	if pub.Status.Operation != "" {
		return conflict("the publication waits for operation %s", pub.Status.Operation)
	}
	if until := pub.Status.Lingers; c.OperationKind == api.OperationUnpublish && until.After(tx.Now()) {
		return conflict("a publish of volume %s to node %s may still be running", c.VolumeID, c.NodeID)
	}
	if c.OperationKind == api.OperationUnpublish && usedOnNode(tx.View, pub) {
		return conflict("volume %s may still be mounted on node %s", c.VolumeID, c.NodeID)
	}
	if s := pub.Status; c.OperationKind == api.OperationNodeExpand && (s.NodeExpansion == 0 || s.NodeExpansionRefused != "") {
		return conflict("volume %s is not to be expanded on node %s", c.VolumeID, c.NodeID)
	}
	next := *pub
	if r := c.Request.Publish; r != nil {
		next.Status.ExternalNodeID = r.ExternalNodeID
		next.Status.ReadOnly = r.ReadOnly
		next.Status.Capability = r.Capability
	}
	next.Status.Operation = c.open(tx, name, "")
	tx.PutPublication(&next)
	return nil
}

// openSnapshot opens a call for a snapshot. It leaves the volume alone: that has
// the call's slot only while an agent has the call, so that a snapshot which is
// refused, or which takes hours, keeps nothing of the volume from happening.
func (c *OpenOperation) openSnapshot(tx *state.Tx, name string) error {
	snap := tx.Snapshot(c.Namespace, c.SnapshotID)
	if snap == nil || snap.Version != c.Version || snap.VolumeID != c.VolumeID {
		return conflict("snapshot %s has changed", c.SnapshotID)
	}
	if snap.Status.Operation != "" {
		return conflict("snapshot %s waits for operation %s", c.SnapshotID, snap.Status.Operation)
	}
	switch vol := tx.Volume(c.Namespace, c.VolumeID); {
	case c.OperationKind == api.OperationDeleteSnapshot && snap.Desired != api.Absent:
		return conflict("snapshot %s is wanted", c.SnapshotID)
	case c.OperationKind == api.OperationDeleteSnapshot:
	case snap.Desired == api.Absent || snap.Status.State != api.SnapshotCreating:
		return conflict("snapshot %s is %s, and is not to be made", c.SnapshotID, snap.Status.State)
	case vol == nil || vol.UID != snap.VolumeUID || vol.Status.ExternalID == "":
		return conflict("volume %s is gone", c.VolumeID)
	}
	next := *snap
	next.Status.Operation = c.open(tx, name, "")
	tx.PutSnapshot(&next)
	return nil
}

// Busy is the call for the same volume for whose end an operation has to wait
// before an agent may have it, or "". While an agent makes a snapshot of a
// volume, nothing else is called for that volume, and the reverse; what is open
// and waits for its next try does not count.
func Busy(v state.View, op *api.Operation) api.OperationID {
	vol := v.Volume(op.Namespace, op.VolumeID)
	if vol == nil || op.Kind == api.OperationDeleteSnapshot {
		return ""
	}
	other := vol.Status.Operation
	if other != "" && other != op.ID && Exclude(op.Kind, other.Kind()) {
		if call := v.Operation(other); !Changes(other.Kind()) || call != nil && call.Status.State == api.OperationAssigned {
			return other
		}
	}
	if Changes(other.Kind()) {
		// The volume's slot is that of a change which may wait for long, and does not
		// say whether a snapshot is being made.
		if call := snapshotting(v, vol, op.ID); call != "" {
			return call
		}
	}
	if op.Kind != api.OperationSnapshot {
		return ""
	}
	for pub := range v.VolumePublications(op.Namespace, op.VolumeID) {
		if call := v.Operation(pub.Status.Operation); call != nil && call.Status.State == api.OperationAssigned {
			return call.ID
		}
	}
	return ""
}

// snapshotting is the call, other than one's own, that an agent has and that
// makes a snapshot of the volume, or "".
func snapshotting(v state.View, vol *api.Volume, own api.OperationID) api.OperationID {
	for s := range v.VolumeSnapshots(vol.Namespace, vol.ID) {
		call := v.Operation(s.Status.Operation)
		if call != nil && call.ID != own && call.Kind == api.OperationSnapshot && call.Status.State == api.OperationAssigned {
			return call.ID
		}
	}
	return ""
}

// Exclude reports whether calls of two kinds cannot be under way together for
// one volume, because one of them makes a snapshot of it. The other rules are
// kept when operations are opened. A deletion of a snapshot concerns no volume.
func Exclude(a, b api.OperationKind) bool {
	return a != api.OperationDeleteSnapshot && b != api.OperationDeleteSnapshot &&
		(a == api.OperationSnapshot || b == api.OperationSnapshot)
}

// usedOnNode reports whether the node may have the volume staged or mounted:
// from the moment at which it was told to, until it says that it is done.
func usedOnNode(v state.View, pub *api.Publication) bool {
	if pub.Status.Staged {
		return true
	}
	for h := range v.NodeHolders(pub.Namespace, pub.VolumeID, pub.NodeID) {
		if s := h.Status.State; api.Claimed.Before(s) && s.Before(api.NodeDetached) {
			return true
		}
	}
	return false
}

func (c *OpenOperation) open(tx *state.Tx, name string, trace api.TraceContext) api.OperationID {
	op := &api.Operation{
		ID:         tx.NextOperationID(name),
		Name:       name,
		Kind:       c.OperationKind,
		Namespace:  c.Namespace,
		VolumeID:   c.VolumeID,
		SnapshotID: c.SnapshotID,
		PluginID:   c.PluginID,
		NodeID:     c.NodeID,
		Request:    c.Request,
		Trace:      trace,
		Status:     api.OperationStatus{State: api.OperationWaiting, Queued: c.place(tx)},
	}
	tx.PutOperation(op)
	return op.ID
}

// betweenPlaces is how far apart the operations on one volume stand in the
// queue of their plugin. A volume that many nodes want at once is served at
// this pace where others wait, and they are not kept by it.
const betweenPlaces = time.Second

// place is the operation's in its plugin's queue: now, which is told by a zero
// time, or behind the last of its volume. Only a volume that several nodes may
// have has several.
func (c *OpenOperation) place(tx *state.Tx) (later time.Time) {
	if c.OperationKind.Subject() != api.SubjectPublication {
		return later
	}
	pub := tx.Publication(c.Namespace, c.VolumeID, c.NodeID)
	if pub == nil {
		return later
	}
	mode := pub.Status.Capability.AccessMode
	if r := c.Request.Publish; r != nil {
		mode = r.Capability.AccessMode
	}
	if mode.SingleNode() {
		return later
	}
	before := tx.LastPlace(c.Namespace, c.VolumeID)
	if before == nil {
		return later
	}
	if behind := before.Place().Add(betweenPlaces); behind.After(tx.Now()) {
		return behind
	}
	return later
}

// AssignOperation gives an operation to the agent of a node.
type AssignOperation struct {
	ID       api.OperationID `json:"id"`
	Version  uint64          `json:"version"`
	Executor api.NodeID      `json:"executor"`
	// Limit is how long the call may take.
	Limit api.Duration `json:"limit"`
}

// Kind implements Command.
func (*AssignOperation) Kind() Kind { return "operation.assign" }

// Validate implements Command.
func (c *AssignOperation) Validate() error {
	var p api.Problems
	if c.Limit <= 0 {
		p.Addf("limit", "give the call some time", "is %s", c.Limit)
	}
	return p.Err("the assignment")
}

// Apply implements Command. From here on the call may have been made, so what
// it changes is uncertain until its outcome is reported.
func (c *AssignOperation) Apply(tx *state.Tx) error {
	op := tx.Operation(c.ID)
	if op == nil || op.Version != c.Version || op.Status.State != api.OperationWaiting {
		return conflict("operation %s has changed", c.ID)
	}
	if node := tx.Node(c.Executor); node == nil || !node.Takes() {
		return conflict("node %s takes no calls", c.Executor)
	}
	if op.Kind == api.OperationNodeExpand && c.Executor != op.NodeID {
		return conflict("only node %s can make the call of operation %s", op.NodeID, c.ID)
	}
	if reason := Blocked(tx.View, op); reason != "" {
		return conflict("operation %s: %s", c.ID, reason)
	}
	next := *op
	next.Status.State = api.OperationAssigned
	next.Status.Attempt++
	next.Status.Executor = c.Executor
	next.Status.Assigned = tx.Now()
	next.Status.Deadline = tx.Now().Add(time.Duration(c.Limit))
	next.Status.Next = time.Time{}
	next.Status.Secrets = tx.VolumeSecrets(op.Namespace, op.VolumeID) != nil && ofVolume(tx, op)
	tx.PutOperation(&next)
	tx.TouchOperations(c.Executor)
	if pub := publicationOf(tx, op); pub != nil && changesOutcome(op.Kind) && pub.Status.Outcome != api.OutcomeUncertain {
		changed := *pub
		changed.Status.Outcome = api.OutcomeUncertain
		tx.PutPublication(&changed)
	}
	if vol := tx.Volume(op.Namespace, op.VolumeID); op.Kind == api.OperationSnapshot && vol != nil && vol.Status.Operation == "" {
		changed := *vol
		changed.Status.Operation = op.ID
		tx.PutVolume(&changed)
	}
	return nil
}

// ofVolume reports whether an operation is for the volume that has the id now: a
// snapshot outlives its volume, and another's secrets are not its.
func ofVolume(tx *state.Tx, op *api.Operation) bool {
	if op.Kind.Subject() != api.SubjectSnapshot {
		return true
	}
	snap, vol := tx.Snapshot(op.Namespace, op.SnapshotID), tx.Volume(op.Namespace, op.VolumeID)
	return snap != nil && vol != nil && snap.VolumeUID == vol.UID
}

// changesOutcome reports whether calls of the kind attach or detach.
func changesOutcome(kind api.OperationKind) bool {
	return kind == api.OperationPublish || kind == api.OperationUnpublish
}

// publicationOf is the publication that the operation changes, or nil.
func publicationOf(tx *state.Tx, op *api.Operation) *api.Publication {
	if op.Kind.Subject() != api.SubjectPublication {
		return nil
	}
	return tx.Publication(op.Namespace, op.VolumeID, op.NodeID)
}

// CancelOperation closes an operation that no agent has.
type CancelOperation struct {
	ID      api.OperationID `json:"id"`
	Version uint64          `json:"version"`
	Reason  string          `json:"reason"`
	// Abandon closes a create although it may have made something: an operator
	// takes it on to look for that at the provider.
	Abandon bool `json:"abandon,omitempty"`
}

// Kind implements Command.
func (*CancelOperation) Kind() Kind { return "operation.cancel" }

// Validate implements Command.
func (c *CancelOperation) Validate() error { return nil }

// Apply implements Command. What makes something, with an uncertain attempt, is only
// cancelled by an operator: what it may have made would be lost; and so is a
// change of a volume that is to stay: what it may have would not be known.
func (c *CancelOperation) Apply(tx *state.Tx) error {
	op := tx.Operation(c.ID)
	if op == nil || op.Version != c.Version || op.Status.State != api.OperationWaiting {
		return conflict("operation %s has changed", c.ID)
	}
	if c.Abandon && !CanBeAbandoned(op.Kind) {
		return conflict("operation %s undoes something; it goes on until that is done", c.ID)
	}
	if fit.Makes(op.Kind) && op.Status.Uncertain && !cut(tx, op) && !c.Abandon {
		return conflict("operation %s may have made something; it goes on until that is known", c.ID)
	}
	if vol := tx.Volume(op.Namespace, op.VolumeID); Changes(op.Kind) && op.Status.Uncertain && !c.Abandon && vol != nil && vol.Desired == api.Present {
		return conflict("operation %s may have changed the volume; it goes on until that is known", c.ID)
	}
	if until := Lingering(op); op.Kind == api.OperationSnapshot && !c.Abandon && until.After(tx.Now()) {
		return conflict("an attempt of operation %s may still be running", c.ID)
	}
	next := *op
	next.Status.State = api.OperationCancelled
	next.Status.Ended = tx.Now()
	if next.Status.Message == "" {
		next.Status.Message = c.Reason
	}
	tx.PutOperation(&next)
	releaseSubject(tx, op)
	if c.Abandon {
		abandoned(tx, &next, c.Reason)
	}
	return nil
}

// Lingering is until when the last attempt of an operation that waits may still
// be running at the plugin; zero if it is not. Calling the opposite before would
// be to be overtaken by it.
func Lingering(op *api.Operation) time.Time {
	if op.Status.Attempt == 0 {
		return time.Time{}
	}
	return fit.Lingers(op.Status.Code, op.Status.Deadline, op.ModifyTime)
}

// cut reports whether what a snapshot operation makes is known already.
func cut(tx *state.Tx, op *api.Operation) bool {
	if op.Kind != api.OperationSnapshot {
		return false
	}
	snap := tx.Snapshot(op.Namespace, op.SnapshotID)
	return snap != nil && snap.Status.ExternalID != ""
}

// abandonedSnapshot leaves a snapshot whose making was given up to its user.
func abandonedSnapshot(tx *state.Tx, op *api.Operation, reason string) {
	snap := tx.Snapshot(op.Namespace, op.SnapshotID)
	if snap == nil || snap.Status.State != api.SnapshotCreating {
		return
	}
	next := *snap
	next.Status.State, next.Status.Reason = api.SnapshotFailed, reason
	tx.PutSnapshot(&next)
}

// CanBeAbandoned reports whether an operator may give an operation of the kind
// up: what undoes something goes on, since giving up would leak what it was to
// undo.
func CanBeAbandoned(kind api.OperationKind) bool {
	return fit.Makes(kind) || kind == api.OperationNodeExpand || Changes(kind)
}

// abandoned leaves what an operation was about to its user, as it is.
func abandoned(tx *state.Tx, op *api.Operation, reason string) {
	if op.Kind == api.OperationSnapshot {
		abandonedSnapshot(tx, op, reason)
		return
	}
	if pub := publicationOf(tx, op); pub != nil && op.Kind == api.OperationNodeExpand {
		next := *pub
		next.Status.NodeExpansionRefused = reason
		tx.PutPublication(&next)
		return
	}
	vol := tx.Volume(op.Namespace, op.VolumeID)
	if vol == nil {
		return
	}
	next := *vol
	if e := vol.Status.Expansion; op.Kind == api.OperationExpand && e != nil {
		next.Status.Expansion = &api.Expansion{From: e.From, Since: e.Since, Offline: e.Offline, Refused: reason}
		tx.PutVolume(&next)
	}
	if m := vol.Status.Modification; op.Kind == api.OperationModify && m != nil {
		next.Status.Modification = &api.Modification{Since: m.Since, Refused: reason}
		tx.PutVolume(&next)
	}
	if op.Kind != api.OperationCreate || vol.Status.State != api.VolumeCreating {
		return
	}
	next.Status.Reason = reason
	if vol.Desired == api.Present {
		next.Status.State = api.VolumeFailed
		touchOwner(tx, vol)
	}
	tx.PutVolume(&next)
}

// releaseSubject lets the volume, publication or snapshot of an operation go on.
func releaseSubject(tx *state.Tx, op *api.Operation) {
	if pub := publicationOf(tx, op); pub != nil && pub.Status.Operation == op.ID {
		next := *pub
		next.Status.Operation = ""
		tx.PutPublication(&next)
		return
	}
	if snap := tx.Snapshot(op.Namespace, op.SnapshotID); snap != nil && snap.Status.Operation == op.ID {
		next := *snap
		next.Status.Operation = ""
		tx.PutSnapshot(&next)
	}
	freeVolume(tx, op)
}

// freeVolume ends the slot that an operation has at its volume.
func freeVolume(tx *state.Tx, op *api.Operation) {
	if vol := tx.Volume(op.Namespace, op.VolumeID); vol != nil && vol.Status.Operation == op.ID {
		next := *vol
		next.Status.Operation = ""
		tx.PutVolume(&next)
	}
}
