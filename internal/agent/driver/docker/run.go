package docker

import (
	"context"
	"fmt"
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
func (d *Driver) Run(ctx context.Context, known func(api.AllocID) bool, changed func()) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
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
	})
	var was api.Driver
	var tidy time.Time
	for first := true; ctx.Err() == nil; first = false {
		is := d.Fingerprint(ctx)
		if !first && is != was && ctx.Err() == nil {
			d.log.Info("the docker engine has changed", "healthy", is.Healthy, "version", is.Version, "reason", is.Reason)
			changed()
		}
		if is.Healthy && (!was.Healthy || time.Now().After(tidy)) {
			tidy = time.Now().Add(tidyEvery)
			if err := d.tidy(ctx, known); err != nil && ctx.Err() == nil {
				d.log.Warn("containers cannot be compared with allocations", "error", err)
				tidy = time.Now().Add(tidyFailed)
			}
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

// tidy removes the containers of allocations that the agent does not know, and
// copies the logs of those that it does. An allocation is recorded before its
// first container is made: what is not known now never will be.
func (d *Driver) tidy(ctx context.Context, known func(api.AllocID) bool) error {
	bounded, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	list, err := d.engine.ContainerList(bounded, client.ContainerListOptions{
		All: true, Filters: make(client.Filters).Add("label", labelAgent+"="+d.cfg.Agent),
	})
	if err != nil {
		return d.problem(err)
	}
	for i := range list.Items {
		item := &list.Items[i]
		if known(api.AllocID(item.Labels[labelAlloc])) {
			if c, err := d.find(ctx, item.Labels[labelID]); err == nil && c != nil && d.ran(c) {
				d.copies.want(c)
			}
			continue
		}
		d.log.Info("removing the container of an allocation that is not known", "container", item.ID, "alloc", item.Labels[labelAlloc])
		if err := d.remove(ctx, item.ID); err != nil {
			return fmt.Errorf("remove container %s: %w", item.ID, err)
		}
	}
	return nil
}
