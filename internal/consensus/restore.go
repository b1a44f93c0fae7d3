package consensus

import (
	"bytes"
	"context"
	"crypto/rand"
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

// restoreGap is how far the log's index leaps at a restore, so that nothing
// that is still on its way gets a higher index than the restored state, and
// who polls sees indexes rise.
const restoreGap = 1 << 20

// Restore replaces the state of all servers by a saved one. The saved state
// begins a new generation in the same step, so that at no moment the servers
// act on it as if nothing had happened.
func (c *Consensus) Restore(ctx context.Context, r io.Reader) error {
	saved, err := state.Load(r)
	if err != nil {
		return api.Errorf(api.CodeInvalid, "%v", err)
	}
	if !c.Ready() {
		return errNotLeading()
	}
	index := max(c.raft.LastIndex(), saved.View().Index()) + restoreGap
	if err := c.beginGeneration(saved, index); err != nil {
		return err
	}
	var body bytes.Buffer
	if err := saved.View().Save(&body); err != nil {
		return fmt.Errorf("prepare the saved state: %w", err)
	}
	// Raft puts the snapshot at the index after the one that it is told.
	meta := &raft.SnapshotMeta{Version: raft.SnapshotVersionMax, Index: index - 1, Size: int64(body.Len())}
	err = c.raft.Restore(meta, &body, restoreTimeout)
	c.proposer.dropCurrent()
	if err != nil {
		return lost(err)
	}
	return c.Barrier(ctx)
}

// beginGeneration marks a saved state as one that was put back, as an entry at
// index would. Its generation is newer than all that anybody has seen, and so
// is its last entry: a plan that was made on the state before is void, even if
// nothing was written since the state was saved.
func (c *Consensus) beginGeneration(saved *state.Store, index uint64) error {
	old := saved.View()
	if old.Cluster() == nil {
		return api.Errorf(api.CodeInvalid, "the saved state is of a cluster that has not formed")
	}
	number := old.Cluster().Generation.Number
	if now := c.store.View().Cluster(); now != nil {
		number = max(number, now.Generation.Number)
	}
	at := c.Now()
	if clock := old.Log().Clock; clock.After(at) {
		at = clock
	}
	tx := saved.Begin(index, at)
	defer tx.Abort()
	begin := command.BeginGeneration{
		Number: number + 1,
		Reason: fmt.Sprintf("a state saved at %s was restored", old.Log().Clock.Format(time.RFC3339)),
	}
	if err := begin.Apply(tx); err != nil {
		return err
	}
	tx.ChangeAll()
	tx.PutLog(state.Log{Last: state.EntryID{Leadership: rand.Text()}, Clock: at})
	tx.Commit()
	return nil
}
