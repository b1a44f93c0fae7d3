package fit

import (
	"strings"

	"github.com/berth-dev/berth/api"
)

// Answer is one row of the table of all answers: what a code means when a
// plugin gives it to one kind of call (CSI spec, Error Scheme, and the tables
// of errors of each RPC).
type Answer struct {
	Kind api.OperationKind
	Code string
	Verdict
	// Says is what the code means here, in a sentence for people.
	Says string
	// Then is what becomes of the call and of its object.
	Then string
}

// Codes lists the gRPC codes in the order of their numbers.
func Codes() []string {
	return []string{
		"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
		"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
		"INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
	}
}

// Read looks an answer up. A code that gRPC does not have is read as UNKNOWN is.
func Read(kind api.OperationKind, code string) Answer {
	row, known := codes[code]
	if !known {
		row = codes["UNKNOWN"]
	}
	a := Answer{Kind: kind, Code: code, Verdict: row.ends.verdict(kind), Says: row.says}
	if here, ok := row.of[kind]; ok {
		a.Says = here.says
		if here.ends != 0 {
			a.Verdict = here.ends.verdict(kind)
		}
	}
	a.Then = calls[kind].then(a.Verdict)
	return a
}

// Last reads the last answer to an operation's call. An answer that leaves
// the effect open, on an operation of which all is certain, is an agent's: the
// call was never sent.
func Last(op *api.Operation) Answer {
	a := Read(op.Kind, op.Status.Code)
	if a.Done && !a.Agreed && op.Status.State != api.OperationSucceeded {
		a.Verdict = Verdict{Certain: op.Status.State == api.OperationFailed, Retry: op.Status.State != api.OperationFailed}
		a.Says = "The plugin says that it is done, and it is not as was asked for."
		if op.Kind == api.OperationSnapshot {
			a.Says = "The snapshot is cut, and the provider still works on it."
		}
		a.Then = calls[op.Kind].then(a.Verdict)
		return a
	}
	if !a.Certain && !op.Status.Uncertain {
		a.Verdict = Verdict{Certain: true, Retry: true}
		a.Says = "The call was not made."
		a.Then = calls[op.Kind].then(a.Verdict)
	}
	return a
}

// Said is the last answer as people read it: the code, the plugin's own words,
// and what they mean.
func Said(op *api.Operation) string {
	answer := op.Status.Code
	if message := strings.TrimRight(strings.TrimSpace(op.Status.Message), "."); message != "" {
		answer += ": " + message
	}
	return answer + ". " + strings.TrimRight(Last(op).Says, ".")
}

// ending is how an answer leaves a call.
type ending int

const (
	_ ending = iota
	// done: the call had its effect.
	done
	// agreed: it had, if what was read back says so too.
	agreed
	// again: it had none, and is repeated.
	again
	// uncertain: nobody knows, and it is repeated until somebody does.
	uncertain
	// refused: it had none, and repeating it as it is cannot help. What undoes
	// something goes on even then, since giving up would leak what it was to
	// undo; so does a publish, which is given up by the end of who needs it.
	refused
	// never: refused, for every call: it must not be repeated.
	never
)

func (e ending) verdict(kind api.OperationKind) Verdict {
	switch e {
	case done:
		return Verdict{Done: true, Certain: true}
	case agreed:
		return Verdict{Done: true, Certain: true, Agreed: true}
	case again:
		return Verdict{Certain: true, Retry: true}
	case refused:
		return Verdict{Certain: true, Retry: calls[kind].endless}
	case never:
		return Verdict{Certain: true}
	case uncertain:
	}
	return Verdict{Retry: true}
}

// meaning is what a code means, for every call or for one kind.
type meaning struct {
	ends ending // 0 in of: as for every call
	says string
	of   map[api.OperationKind]meaning
}

