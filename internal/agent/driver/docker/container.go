package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/driver/executor"
)

// The labels of containers.
const (
	labelAgent = "dev.berth.agent"
	labelID    = "dev.berth.id" // of the run: <allocation>/<task>, <allocation>/<task>/1, ...
	labelAlloc = "dev.berth.alloc"
	labelTask  = "dev.berth.task"
	labelDir   = "dev.berth.dir" // the task's directory
	labelBoot  = "dev.berth.boot"
)

// found is a container of this agent, as the engine knows it.
type found struct {
	container.InspectResponse
}

// find looks for the container of a run. It answers nil if there is none.
func (d *Driver) find(ctx context.Context, id string) (*found, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	name := d.containerName(id)
	res, err := d.engine().ContainerInspect(ctx, name, client.ContainerInspectOptions{})
	switch {
	case errdefs.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look at container %s: %w", name, d.problem(err))
	case res.Container.State == nil || res.Container.Config == nil:
		return nil, fmt.Errorf("look at container %s: the engine does not say how it is", name)
	}
	c := &found{res.Container}
	if c.label(labelAgent) != d.cfg.Agent || c.label(labelID) != id {
		return nil, fmt.Errorf("look at container %s: somebody else made it; remove it with docker rm", name)
	}
	return c, nil
}

func (c *found) label(name string) string { return c.Config.Labels[name] }

// lives reports whether something of it runs.
func (c *found) lives() bool {
	switch c.State.Status {
	case container.StateRunning, container.StatePaused, container.StateRestarting:
		return true
	case container.StateCreated, container.StateExited, container.StateDead, container.StateRemoving:
	}
	return c.State.Running
}

// ran reports whether it was ever started, in this boot. What another boot
// ended did not end by itself, and is started again without being counted.
func (d *Driver) ran(c *found) bool {
	return c.State.Status != container.StateCreated && (c.lives() || c.label(labelBoot) == d.cfg.BootID)
}

// status is how a container is, in the words of drivers.
func (d *Driver) status(c *found) driver.Status {
	switch {
	case c.lives():
		return driver.Status{State: driver.StateRunning, PID: c.State.Pid, Started: moment(c.State.StartedAt)}
	case !d.ran(c):
		return driver.Status{State: driver.StateUnknown}
	}
	s := driver.Status{
		State: driver.StateEnded, Started: moment(c.State.StartedAt), Ended: moment(c.State.FinishedAt),
		ExitCode: c.State.ExitCode,
	}
	d.mu.Lock()
	killed := d.killed[c.ID]
	d.mu.Unlock()
	switch {
	case killed:
		s.Reason = executor.ReasonKilled
	case c.State.OOMKilled && s.ExitCode != 0:
		s.Reason = executor.ReasonOOM
	case c.State.Error != "":
		s.Reason = c.State.Error
	}
	return s
}

// moment is a time as the engine writes it; it writes the year 1 for never.
func moment(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || t.Year() <= 1 {
		return time.Time{}
	}
	return t
}

// Status implements driver.Driver. A task has ended when its last word is in
// its log.
func (d *Driver) Status(ctx context.Context, id string) (driver.Status, error) {
	c, err := d.find(ctx, id)
	if err != nil {
		return driver.Status{}, err
	}
	if c == nil {
		return driver.Status{State: driver.StateUnknown}, nil
	}
	status := d.status(c)
	if status.State != driver.StateUnknown {
		d.copies.want(c)
	}
	if status.State == driver.StateEnded {
		d.copies.drained(ctx, c.ID)
	}
	return status, nil
}

// between tries to reach an engine that does not answer.
const retryEngine = 500 * time.Millisecond

// Wait implements driver.Driver. An engine that goes away is waited for.
func (d *Driver) Wait(ctx context.Context, id string) (driver.Status, error) {
	for {
		c, err := d.find(ctx, id)
		switch {
		case ctx.Err() != nil:
			return driver.Status{}, ctx.Err()
		case err != nil:
			if !sleep(ctx, retryEngine) {
				return driver.Status{}, ctx.Err()
			}
			continue
		case c == nil || !d.ran(c):
			return driver.Status{}, api.Errorf(api.CodeNotFound, "the docker engine has no container of task %s", id)
		case !c.lives():
			return d.Status(ctx, id)
		}
		d.copies.want(c)
		if err := d.ends(ctx, c.ID); err != nil && !sleep(ctx, retryEngine) {
			return driver.Status{}, ctx.Err()
		}
	}
}

// ends returns when a container does not run any more, or when nobody can say.
func (d *Driver) ends(ctx context.Context, id string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	res := d.engine().ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case <-res.Result:
		return nil
	case err := <-res.Error:
		return err
	case <-ctx.Done():
		select { // the client's goroutine says one of them before it goes
		case <-res.Result:
			return nil
		case err := <-res.Error:
			return errors.Join(ctx.Err(), err)
		}
	}
}

