package consensus

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

// restoreTimeout bounds how long a restore may wait for raft to take it.
const restoreTimeout = time.Minute

// Save writes the committed state to w.
func (c *Consensus) Save(w io.Writer) error { return c.store.View().Save(w) }

// Restore replaces the state of all servers by a saved one. The saved state
// begins a new generation in the same step, so that at no moment the servers
// act on it as if nothing had happened.
func (c *Consensus) Restore(ctx context.Context, r io.Reader) error {
	saved, err := state.Load(r)
	if err != nil {
		return api.Errorf(api.CodeInvalid, "%v", err)
	}
	if err := c.beginGeneration(saved); err != nil {
		return err
	}
	var body bytes.Buffer
	if err := saved.View().Save(&body); err != nil {
		return fmt.Errorf("prepare the saved state: %w", err)
	}
	meta := &raft.SnapshotMeta{Version: raft.SnapshotVersionMax, Size: int64(body.Len())}
	if err := c.raft.Restore(meta, &body, restoreTimeout); err != nil {
		return api.Errorf(api.CodeUnavailable, "restore: %v", err)
	}
	c.proposer.dropCurrent()
	return c.Barrier(ctx)
}

// beginGeneration marks a saved state as one that was put back. Its generation
// is newer than all that anybody has seen.
func (c *Consensus) beginGeneration(saved *state.Store) error {
	old := saved.View()
	if old.Cluster() == nil {
		return api.Errorf(api.CodeInvalid, "the saved state is of a cluster that has not formed")
	}
	number := old.Cluster().Generation.Number
	if now := c.store.View().Cluster(); now != nil {
		number = max(number, now.Generation.Number)
	}
	at := time.Now().UTC().Round(0)
	if clock := old.Log().Clock; clock.After(at) {
		at = clock
	}
	tx := saved.Begin(c.raft.LastIndex()+1, at)
	defer tx.Abort()
	begin := command.BeginGeneration{
		Number: number + 1,
		Reason: fmt.Sprintf("a state saved at %s was restored", old.Log().Clock.Format(time.RFC3339)),
	}
	if err := begin.Apply(tx); err != nil {
		return err
	}
	tx.Commit()
	return nil
}
