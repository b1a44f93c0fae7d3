package agent

import (
	"context"
	"sync"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
)

// drivers is how the task drivers of a node are: one level, which registrations
// and reports both say. Of a driver that looks at itself, what it saw last
// counts: a look of another's that goes wrong would be said, and never taken back.
type drivers struct {
	all []driver.Driver
	say func(map[string]api.Driver)

	mu   sync.Mutex // guards seen, and is held until what was seen is said
	seen map[string]api.Driver
}

func newDrivers(all []driver.Driver, say func(map[string]api.Driver)) *drivers {
	return &drivers{all: all, say: say, seen: map[string]api.Driver{}}
}

// saw takes what a driver has seen of itself, and reports whether it works again
// after it did not.
func (d *drivers) saw(ctx context.Context, name string, is api.Driver) (back bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old, known := d.seen[name]
	if known && old == is {
		return false
	}
	d.seen[name] = is
	d.say(d.look(ctx))
	return known && is.Healthy && !old.Healthy
}

// lookAgain forgets what was seen: the drivers were told something.
func (d *drivers) lookAgain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.seen)
}

// now is how the drivers are.
func (d *drivers) now(ctx context.Context) map[string]api.Driver {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.look(ctx)
}

// look asks those that do not look at themselves, or have not yet; the caller
// holds mu.
func (d *drivers) look(ctx context.Context) map[string]api.Driver {
	is := map[string]api.Driver{}
	for _, one := range d.all {
		seen, known := d.seen[one.Name()]
		if !known {
			seen = one.Fingerprint(ctx)
		}
		is[one.Name()] = seen
	}
	return is
}