// Stop implements driver.Driver. Without a signal, it is the image's own.
func (d *Driver) Stop(ctx context.Context, id, signal string, timeout time.Duration) error {
	c, err := d.find(ctx, id)
	if err != nil || c == nil || !c.lives() {
		return err
	}
	if timeout == 0 {
		timeout = driver.DefaultKillTimeout
	}
	if err := d.signalOnce(ctx, c, signal, time.Now().Add(max(timeout, 0))); err != nil {
		return err
	}
	for {
		d.mu.Lock()
		deadline := d.deadlines[c.ID]
		d.mu.Unlock()
		bounded, cancel := context.WithDeadline(ctx, deadline)
		err := d.ends(bounded, c.ID)
		late := bounded.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil || errdefs.IsNotFound(err):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !late:
			return fmt.Errorf("stop task %s: %w", id, d.problem(err))
		}
		if err := d.kill(ctx, c); err != nil {
			return fmt.Errorf("stop task %s: %w", id, err)
		}
	}
}

// signalOnce asks a container to end. An order that is repeated is not a second
// signal, which some programs would take as a wish to hurry; but an earlier
// deadline counts.
func (d *Driver) signalOnce(ctx context.Context, c *found, signal string, deadline time.Time) error {
	d.mu.Lock()
	old, asked := d.deadlines[c.ID]
	if !asked || deadline.Before(old) {
		d.deadlines[c.ID] = deadline
	}
	d.mu.Unlock()
	if asked {
		return nil
	}
	if signal == "" {
		signal = c.Config.StopSignal
	}
	if signal == "" {
		signal = "SIGTERM"
	}
	if err := d.signal(ctx, c.ID, signal); err != nil {
		d.mu.Lock()
		delete(d.deadlines, c.ID)
		d.mu.Unlock()
		return fmt.Errorf("stop container %s: %w", c.Name, err)
	}
	return nil
}

// kill ends a container that did not end in time.
func (d *Driver) kill(ctx context.Context, c *found) error {
	d.mu.Lock()
	d.killed[c.ID] = true
	// If it does not die, it is killed again.
	d.deadlines[c.ID] = time.Now().Add(10 * time.Second)
	d.mu.Unlock()
	return d.signal(ctx, c.ID, "SIGKILL")
}

// signal sends a signal; one that comes too late is no error.
func (d *Driver) signal(ctx context.Context, id, signal string) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	_, err := d.engine().ContainerKill(ctx, id, client.ContainerKillOptions{Signal: signal})
	if errdefs.IsNotFound(err) || errdefs.IsConflict(err) {
		return nil
	}
	return d.problem(err)
}

// Signal implements driver.Signaller: it reaches the task's first process.
func (d *Driver) Signal(ctx context.Context, id, signal string) error {
	c, err := d.find(ctx, id)
	if err != nil {
		return err
	}
	if c == nil || !c.lives() {
		return api.Errorf(api.CodeConflict, "task %s does not run", id)
	}
	return d.signal(ctx, c.ID, signal)
}

// Destroy implements driver.Driver.
func (d *Driver) Destroy(ctx context.Context, id string) error {
	c, err := d.find(ctx, id)
	if err != nil {
		return err
	}
	if c != nil {
		if err := d.remove(ctx, c.ID); err != nil {
			return fmt.Errorf("remove container %s: %w", c.Name, err)
		}
	}
	return nil
}

// remove removes a container with all that runs in it, and what is known of it.
func (d *Driver) remove(ctx context.Context, id string) error {
	bounded, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		_, err := d.engine().ContainerRemove(bounded, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if err == nil || errdefs.IsNotFound(err) {
			break
		}
		// Another one removes it: it is gone in a moment.
		if !errdefs.IsConflict(err) || !sleep(bounded, 50*time.Millisecond) {
			return d.problem(err)
		}
	}
	// An engine that lost what holds the container may have removed only its own
	// idea of it. Who goes on writing to a volume must not be left.
	if err := killContained(bounded, id); err != nil {
		return err
	}
	return d.forget(ctx, id)
}

// forget forgets a container that is gone.
func (d *Driver) forget(ctx context.Context, id string) error {
	d.mu.Lock()
	delete(d.deadlines, id)
	delete(d.killed, id)
	d.mu.Unlock()
	return d.forgetLogs(ctx, id)
}

// short is so much of a container's id as is in the names of files.
func short(id string) string { return id[:min(len(id), 32)] }

// sleep waits, and reports whether ctx still is.
func sleep(ctx context.Context, t time.Duration) bool {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// isTransport reports whether a connection broke.
func isTransport(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	if _, ok := errors.AsType[*url.Error](err); ok {
		return true
	}
	_, ok := errors.AsType[net.Error](err)
	return ok
}
