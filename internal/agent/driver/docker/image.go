package docker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/internal/agent/driver"
)

// image is what is to be known of one.
type image struct {
	// user is whom it runs as if the task does not say.
	user string
	// id is the engine's, and named whether it has a tag.
	id    string
	named bool
	// tagged is when it was last given a name, by a pull as well; zero if the engine
	// does not say.
	tagged time.Time
}

// image finds the image of a task, and pulls it if it is not there, or if the
// task always wants the newest.
func (d *Driver) image(ctx context.Context, cfg *config, say func(string)) (image, error) {
	if !cfg.forcePull {
		img, err := d.inspectImage(ctx, cfg.image)
		if err == nil || !errdefs.IsNotFound(err) {
			return img, d.problem(err)
		}
	}
	err := d.pulls.share(ctx, cfg.image+"\n"+cfg.auth.username+"\n"+cfg.auth.password, say, func(say func(string)) error {
		note, err := d.beginPull(ctx, cfg.image)
		if err == nil {
			err = d.pull(ctx, cfg, say)
		}
		if err == nil {
			err = note(ctx)
		}
		return err
	})
	if err != nil {
		return image{}, err
	}
	img, err := d.inspectImage(ctx, cfg.image)
	if errdefs.IsNotFound(err) {
		return img, &driver.NotStarted{Reason: fmt.Sprintf("image %s was pulled, and is gone again", cfg.image)}
	}
	return img, d.problem(err)
}

func (d *Driver) inspectImage(ctx context.Context, name string) (image, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	res, err := d.engine().ImageInspect(ctx, name)
	if err != nil {
		return image{}, err
	}
	img := image{id: res.ID, named: len(res.RepoTags) > 0, tagged: res.Metadata.LastTagTime}
	if res.Config != nil {
		img.user = res.Config.User
	}
	return img, nil
}

// sayEvery bounds how often a pull says how far it is: a task keeps few events.
const sayEvery = 10 * time.Second

// pull pulls an image.
func (d *Driver) pull(ctx context.Context, cfg *config, say func(string)) error {
	bounded, cancel := context.WithTimeout(ctx, cfg.pullLimit)
	defer cancel()
	began := time.Now()
	say("pulling image " + cfg.image)
	err := d.pullLayers(bounded, cfg, say)
	switch {
	case err == nil:
		say(fmt.Sprintf("pulled image %s in %s", cfg.image, time.Since(began).Round(100*time.Millisecond)))
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case bounded.Err() != nil:
		return &driver.NotStarted{Reason: fmt.Sprintf("pull image %s: it took longer than %s; image_pull_timeout may be longer", cfg.image, cfg.pullLimit)}
	case client.IsErrConnectionFailed(err):
		return d.problem(err)
	}
	return &driver.NotStarted{Reason: fmt.Sprintf("pull image %s: %s", cfg.image, plain(err))}
}

func (d *Driver) pullLayers(ctx context.Context, cfg *config, say func(string)) error {
	var opts client.ImagePullOptions
	credentials, err := d.credentials(ctx, cfg)
	if err != nil && !cfg.softAuth {
		return err
	}
	if err != nil {
		say(fmt.Sprintf("pulling image %s without credentials: %v", cfg.image, err))
	}
	if credentials != nil {
		encoded, err := authconfig.Encode(*credentials)
		if err != nil {
			return errors.New("encode the credentials") // which are in the error
		}
		opts.RegistryAuth = encoded
	}
	answer, err := d.engine().ImagePull(ctx, cfg.image, opts)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }() // it was read to its end, or is not wanted
	layers, last := map[string]*jsonstream.Progress{}, time.Now()
	for m, err := range answer.JSONMessages(ctx) {
		switch {
		case err != nil:
			return err
		case m.Error != nil:
			return m.Error
		case m.Status != "Downloading" || m.Progress == nil:
			continue
		}
		layers[m.ID] = m.Progress
		if time.Since(last) < d.sayEvery {
			continue
		}
		last = time.Now()
		var have, all int64
		for _, l := range layers {
			have, all = have+l.Current, all+l.Total
		}
		say(fmt.Sprintf("pulling image %s: %d of %d MiB", cfg.image, have>>20, all>>20))
	}
	return nil
}

// pulls are under way. Who wants an image that is being pulled waits for it.
type pulls struct {
	mu      sync.Mutex // guards below
	running map[string]*pull
}

type pull struct {
	done chan struct{}
	// err and given are set before done is closed.
	err   error
	given bool // whoever pulled was told to stop: that says nothing of the image

	mu      sync.Mutex // guards below
	hearers map[*func(string)]struct{}
}

// hear has say hear of the pull until leave is called.
func (p *pull) hear(say func(string)) (leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := &say
	p.hearers[key] = struct{}{}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.hearers, key)
	}
}

func (p *pull) say(message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for say := range p.hearers {
		(*say)(message)
	}
}

// share lets one of many callers do what all want, and answers all of them. If
// that one leaves, another one does it.
func (p *pulls) share(ctx context.Context, key string, say func(string), do func(say func(string)) error) error {
	for ctx.Err() == nil {
		p.mu.Lock()
		if p.running == nil {
			p.running = map[string]*pull{}
		}
		run, others := p.running[key], true
		if run == nil {
			run, others = &pull{done: make(chan struct{}), hearers: map[*func(string)]struct{}{}}, false
			p.running[key] = run
		}
		leave := run.hear(say)
		p.mu.Unlock()
		if !others {
			run.err = do(run.say)
			leave()
			run.given = run.err != nil && ctx.Err() != nil
			p.mu.Lock()
			delete(p.running, key)
			p.mu.Unlock()
			close(run.done)
			return run.err
		}
		select {
		case <-run.done:
			if !run.given {
				leave()
				return run.err
			}
		case <-ctx.Done():
		}
		leave()
	}
	return ctx.Err()
}
