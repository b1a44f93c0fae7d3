package localdriver

import (
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/berth-dev/berth/internal/localdriver/record"
)

// calls keeps a second call away from a volume while the first one runs (CSI
// spec, Concurrency). The zero value is ready.
type calls struct {
	mu      sync.Mutex
	running map[record.Key]struct{}
}

// begin takes the volume for one call, which calls end when it is done.
func (c *calls) begin(key record.Key) (end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, busy := c.running[key]; busy {
		return nil, refuse(codes.Aborted, "another call for this volume is running; repeat when it has ended")
	}
	if c.running == nil {
		c.running = map[record.Key]struct{}{}
	}
	c.running[key] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.running, key)
	}, nil
}
