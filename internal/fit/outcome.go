package fit

import (
	"fmt"
	"time"

	"github.com/berth-dev/berth/api"
)

// Verdict is what an answer of a plugin means for the operation.
type Verdict struct {
	// Done: the call had its effect.
	Done bool
	// Certain: it is known whether it had. An uncertain outcome is resolved by
	// repeating, never by forgetting.
	Certain bool
	// Retry: repeating the same call can help. A call that is neither done nor
	// worth repeating has failed for good.
	Retry bool
}

// Judge reads the code that a plugin answered a controller call with (CSI
// spec, Error Scheme, and the tables of each RPC).
func Judge(kind api.OperationKind, code string) Verdict {
	switch code {
	case "OK":
		return Verdict{Done: true, Certain: true}
	case "NOT_FOUND":
		if kind == api.OperationDelete || kind == api.OperationUnpublish || kind == api.OperationDeleteSnapshot {
			// The volume is gone, or the node that it was attached to, which is
			// what was asked for. Unpublish is called when the node has let go.
			return Verdict{Done: true, Certain: true}
		}
		return Verdict{Certain: true, Retry: worthRepeating(kind)}
	case "INVALID_ARGUMENT", "ALREADY_EXISTS", "OUT_OF_RANGE", "UNIMPLEMENTED":
		return Verdict{Certain: true, Retry: worthRepeating(kind)}
	case "PERMISSION_DENIED", "UNAUTHENTICATED", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED":
		return Verdict{Certain: true, Retry: true}
	default:
		// ABORTED: another call for the volume is pending, maybe an earlier
		// attempt. DEADLINE_EXCEEDED, UNAVAILABLE, INTERNAL, UNKNOWN and
		// whatever else: the plugin may have died in the middle of it.
		return Verdict{Retry: true}
	}
}

// linger is how long a call that has passed its deadline is left to end.
const linger = 30 * time.Second

// Lingers is until when a call may still be running, at the plugin or behind
// it, that was answered with a code at some time; zero if its own answer came.
func Lingers(code string, deadline, answered time.Time) time.Time {
	switch code {
	case "DEADLINE_EXCEEDED", "CANCELLED", "UNAVAILABLE", "ABORTED":
		// Nobody waited any longer, the plugin went away, or it is busy with an
		// earlier call.
		if answered.After(deadline) {
			deadline = answered
		}
		return deadline.Add(linger)
	}
	return time.Time{}
}

// worthRepeating tells the calls that are repeated even after a refusal for
// good. Giving up one that undoes something would leak what it was to undo; a
// publish is given up by the end of who needs it. Only a create that is
// refused comes back to its user, who must change the request.
func worthRepeating(kind api.OperationKind) bool {
	switch kind {
	case api.OperationDelete, api.OperationPublish, api.OperationUnpublish, api.OperationDeleteSnapshot:
		return true
	case api.OperationCreate, api.OperationExpand, api.OperationModify, api.OperationNodeExpand, api.OperationSnapshot:
		return false
	}
	return false
}

// The wait between attempts doubles from the first to the last.
const (
	firstBackoff = time.Second
	lastBackoff  = 5 * time.Minute
)

// Backoff is how long to wait after so many failures in a row. It is spread by
// up to a quarter, by the subject's name, so that what failed together does
// not come back together; the same arguments give the same answer.
func Backoff(subject string, failures int) time.Duration {
	d := firstBackoff
	for i := 1; i < failures && d < lastBackoff; i++ {
		d *= 2
	}
	return spreadOut(min(d, lastBackoff), fmt.Sprintf("%s/%d", subject, failures))
}

// spreadOut makes a wait longer by up to a quarter, by the name of what waits.
func spreadOut(d time.Duration, name string) time.Duration {
	share := int64(spread(name) % 1024)
	return d + time.Duration(int64(d/4)*share/1024)
}
