package consensus

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/berth-dev/berth/api"
)

// minRoom is what must be free where the log is, in bytes: the log's next file,
// which is made whole (64 MiB), and the largest entry and a snapshot beside it.
// A log that finds no room cannot be written again before the server restarts.
// So nothing is planned any more while there would still be room for it.
const minRoom = 128 << 20

// room watches what is free where the log is, and refuses plans when it is too
// little. Nobody who plans waits for the file system.
type room struct {
	// free is how many bytes are free, nil if that is without a limit.
	free    func() (uint64, error)
	refusal atomic.Pointer[api.Error] // nil while there is room
}

// errNoRoom is why a plan is refused, or nil.
func (r *room) errNoRoom() error {
	if err := r.refusal.Load(); err != nil {
		return err
	}
	return nil
}

// look asks the file system. It answers whether there was room before and is
// none now, or the other way round. What cannot be asked says nothing: if there
// is no room, the log will tell.
func (r *room) look() (changed bool) {
	if r.free == nil {
		return false
	}
	free, err := r.free()
	if err != nil {
		return false
	}
	if free >= minRoom {
		return r.refusal.Swap(nil) != nil
	}
	return r.refusal.Swap(api.Errorf(api.CodeUnavailable,
		"nothing was written: %d MiB are free on the server's disk, and its log needs %d MiB; make room, and it goes on by itself", free>>20, minRoom>>20)) == nil
}

// makeWay hands the leadership of a server without room to another one, if there
// is one: those may have room.
func (c *Consensus) makeWay() {
	if c.raft.State() != raft.Leader {
		return
	}
	if err := c.raft.LeadershipTransfer().Error(); err != nil {
		c.log.Info("leadership stays with a server without room", "reason", err)
	}
}

// watchRoom looks until ctx ends.
func (c *Consensus) watchRoom(ctx context.Context) error {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		c.lookForRoom()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *Consensus) lookForRoom() {
	r := &c.proposer.room
	switch changed, err := r.look(), r.errNoRoom(); {
	case changed && err != nil:
		c.log.Error("no room for the log: this server refuses writes while it leads", "error", err)
		c.makeWay()
	case changed:
		c.log.Info("there is room for the log again")
	}
}
