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
	// Agreed: it counts as done only if something else says so too.
	Agreed bool
	// Certain: it is known whether it had. An uncertain outcome is resolved by
	// repeating, never by forgetting.
	Certain bool
	// Retry: repeating the same call can help. A call that is neither done nor
	// worth repeating has failed for good.
	Retry bool
}

// Judge reads the code that a plugin answered a call with.
func Judge(kind api.OperationKind, code string) Verdict { return Read(kind, code).Verdict }

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

// Pause is Backoff for an operation that has failed: what its plugin does not
// have at all is asked for seldom from the first time on (CSI spec, Error
// Scheme: UNIMPLEMENTED is not to be retried), and only where to give up would
// leak something.
func Pause(op *api.Operation) time.Duration {
	if op.Status.Code == "UNIMPLEMENTED" {
		return Backoff(string(op.ID), op.Status.Failures+longest)
	}
	return Backoff(string(op.ID), op.Status.Failures)
}

// longest is a number of failures after which the wait does not grow any more.
const longest = 16

// spreadOut makes a wait longer by up to a quarter, by the name of what waits.
func spreadOut(d time.Duration, name string) time.Duration {
	share := int64(spread(name) % 1024)
	return d + time.Duration(int64(d/4)*share/1024)
}
