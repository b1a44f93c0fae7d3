package command

import (
	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

// Command is one write. It is immutable once it has been proposed.
type Command interface {
	// Kind is the name under which the log carries it.
	Kind() Kind
	// Validate checks what can be checked without the state, and reports
	// every problem. It runs before anything is proposed.
	Validate() error
	// Apply checks the rest, then writes. It answers nil, or an *api.Error
	// and has written nothing. It runs in a fork on the leader, then on every
	// server.
	Apply(tx *state.Tx) error
}

// Kind names a type of command in the log.
type Kind string

// kind is one row of the table of kinds.
type kind struct {
	name Kind
	// level is the cluster's feature level from which it may be proposed.
	level int
	empty func() Command
}

// kinds lists every kind. It only ever grows, at the end.
func kinds() []kind {
	return []kind{
		{"cluster.init", 0, func() Command { return &InitCluster{} }},
		{"generation.begin", 1, func() Command { return &BeginGeneration{} }},
		{"generation.confirm", 1, func() Command { return &ConfirmGeneration{} }},
		{"node.register", 1, func() Command { return &RegisterNode{} }},
		{"node.state", 1, func() Command { return &SetNodeState{} }},
		{"node.report", 1, func() Command { return &ReportFacts{} }},
		{"volume.apply", 1, func() Command { return &ApplyVolume{} }},
		{"volume.delete", 1, func() Command { return &DeleteVolume{} }},
		{"volume.forget", 1, func() Command { return &ForgetVolume{} }},
		{"operation.open", 1, func() Command { return &OpenOperation{} }},
		{"operation.assign", 1, func() Command { return &AssignOperation{} }},
		{"operation.cancel", 1, func() Command { return &CancelOperation{} }},
		{"job.apply", 1, func() Command { return &ApplyJob{} }},
		{"job.stop", 1, func() Command { return &StopJob{} }},
		{"job.settle", 1, func() Command { return &SettleJob{} }},
		{"allocation.place", 1, func() Command { return &PlaceAllocation{} }},
		{"allocation.stop", 1, func() Command { return &StopAllocation{} }},
		{"attachment.advance", 1, func() Command { return &AdvanceAttachment{} }},
		{"publication.forget", 1, func() Command { return &ForgetPublication{} }},
		{"collect", 1, func() Command { return &Collect{} }},
		{"job.stabilize", 1, func() Command { return &StabilizeJob{} }},
		{"job.revert", 1, func() Command { return &RevertJob{} }},
		{"allocation.restart", 1, func() Command { return &RestartAllocation{} }},
		{"volume.copy", 1, func() Command { return &CopyVolume{} }},
		{"job.giveup", 1, func() Command { return &GiveUpPlace{} }},
		{"snapshot.create", 1, func() Command { return &CreateSnapshot{} }},
		{"snapshot.delete", 1, func() Command { return &DeleteSnapshot{} }},
		{"snapshot.forget", 1, func() Command { return &ForgetSnapshot{} }},
		{"snapshot.schedule", 1, func() Command { return &ScheduleSnapshots{} }},
		{"volume.grow", 1, func() Command { return &GrowVolume{} }},
		{"finding.record", 1, func() Command { return &RecordFindings{} }},
		{"node.fence", 1, func() Command { return &FenceNode{} }},
		{"node.forget", 1, func() Command { return &ForgetNode{} }},
		{"volume.detach", 1, func() Command { return &DetachVolume{} }},
		{"node.drain", 1, func() Command { return &DrainNode{} }},
		{"node.undrain", 1, func() Command { return &StopDrain{} }},
		{"node.drained", 1, func() Command { return &FinishDrain{} }},
		{"node.eligibility", 1, func() Command { return &SetEligibility{} }},
		{"allocation.revise", 1, func() Command { return &ReviseAllocation{} }},
		{"allocation.retake", 1, func() Command { return &RetakePlace{} }},
		{"job.promote", 1, func() Command { return &PromoteJob{} }},
		{"room.record", 1, func() Command { return &RecordRooms{} }},
		{"variable.put", 1, func() Command { return &PutVariable{} }},
		{"variable.delete", 1, func() Command { return &DeleteVariable{} }},
	}
}

// registry finds kinds by name.
type registry map[Kind]kind

func newRegistry() registry {
	r := registry{}
	for _, k := range kinds() {
		r[k.name] = k
	}
	return r
}

// Kinds lists the names of all kinds, in the order in which they came.
func Kinds() []Kind {
	var names []Kind
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	return names
}

// New returns an empty command of a kind, or nil.
func New(name Kind) Command {
	for _, k := range kinds() {
		if k.name == name {
			return k.empty()
		}
	}
	return nil
}

// conflict answers that what the command rests on has moved.
func conflict(format string, args ...any) error {
	return api.Errorf(api.CodeConflict, format, args...)
}
