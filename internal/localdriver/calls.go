package localdriver

import (
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/berth-dev/berth/internal/localdriver/record"
)

// calls keeps a second call away from a volume or snapshot while the first one
// runs (CSI spec, Concurrency). The zero value is ready.
type calls struct {
	mu sync.Mutex
	// running is how many share it, or exclusive.
	running map[record.Key]int
}

// exclusive says that one call has the volume for itself.
const exclusive = -1

// begin takes the volume for one call, which calls end when it is done.
func (c *calls) begin(key record.Key) (end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[key] != 0 {
		return nil, refuse(codes.Aborted, "another call for this volume or snapshot is running; repeat when it has ended")
	}
	return c.take(key, exclusive), nil
}

// share takes it together with others that only read it.
func (c *calls) share(key record.Key) (end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[key] == exclusive {
		return nil, refuse(codes.Aborted, "another call for this volume or snapshot is running; repeat when it has ended")
	}
	return c.take(key, 1), nil
}

func (c *calls) take(key record.Key, count int) (end func()) {
	if c.running == nil {
		c.running = map[record.Key]int{}
	}
	c.running[key] += count
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.running[key] -= count; c.running[key] == 0 {
			delete(c.running, key)
		}
	}
}
