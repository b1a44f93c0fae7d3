package docker

import (
	"context"
	"crypto/rand"
	"io"
	"net"
	"time"

	"github.com/moby/moby/api/types/registry"
	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/driver/process"
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

// AwaitVisit waits for a command as a visitor does who came into the container.
func (d *Driver) AwaitVisit(ctx context.Context, container, exec string) error {
	done, err := d.visits.begin(container)
	if err != nil {
		return err
	}
	v := &visited{Driver: d, req: &api.ExecRequest{}, container: container, done: done, exec: exec, mark: markVisit + rand.Text(), among: process.All}
	if err := v.remember(); err != nil {
		return err
	}
	near, far := net.Pipe()
	defer func() { _ = far.Close() }()
	v.conn.HijackedResponse = client.NewHijackedResponse(near, "")
	v.out, _ = io.Pipe()
	defer v.close()
	_, err = v.wait(ctx)
	return err
}

// EndStrays ends what was left.
func (d *Driver) EndStrays(ctx context.Context) { d.endStrays(ctx) }

// Visits is how many commands count in a container.
func (d *Driver) Visits(container string) int {
	d.visits.mu.Lock()
	defer d.visits.mu.Unlock()
	return d.visits.open[container]
}

// RecordPath is where is recorded that an image was pulled.
func (d *Driver) RecordPath(image string) string { return d.pulledPath(image, "") }

// BeginPull notes that an image is about to be pulled, and that it was.
func (d *Driver) BeginPull(ctx context.Context, image string) error {
	note, err := d.beginPull(ctx, image)
	if err != nil {
		return err
	}
	return note(ctx)
}

// Members lists the processes of a container.
func Members(first int, container string) ([]int, error) { return members(first, container)() }

// TidyImages looks at images once.
func (d *Driver) TidyImages(ctx context.Context) error { return d.tidyImages(ctx) }

// Unused is since when no container has an image, as it is recorded.
func (d *Driver) Unused(image string) time.Time {
	p, err := d.readPulled(d.pulledPath(image, ""))
	if err != nil || p == nil {
		return time.Time{}
	}
	return p.Unused
}