// codes is the table.
var codes = map[string]meaning{ //nolint:gochecknoglobals // a table, which nothing writes
	"OK": {ends: done, says: "The call had its effect."},
	"CANCELLED": {ends: uncertain,
		says: "The call was given up before its answer came: whether it had its effect is not known."},
	"UNKNOWN": {ends: uncertain,
		says: "The plugin answered with an error that the specification does not have: whether the call had its effect is not known."},
	"INVALID_ARGUMENT": {ends: refused,
		says: "The plugin does not accept the call as it is.",
		of: map[api.OperationKind]meaning{
			api.OperationCreate:         {says: "The plugin does not accept the volume's spec: correct what its message names."},
			api.OperationPublish:        {says: "The plugin does not accept the way in which the volume is to be attached: correct the volume's capabilities, or the job's request for it."},
			api.OperationModify:         {says: "The plugin does not accept one of the parameters, and has changed none of them."},
			api.OperationSnapshot:       {says: "The plugin does not accept the snapshot's parameters."},
			api.OperationDeleteSnapshot: {says: "The snapshot is one of a group, and can only be deleted with the group at the provider."},
		}},
	"DEADLINE_EXCEEDED": {ends: uncertain,
		says: "No answer came in time: the plugin may still be at work on the call."},
	"NOT_FOUND": {ends: refused,
		says: "The provider does not have the volume.",
		of: map[api.OperationKind]meaning{
			api.OperationCreate: {says: "The provider does not have the snapshot or the volume that the new volume is to begin as."},
			api.OperationDelete: {ends: done, says: "The provider does not have the volume, as was asked for."},
			api.OperationPublish: {says: "The provider does not have the volume, or no node of that name: see whether the volume is still there, " +
				"and whether the plugin on the node tells the right name."},
			api.OperationUnpublish: {ends: agreed, says: "The provider does not have the volume, or no node of that name. A wrong name of the node is answered " +
				"in the same way, so it counts only if something else agrees that the volume is not attached."},
			api.OperationNodeExpand:     {ends: again, says: "The plugin on the node does not find the volume there."},
			api.OperationSnapshot:       {says: "The provider does not have the volume that the snapshot is to be of."},
			api.OperationDeleteSnapshot: {ends: done, says: "The provider does not have the snapshot, as was asked for."},
		}},
	"ALREADY_EXISTS": {ends: refused,
		says: "The provider has what the call asks for already, in another form.",
		of: map[api.OperationKind]meaning{
			api.OperationCreate: {ends: uncertain, says: "The provider has a volume of that name already, which is not as this call asks. Nobody else gives that name: an earlier " +
				"attempt has made it, whatever was answered. It is looked for in the plugin's list, and asked for as earlier attempts did."},
			api.OperationPublish:  {says: "The volume is attached to the node already, in another access mode, or read-only where it is to be written to, or the reverse."},
			api.OperationSnapshot: {says: "The provider has a snapshot of that name which is of another volume."},
		}},
	"PERMISSION_DENIED": {ends: again,
		says: "The plugin may not make this call with the secrets or the rights that it has: correct them, and the call is made again."},
	"RESOURCE_EXHAUSTED": {ends: again,
		says: "The provider has no room for it.",
		of: map[api.OperationKind]meaning{
			api.OperationCreate:   {says: "The provider has no room for a volume of this size where it may be made: free some, raise the quota, or allow another place or size."},
			api.OperationPublish:  {says: "The provider attaches no more volumes to this node."},
			api.OperationExpand:   {ends: refused, says: "The provider has no room for the larger volume: free some, raise the quota, or ask for a smaller size."},
			api.OperationSnapshot: {says: "The provider has no room for another snapshot: free some, or raise the quota."},
		}},
	"FAILED_PRECONDITION": {ends: again,
		says: "Something else must come first, which the plugin's message names.",
		of: map[api.OperationKind]meaning{
			api.OperationDelete:         {says: "The volume is in use at the provider, or has snapshots there that must be deleted first."},
			api.OperationPublish:        {says: "The volume is still attached to another node."},
			api.OperationUnpublish:      {says: "The volume is still in use on the node."},
			api.OperationExpand:         {says: "The volume is in use, and the plugin expands it only when it is not: stop what uses it."},
			api.OperationNodeExpand:     {ends: never, says: "The volume is in use on the node, and the plugin expands it there only when it is not: stop what uses it, and ask again."},
			api.OperationSnapshot:       {says: "The volume is not in a state in which the provider can make a snapshot of it."},
			api.OperationDeleteSnapshot: {says: "The snapshot is in use: a volume that began as it must be deleted first."},
		}},
	"ABORTED": {ends: uncertain,
		says: "The plugin has another call for it in hand, maybe an earlier attempt of this one."},
	"OUT_OF_RANGE": {ends: refused,
		says: "The plugin does not have what was asked for in its range.",
		of: map[api.OperationKind]meaning{
			api.OperationCreate:     {says: "The plugin makes no volume of a size between capacity_min and capacity_max: change them to what its message names."},
			api.OperationExpand:     {says: "The plugin cannot give the volume a size between capacity_min and capacity_max: change them to what its message names."},
			api.OperationNodeExpand: {says: "The file system on the node cannot have that size."},
		}},
	"UNIMPLEMENTED": {ends: refused,
		says: "The plugin does not have this call."},
	"INTERNAL": {ends: uncertain,
		says: "The plugin failed inside: whether the call had its effect is not known.",
		of: map[api.OperationKind]meaning{
			api.OperationSnapshot: {says: "The plugin failed inside, or the provider has no room: an older specification gave both the same code. Whether there is a snapshot is not known."},
		}},
	"UNAVAILABLE": {ends: uncertain,
		says: "The plugin cannot be reached, or went away during the call: whether it had its effect is not known."},
	"DATA_LOSS": {ends: uncertain,
		says: "The plugin says that data is lost or damaged: see to the provider. Whether the call had its effect is not known."},
	"UNAUTHENTICATED": {ends: again,
		says: "The plugin did not accept the secrets, or got none: correct them, and the call is made again."},
}

