package dispatcher

import (
	"time"

	"github.com/berth-dev/berth/api"
)

// Calls bounds the calls to one plugin. What is 0 is the default.
type Calls struct {
	// Max is how many calls the plugin gets at once, and MaxPerNode how many of
	// them from the agent of one node. Of the calls to volumes at most half are
	// for one volume.
	Max, MaxPerNode int
	// MaxPerTarget is how many calls attach volumes to one node and detach them
	// from it at once, whichever agents make them.
	MaxPerTarget int
	// Timeout is how long a call may take. The agent ends it then.
	Timeout time.Duration
	// Slow is how long a call keeps its slot: from then on another may be made
	// beside it, for as long as no more than MaxSlow such calls are under way.
	Slow time.Duration
	// MaxSlow is half of Max if it is nil: none where the plugin gets one call
	// at a time, which a call that hangs then keeps from all others.
	MaxSlow *int
}

// Defaults.
const (
	DefaultMax          = 4096
	DefaultMaxPerNode   = 256
	DefaultMaxPerTarget = 32
	DefaultTimeout      = 2 * time.Minute
	DefaultSlow         = 15 * time.Second
)

// Limits are those of all plugins; one that is not named has the defaults.
type Limits map[api.PluginID]Calls

// of are the limits of a plugin, complete.
func (l Limits) of(plugin api.PluginID) bounds {
	c := l[plugin]
	or := func(n, otherwise int) int {
		if n > 0 {
			return n
		}
		return otherwise
	}
	b := bounds{max: or(c.Max, DefaultMax), timeout: c.Timeout, slow: c.Slow}
	b.node = min(or(c.MaxPerNode, DefaultMaxPerNode), b.max)
	b.target = min(or(c.MaxPerTarget, DefaultMaxPerTarget), b.max)
	b.volume = max(1, b.max/2)
	if b.timeout <= 0 {
		b.timeout = DefaultTimeout
	}
	if b.slow <= 0 {
		b.slow = min(DefaultSlow, b.timeout)
	}
	b.overdue = b.max / 2
	b.nodeOverdue = b.node / 2
	b.targetOverdue = b.target / 2
	if c.MaxSlow != nil {
		b.overdue, b.nodeOverdue = *c.MaxSlow, min(*c.MaxSlow, b.node)
		b.targetOverdue = min(*c.MaxSlow, b.targetOverdue) // one at a time stays one at a time
	}
	return b
}

// bounds are limits with nothing left open.
type bounds struct {
	max, node, target, volume           int
	overdue, nodeOverdue, targetOverdue int
	timeout, slow                       time.Duration
}

// count is the calls that are under way somewhere.
type count struct {
	running int // and have their slots
	slow    int // and have given them back, as far as that goes
}

// and is one call more.
func (c count) and(slow bool) count {
	if slow {
		c.slow++
	} else {
		c.running++
	}
	return c
}

// taken is how many slots they have.
func (c count) taken(overdue int) int { return c.running + max(0, c.slow-overdue) }
