package localdriver

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/berth-dev/berth/internal/localdriver/clone"
)

// copies runs what can take longer than the call that asked for it. The call
// waits as long as it may; the copy goes on without it, and the repeated call
// finds it. Otherwise a large volume would be begun anew until it is never done.
type copies struct {
	mu      sync.Mutex
	running map[string]*copying
	queue   chan func(context.Context)
	// stopped is closed when nothing is started any more.
	stopped chan struct{}
}

// copying is one copy, by the path that it makes.
type copying struct {
	progress clone.Progress
	done     chan struct{}
	err      error // valid when done is closed
}

func newCopies() *copies {
	return &copies{running: map[string]*copying{}, queue: make(chan func(context.Context)), stopped: make(chan struct{})}
}

// run runs copies until ctx is cancelled, which cancels them too, and returns
// when all have ended.
func (c *copies) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	defer close(c.stopped)
	for {
		select {
		case work := <-c.queue:
			running.Go(func() { work(ctx) })
		case <-ctx.Done():
			return
		}
	}
}

// find is the copy that makes path now, or nil.
func (c *copies) find(path string) *copying {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[path]
}

// start begins a copy. work is called once, even if nothing is started any
// more: then with a context that is cancelled.
func (c *copies) start(ctx context.Context, path string, work func(context.Context, *clone.Progress) error) *copying {
	now := &copying{done: make(chan struct{})}
	c.mu.Lock()
	c.running[path] = now
	c.mu.Unlock()
	run := func(ctx context.Context) {
		now.err = work(ctx, &now.progress)
		c.mu.Lock()
		delete(c.running, path)
		c.mu.Unlock()
		close(now.done)
	}
	select {
	case c.queue <- run:
	case <-c.stopped:
		over, cancel := context.WithCancel(ctx)
		cancel()
		run(over)
	}
	return now
}

// wait waits for the copy, or as long as the call may.
func (c *copying) wait(ctx context.Context) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		done, total := c.progress.Get()
		return refuse(codes.Aborted, "still copying: %d of %d bytes; repeat the call", done, total)
	}
}
