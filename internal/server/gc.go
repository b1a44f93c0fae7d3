package server

import (
	"context"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/controller/collector"
	"github.com/berth-dev/berth/internal/state"
)

// restarts is how long a node is down at least before it is no more: one that is
// started again is not forgotten.
const restarts = time.Hour

// rubbish removes all that has ended, whatever its age, but nodes that were in
// contact a short time ago. It asks the collector,
// which keeps nothing then, and proposes what that plans: batch by batch, so
// that others get their turn.
type rubbish struct {
	view    func() state.View
	now     func() time.Time
	propose func(ctx context.Context, commands ...command.Command) (uint64, error)
}

// collectTries is how often a batch is planned again that did not apply,
// because something in it changed meanwhile.
const collectTries = 8

// Collect removes what has ended until now.
func (g rubbish) Collect(ctx context.Context) (api.Collected, error) {
	var all api.Collected
	now, none := g.now(), collector.New(collector.Keep{Nodes: restarts})
	for _, k := range collector.Keys() {
		for tries := 0; ; {
			v := g.view()
			plan, err := none.Reconcile(v, now, k)
			if err != nil || len(plan.Commands) == 0 {
				if err != nil {
					return all, err
				}
				break
			}
			batch := count(v, plan.Commands)
			switch _, err := g.propose(ctx, plan.Commands...); {
			case api.CodeOf(err) == api.CodeConflict && tries < collectTries:
				tries++
			case err != nil:
				return all, err
			default:
				all.Operations += batch.Operations
				all.Attachments += batch.Attachments
				all.Allocations += batch.Allocations
				all.Jobs += batch.Jobs
				all.Snapshots += batch.Snapshots
				all.Nodes += batch.Nodes
			}
		}
	}
	return all, nil
}

// count is how much commands remove.
func count(v state.View, commands []command.Command) (n api.Collected) {
	for _, c := range commands {
		col, ok := c.(*command.Collect)
		if !ok {
			continue
		}
		n.Operations += len(col.Operations)
		n.Attachments += len(col.Attachments)
		n.Allocations += len(col.Allocations)
		n.Jobs += len(col.Jobs)
		n.Snapshots += len(col.Snapshots)
		n.Nodes += len(col.Nodes)
		for _, id := range col.Allocations {
			for range v.AllocAttachments(id) {
				n.Attachments++
			}
		}
	}
	return n
}
