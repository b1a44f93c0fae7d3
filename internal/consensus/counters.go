package consensus

import (
	"sync/atomic"

	"github.com/berth-dev/berth/internal/telemetry"
)

// Counters are what the proposer counts since the server started.
type Counters struct {
	// Plans and Entries went to the log; Bytes is the size of the entries.
	Plans, Entries, Bytes atomic.Int64
	// Conflicts are plans that rested on something that had moved. The sum of
	// all controllers' is zero in health: they plan in turn.
	Conflicts atomic.Int64
	// Unchanged are plans that would have changed nothing. They are not logged.
	Unchanged atomic.Int64
	// Panics are plans that panicked: faults of Berth.
	Panics atomic.Int64
	// Drops is how often the overlay was dropped: once for each end of a
	// leadership, and for each error of raft.
	Drops atomic.Int64
}

// measures are what the proposer measures of each entry.
type measures struct {
	commits *telemetry.Durations
	batches *telemetry.Sizes
}

func newMeasures(r *telemetry.Registry) measures {
	return measures{
		commits: r.Durations("berth_consensus_commit_seconds", "How long entries took from the leader's hand to their commit"),
		batches: r.Sizes("berth_consensus_entry_plans", "How many plans an entry of the log carries"),
	}
}
