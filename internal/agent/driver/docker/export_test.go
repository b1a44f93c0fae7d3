package docker

import "context"

// Pulls are what callers share.
type Pulls struct{ pulls }

// Share is share.
func (p *Pulls) Share(ctx context.Context, key string, say func(string), do func(say func(string)) error) error {
	return p.share(ctx, key, say, do)
}

// Running is how many pulls are under way.
func (p *Pulls) Running() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.running)
}
