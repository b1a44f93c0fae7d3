package docker

import (
	"context"

	"github.com/moby/moby/api/types/registry"
	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
)

// SayAtOnce has pulls say all of how far they are.
func (d *Driver) SayAtOnce() { d.sayEvery = 0 }

// Credentials are what a pull of an image would be made with.
func (d *Driver) Credentials(ctx context.Context, image string) (*registry.AuthConfig, error) {
	return d.credentials(ctx, &config{image: image})
}

// Options are what the engine is asked for.
func (d *Driver) Options(spec *driver.Spec) (client.ContainerCreateOptions, error) {
	var p api.Problems
	cfg := d.parse(&p, &spec.Task)
	if err := p.Err("the task"); err != nil {
		return client.ContainerCreateOptions{}, err
	}
	return d.options(spec, &cfg, false)
}

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
