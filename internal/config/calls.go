package config

import (
	"fmt"
	"time"

	"github.com/berth-dev/berth/api"
)

// PluginCalls is what a plugin's calls are bounded by, in the server block: the
// label is the plugin's id. What is left out is the default.
type PluginCalls struct {
	ID string `hcl:"id,label"`
	// MaxCalls is how many calls the plugin gets at once, and MaxCallsPerNode how
	// many of them from one node.
	MaxCalls        int `hcl:"max_calls,optional"`
	MaxCallsPerNode int `hcl:"max_calls_per_node,optional"`
	// MaxCallsPerTarget is how many calls attach volumes to one node and detach
	// them from it at once, whichever nodes make them.
	MaxCallsPerTarget int `hcl:"max_calls_per_target,optional"`
	// CallTimeout is how long a call may take, such as "2m".
	CallTimeout string `hcl:"call_timeout,optional"`
	// SlowAfter is how long a call keeps its place from others, such as "15s",
	// and MaxSlowCalls how many may be under way beside MaxCalls after that.
	SlowAfter    string `hcl:"slow_after,optional"`
	MaxSlowCalls *int   `hcl:"max_slow_calls,optional"`
}

// Timeout is CallTimeout, and Slow is SlowAfter; 0 is the default. Complete has
// checked both.
func (c *PluginCalls) Timeout() time.Duration { return duration(c.CallTimeout) }

// Slow is SlowAfter.
func (c *PluginCalls) Slow() time.Duration { return duration(c.SlowAfter) }

func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0
	}
	return d
}

// validateCalls checks what a server says of plugins.
func (s *Server) validateCalls(p *api.Problems) {
	seen := map[string]bool{}
	for i := range s.Plugins {
		c := &s.Plugins[i]
		path := fmt.Sprintf("server.plugin[%q]", c.ID)
		p.Name(path, c.ID)
		if seen[c.ID] {
			p.Add(path, "is there twice", "remove one")
		}
		seen[c.ID] = true
		atLeastOne(p, path+".max_calls", c.MaxCalls)
		atLeastOne(p, path+".max_calls_per_node", c.MaxCallsPerNode)
		atLeastOne(p, path+".max_calls_per_target", c.MaxCallsPerTarget)
		if n := c.MaxSlowCalls; n != nil && *n < 0 {
			p.Addf(path+".max_slow_calls", "give how many slow calls there may be besides, or 0", "is %d", *n)
		}
		times(p, path+".call_timeout", c.CallTimeout)
		times(p, path+".slow_after", c.SlowAfter)
		if c.Timeout() > 0 && c.Slow() > c.Timeout() {
			p.Addf(path+".slow_after", "make it shorter", "is longer than call_timeout (%s)", c.CallTimeout)
		}
	}
}

func atLeastOne(p *api.Problems, path string, n int) {
	if n < 0 {
		p.Addf(path, "give how many calls there may be at once, from 1", "is %d", n)
	}
}

func times(p *api.Problems, path, s string) {
	if d, err := time.ParseDuration(s); s != "" && (err != nil || d < time.Second) {
		p.Addf(path, `give a time of at least "1s", such as "30s" or "2m"`, "is %q", s)
	}
}
