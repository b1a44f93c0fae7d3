package consensus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

// Member is a server as the others see it.
type Member struct {
	ID      string
	Address string
	// Expect is the number of servers that it was told to expect.
	Expect int
	// Formed: it has a log already.
	Formed bool
}

// Discovery finds the servers of a cluster that is about to form.
type Discovery interface {
	// Found returns when n servers are known, this one included, or when one
	// of them has a log already. self is this server.
	Found(ctx context.Context, self Member) ([]Member, error)
}

// Alone is the discovery of a cluster of one server.
type Alone struct{}

// Found answers the server itself.
func (Alone) Found(_ context.Context, self Member) ([]Member, error) { return []Member{self}, nil }

// form makes the first configuration of a cluster, once: when as many servers
// as expected have found each other, agree on the number, and none has a log.
// Each then bootstraps with the same configuration, which raft allows. A
// server with a log, or that finds one, just takes part.
func (c *Consensus) form(ctx context.Context) error {
	formed, err := raft.HasExistingState(c.cfg.Stores.Log, c.cfg.Stores.Stable, c.cfg.Stores.Snapshots)
	if err != nil {
		return fmt.Errorf("look for an existing log: %w", err)
	}
	if formed {
		return nil
	}
	self := Member{ID: c.cfg.ServerID, Address: string(c.cfg.Transport.LocalAddr()), Expect: c.cfg.Expect}
	members, err := c.cfg.Discover.Found(ctx, self)
	if err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // this server was to end
		}
		return fmt.Errorf("find the servers of the cluster: %w", err)
	}
	configuration, err := firstConfiguration(self, members)
	if err != nil || configuration == nil {
		return err
	}
	c.log.Info("cluster forms", "servers", len(members))
	err = c.raft.BootstrapCluster(*configuration).Error()
	if errors.Is(err, raft.ErrCantBootstrap) {
		return nil // the others were quicker, and have asked this server for its vote
	}
	if err != nil {
		return fmt.Errorf("form the cluster: %w", err)
	}
	return nil
}

// firstConfiguration is the same for all members, or nil if one of them has a
// log already and will take this server in.
func firstConfiguration(self Member, members []Member) (*raft.Configuration, error) {
	var cfg raft.Configuration
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	for _, m := range members {
		if m.Formed {
			return nil, nil
		}
		if m.Expect != self.Expect {
			return nil, fmt.Errorf("server %s expects %d servers, and this one %d: set bootstrap_expect to the same number everywhere", m.ID, m.Expect, self.Expect)
		}
		cfg.Servers = append(cfg.Servers, raft.Server{ID: raft.ServerID(m.ID), Address: raft.ServerAddress(m.Address)})
	}
	if len(members) != self.Expect {
		return nil, fmt.Errorf("found %d servers, and expected %d", len(members), self.Expect)
	}
	return &cfg, nil
}

// AloneTuning is raft's timers for a cluster of one server, which has nobody
// to hear from before it may lead.
func AloneTuning() Tuning {
	const short = 50 * time.Millisecond
	return Tuning{Heartbeat: short, Election: short, LeaderLease: short, Commit: short}
}
