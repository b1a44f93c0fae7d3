package consensus

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

// When the log is cut. A snapshot writes the whole state, so it is taken by
// bytes of log, not by entries, and not too often. A server that starts reads
// the snapshot, which goes quickly, and makes every command of the log behind it
// again, which does not: about a second for every 16 MiB. So whoever kills a
// server adds that second to its start, or two where the log grows fastest.
const (
	compactBytes    = 16 << 20
	compactInterval = 10 * time.Second
	// compactShare is how many bytes of log are worth one of the last snapshot,
	// which is compressed: a large state is not written for a little log.
	compactShare = 2
	// stopBytes is how much log is worth a snapshot when the server stops.
	stopBytes     = 2 << 20
	checkInterval = time.Second
	// trailingEntries stay behind a snapshot, so that a server that was away
	// for a moment needs no snapshot.
	trailingEntries = 4096
)

// compact takes a snapshot whenever the log has grown enough.
func (c *Consensus) compact(ctx context.Context) error {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if c.fsm.bytes.Load() < max(compactBytes, compactShare*c.fsm.saved.Load()) || time.Since(last) < compactInterval {
			continue
		}
		last = time.Now()
		c.snapshot()
	}
}

// snapshot cuts the log.
func (c *Consensus) snapshot() {
	if err := c.raft.Snapshot().Error(); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		c.log.Error("snapshot failed", "error", err)
	}
}

// leaveSnapshot takes a snapshot before the server stops, so that the next start
// is a quick one.
func (c *Consensus) leaveSnapshot() {
	if c.fsm.bytes.Load() >= stopBytes {
		c.snapshot()
	}
}
