package consensus

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

// When the log is cut. A snapshot writes the whole state, so it is taken by
// bytes of log, not by entries, and not too often.
const (
	compactBytes    = 64 << 20
	compactInterval = 2 * time.Minute
	checkInterval   = 10 * time.Second
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
		if c.fsm.bytes.Load() < compactBytes || time.Since(last) < compactInterval {
			continue
		}
		last = time.Now()
		if err := c.raft.Snapshot().Error(); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
			c.log.Error("snapshot failed", "error", err)
		}
	}
}
