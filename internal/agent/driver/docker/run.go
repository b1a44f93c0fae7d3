package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/api"
)

// How often the engine is looked at, and its containers compared with what the
// agent knows. It is also done whenever the engine comes back.
const (
	lookEvery  = 2 * time.Second
	tidyEvery  = time.Minute
	tidyFailed = 5 * time.Second
)

// Run implements driver.Keeper: it notices that the engine comes and goes,
// copies logs, and removes what nobody knows.
func (d *Driver) Run(ctx context.Context, known func(api.AllocID) bool, saw func(api.Driver)) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { d.copyAll(ctx, &running) })
	var was api.Driver
	var next time.Time
	tidied, tidying := make(chan time.Time, 1), false
	for first := true; ctx.Err() == nil; first = false {
		is := d.Fingerprint(ctx)
		if !first && is != was && ctx.Err() == nil {
			d.log.Info("the docker engine has changed", "healthy", is.Healthy, "version", is.Version, "reason", is.Reason)
		}
		if ctx.Err() == nil {
			saw(is)
		}
		select {
		case next = <-tidied:
			tidying = false
		default:
		}
		if is.Healthy && !tidying && (!was.Healthy || time.Now().After(next)) {
			// A removal can take long, and the engine is looked at meanwhile.
			tidying = true
			running.Go(func() { tidied <- d.tidyOnce(ctx, known) })
		}
		if is.Healthy != was.Healthy {
			d.mu.Lock()
			d.unprivileged = false // it may be another engine
			clear(d.strange)
			d.mu.Unlock()
		}
		was = is
		sleep(ctx, lookEvery)
	}
	return nil
}

// copyAll copies the logs of all containers, each by itself.
func (d *Driver) copyAll(ctx context.Context, running *sync.WaitGroup) {
	for {
		for _, l := range d.copies.pick() {
			running.Go(func() { d.copyLogs(ctx, l) })
		}
		select {
		case <-d.copies.started:
		case <-ctx.Done():
			return
		}
	}
}

// tidyOnce tidies, and answers when to do so again.
func (d *Driver) tidyOnce(ctx context.Context, known func(api.AllocID) bool) (next time.Time) {
	d.endStrays(ctx)
	if err := d.tidy(ctx, known); err != nil && ctx.Err() == nil {
		d.log.Warn("containers cannot be compared with allocations", "error", err)
		return time.Now().Add(tidyFailed)
	}
	if err := d.tidyImages(ctx); err != nil && ctx.Err() == nil {
		d.log.Warn("images that nobody uses are not removed", "error", err)
	}
	if delay := d.imageDelay(); delay > 0 {
		return time.Now().Add(min(tidyEvery, delay))
	}
	return time.Now().Add(tidyEvery)
}

// tidy removes the containers of allocations that the agent does not know, and
// copies the logs of those that it does. An allocation is recorded before its
// first container is made: what is not known now never will be. One container
// that cannot be removed keeps no other.
func (d *Driver) tidy(ctx context.Context, known func(api.AllocID) bool) error {
	before, err := d.remembered()
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	list, err := d.engine().ContainerList(bounded, client.ContainerListOptions{
		All: true, Filters: make(client.Filters).Add("label", labelAgent+"="+d.cfg.Agent),
	})
	if err != nil {
		return d.problem(err)
	}
	var problems []error
	for i := range list.Items {
		item := &list.Items[i]
		delete(before, short(item.ID))
		id := item.Labels[labelID]
		if !slices.Contains(item.Names, "/"+d.containerName(id)) {
			continue // somebody made it from an image that has our labels
		}
		if known(api.AllocID(item.Labels[labelAlloc])) {
			if c, err := d.find(ctx, id); err == nil && c != nil && d.ran(c) {
				d.copies.want(c)
			}
			continue
		}
		d.log.Info("removing the container of an allocation that is not known", "container", item.ID, "alloc", item.Labels[labelAlloc])
		if err := d.remove(ctx, item.ID); err != nil {
			problems = append(problems, fmt.Errorf("remove container %s: %w", item.ID, err))
		}
	}
	// Somebody else has removed these.
	for _, id := range before {
		problems = append(problems, d.forget(ctx, id))
	}
	return errors.Join(problems...)
}

// remembered are the containers of which something is known or recorded, by the
// short forms of their ids.
func (d *Driver) remembered() (map[string]string, error) {
	ids := map[string]string{}
	note := func(id string) { ids[short(id)] = id }
	names, err := os.ReadDir(d.cfg.StateDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for how far logs are copied: %w", err)
	}
	for _, n := range names {
		id, rest, _ := strings.Cut(n.Name(), ".")
		if strings.HasSuffix(rest, "json") {
			note(id)
		}
	}
	for _, id := range d.copies.ids() {
		note(id)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range d.deadlines {
		note(id)
	}
	for id := range d.killed {
		note(id)
	}
	return ids, nil
}