// call is what is particular to one kind of call.
type call struct {
	// endless: it goes on after a refusal.
	endless bool
	// what becomes of its object when the call is done, repeated though it had
	// no effect, repeated because that is not known, and given up.
	done, again, unknown, over string
}

func (c call) then(v Verdict) string {
	switch {
	case v.Agreed:
		return c.done + " Until something agrees, the call is repeated."
	case v.Done:
		return c.done
	case !v.Certain:
		return c.unknown
	case v.Retry:
		return c.again
	}
	return c.over
}

// calls is each kind of call.
var calls = map[api.OperationKind]call{ //nolint:gochecknoglobals // a table, which nothing writes
	api.OperationCreate: {
		done:    "The volume is ready, if it is as was asked for.",
		again:   "Nothing was made. The call is repeated; the volume stays creating.",
		unknown: "The provider may have the volume. The same call is repeated until that is known; the volume stays creating, and is not forgotten.",
		over:    "The volume has failed. Correct its spec and apply it, or delete it.",
	},
	api.OperationDelete: {
		endless: true,
		done:    "The volume is gone.",
		again:   "The provider still has the volume. The call is repeated.",
		unknown: "The provider may still have the volume. The call is repeated until it is known to be gone.",
	},
	api.OperationPublish: {
		endless: true,
		done:    "The volume is attached to the node.",
		again:   "The volume is not attached by this call. It is repeated for as long as somebody on the node needs the volume.",
		unknown: "The volume may be attached. The call is repeated; if nobody on the node needs the volume any more, it is detached.",
	},
	api.OperationUnpublish: {
		endless: true,
		done:    "The volume is detached from the node.",
		again:   "The volume is still attached. The call is repeated.",
		unknown: "The volume may still be attached. The call is repeated until it is known to be detached.",
	},
	api.OperationExpand: {
		done:    "The volume has its new size at the provider.",
		again:   "The volume has its old size. The call is repeated.",
		unknown: "The volume may have its new size. The call is repeated until that is known.",
		over:    "The volume keeps its old size, and can be used as before. Ask for another size.",
	},
	api.OperationNodeExpand: {
		done:    "The volume has its new size on the node.",
		again:   "The volume has its old size on the node. The call is repeated.",
		unknown: "The volume may have its new size on the node. The call is repeated until that is known.",
		over:    "The volume keeps its old size on the node, and can be used as before.",
	},
	api.OperationModify: {
		done:    "The volume has its new parameters.",
		again:   "The volume has its old parameters. The call is repeated.",
		unknown: "The volume may have some of its new parameters. The call is repeated until that is known.",
		over:    "The volume keeps its old parameters, and can be used as before.",
	},
	api.OperationSnapshot: {
		done:    "The snapshot is made.",
		again:   "Nothing was made. The call is repeated.",
		unknown: "The provider may have the snapshot. The same call is repeated until that is known.",
		over:    "The snapshot has failed. Delete it.",
	},
	api.OperationDeleteSnapshot: {
		endless: true,
		done:    "The snapshot is gone.",
		again:   "The provider still has the snapshot. The call is repeated.",
		unknown: "The provider may still have the snapshot. The call is repeated until it is known to be gone.",
	},
}

// CallOf is the call that operations of the kind make (CSI spec, RPC Interface).
func CallOf(kind api.OperationKind) string {
	return map[api.OperationKind]string{
		api.OperationCreate: "CreateVolume", api.OperationDelete: "DeleteVolume",
		api.OperationPublish: "ControllerPublishVolume", api.OperationUnpublish: "ControllerUnpublishVolume",
		api.OperationExpand: "ControllerExpandVolume", api.OperationNodeExpand: "NodeExpandVolume",
		api.OperationModify:   "ControllerModifyVolume",
		api.OperationSnapshot: "CreateSnapshot", api.OperationDeleteSnapshot: "DeleteSnapshot",
	}[kind]
}

// Makes reports whether calls of the kind make something at the provider that
// would leak if it were not known.
func Makes(kind api.OperationKind) bool {
	return kind == api.OperationCreate || kind == api.OperationSnapshot
}
