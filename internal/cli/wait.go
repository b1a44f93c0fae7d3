package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

const (
	// pollWait is how long one blocking query of a waiting command lasts. What a
	// thing waits for can change without the thing itself.
	pollWait = 5 * time.Second
	// contactLimit is how long a waiting command looks for a server that it has
	// lost.
	contactLimit = 2 * time.Minute
)

// waiting is how a command waits: its flags.
type waiting struct {
	detach  bool
	healthy bool
	timeout time.Duration
}

// waitFlags gives a command the flags of those that wait.
func waitFlags(cmd *cobra.Command) *waiting { return waitFlagsNamed(cmd, "detach") }

// waitFlagsNamed is waitFlags for a command in which detaching means something
// else.
func waitFlagsNamed(cmd *cobra.Command, detach string) *waiting {
	w := &waiting{}
	cmd.Flags().BoolVar(&w.detach, detach, false, "do not wait")
	cmd.Flags().DurationVar(&w.timeout, "timeout", 0, "wait no longer than this `duration`, such as 90s; what was asked for goes on (default: until it is done)")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if w.timeout < 0 || w.timeout == 0 && cmd.Flags().Changed("timeout") {
			return Usage(fmt.Errorf("--timeout is %s; give a duration such as 90s", w.timeout))
		}
		return run(cmd, args)
	}
	return w
}

// limit bounds what a command waits for by its flag.
func (w *waiting) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, w.timeout, timeoutError{w.timeout})
}

// timeoutError is the end of a command's own patience.
type timeoutError struct{ after time.Duration }

func (t timeoutError) Error() string { return fmt.Sprintf("not done within %s", t.after) }

// waitError says what a command waited for when something went wrong. What it
// had asked for was done, or goes on.
type waitError struct {
	what string
	last string // what was known of it last
	look string // the command that looks again
	err  error
}

func (w *waitError) Error() string { return fmt.Sprintf("wait for %s: %v", w.what, w.err) }
func (w *waitError) Unwrap() error { return w.err }

// endedError is a wait that ended before its things did: it was interrupted, or
// its time was over.
type endedError struct {
	cause error
	waits []*waitError
}

func (e *endedError) Unwrap() error { return e.cause }

func (e *endedError) Error() string {
	var whats, lasts []string
	for _, w := range e.waits {
		whats = append(whats, w.what)
		if w.last != "" {
			lasts = append(lasts, w.last)
		}
	}
	text := "interrupted while waiting for " + strings.Join(whats, ", ")
	if late, ok := errors.AsType[timeoutError](e.cause); ok {
		text = late.Error() + ": " + strings.Join(whats, ", ")
		if len(lasts) > 0 {
			text = late.Error() + ": " + strings.Join(lasts, "\n")
		}
	}
	return text + "; what was asked for goes on (see 'berth " + e.waits[0].look + "')"
}

// wait waits for several things at once, and draws what it waits for. Its error
// has that of each, or says that the waiting was ended.
func (a *app) wait(ctx context.Context, things ...func(context.Context) error) error {
	errs := make([]error, len(things))
	var all sync.WaitGroup
	for i, thing := range things {
		all.Go(func() { errs[i] = thing(ctx) })
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		all.Wait()
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for waits := true; waits; {
		select {
		case <-ended:
			waits = false
		case <-tick.C:
			a.screen.tick()
		}
	}
	a.screen.clear()
	if ctx.Err() == nil {
		return errors.Join(errs...)
	}
	over := &endedError{cause: context.Cause(ctx)}
	for _, err := range errs {
		if one, ok := errors.AsType[*waitError](err); ok {
			over.waits = append(over.waits, one)
		}
	}
	if len(over.waits) == 0 {
		return errors.Join(errs...)
	}
	return over
}

// watcher shows what changes while a command waits for one thing.
type watcher struct {
	app  *app
	what string
	look string // the command that looks at it
	last string
}

// is shows in what state the thing is, unless that is what it showed last.
func (w *watcher) is(state, note string) {
	line := w.what + " is " + state + note
	switch {
	case line == w.last:
	case w.app.live():
		w.app.screen.show(w.what, state+note)
	default:
		w.app.progress("%s", line)
	}
	w.last = line
}

// reached shows the state that was waited for, to stay.
func (w *watcher) reached(state, note string) {
	line := w.what + " is " + state + note
	w.app.screen.drop(w.what)
	if line != w.last || w.app.live() {
		w.app.progress("%s", line)
	}
	w.last = line
}

// waits shows the state, and why it is not the one that is waited for.
func (w *watcher) waits(state string, waits []api.Wait) {
	if len(waits) == 0 {
		w.is(state, "")
		return
	}
	w.is(state, ": "+reason(waits))
}

// reason is why the first waits. If it waits for another one, that one's reason
// says more.
func reason(waits []api.Wait) string {
	for _, w := range waits[1:] {
		if strings.HasSuffix(waits[0].Reason, " "+w.Subject) {
			return w.Subject + ": " + w.Reason
		}
	}
	return waits[0].Reason
}

// contact is whether a waiting command has its servers.
type contact struct {
	mu   sync.Mutex // guards lost
	lost time.Time  // since when, zero if not
}

// broken reports whether err is a lost connection that is worth trying again.
// It says so once, and once more when it is over.
func (k *contact) broken(ctx context.Context, err error, say func(string)) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return false
	case api.CodeOf(err) != api.CodeUnavailable:
		if !k.lost.IsZero() && err == nil {
			say("the servers answer again")
			k.lost = time.Time{}
		}
		return false
	case k.lost.IsZero():
		k.lost = time.Now()
		say(err.Error() + "; what was asked for goes on, and the servers are asked again")
	}
	return time.Since(k.lost) < contactLimit
}

// await reads a thing, each time when it may have changed, until look says that
// it is done, or fails.
func await[T any](ctx context.Context, w *watcher, read func(context.Context, client.Query) (T, uint64, error), look func(T, error) (done bool, err error)) (T, error) {
	say := func(text string) { fmt.Fprintln(w.app.Stderr, plain("berth: "+text)) }
	for index := uint64(0); ; {
		v, at, err := read(ctx, client.Query{Index: index, Wait: pollWait})
		if w.app.contact.broken(ctx, err, say) {
			index = 0
			continue
		}
		done, err := look(v, err)
		if err != nil {
			return v, &waitError{what: w.what, last: w.last, look: w.look, err: err}
		}
		if done {
			return v, nil
		}
		index = at
	}
}

func volumeReader(c *client.Client, ns api.NamespaceID, id api.VolumeID) func(context.Context, client.Query) (api.VolumeInfo, uint64, error) {
	return func(ctx context.Context, q client.Query) (api.VolumeInfo, uint64, error) {
		return c.Volume(ctx, ns, id, q)
	}
}

// in is the flag of a namespace, for a command that somebody else is to type.
func in(ns api.NamespaceID) string {
	if ns == api.DefaultNamespace {
		return ""
	}
	return " -n " + string(ns)
}

func (a *app) volumeWatcher(ns api.NamespaceID, id api.VolumeID) *watcher {
	return &watcher{app: a, what: fmt.Sprintf("volume %s/%s", ns, id), look: "volume explain " + string(id) + in(ns)}
}

func (a *app) jobWatcher(ns api.NamespaceID, id api.JobID) *watcher {
	return &watcher{app: a, what: fmt.Sprintf("job %s/%s", ns, id), look: "job explain " + string(id) + in(ns)}
}

func (a *app) awaitVolume(ctx context.Context, c *client.Client, ns api.NamespaceID, id api.VolumeID) (api.VolumeInfo, error) {
	w := a.volumeWatcher(ns, id)
	return await(ctx, w, volumeReader(c, ns, id), func(v api.VolumeInfo, err error) (bool, error) {
		if err != nil {
			return false, err
		}
		switch v.Status.State {
		case api.VolumeReady:
			done, err := changed(w, &v)
			if done {
				w.reached(string(v.Status.State), withSize(v.Status.Capacity)+later(&v))
			}
			return done, err
		case api.VolumeFailed:
			return false, fmt.Errorf("it could not be created: %s", v.Status.Reason)
		case api.VolumeDeleting:
			return false, errors.New("it is being deleted")
		case api.VolumeCreating:
			w.waits(string(v.Status.State), v.Waits)
		}
		return false, nil
	})
}

// awaitGone waits until a volume no longer exists, and says how it went.
func (a *app) awaitGone(ctx context.Context, c *client.Client, ns api.NamespaceID, id api.VolumeID, as string) error {
	w := a.volumeWatcher(ns, id)
	_, err := await(ctx, w, volumeReader(c, ns, id), func(v api.VolumeInfo, err error) (bool, error) {
		switch {
		case api.CodeOf(err) == api.CodeNotFound:
			w.reached(as, "")
			return true, nil
		case err != nil:
			return false, err
		case v.Desired == api.Present:
			return false, errors.New("it was applied again")
		}
		w.waits(string(v.Status.State), v.Waits)
		return false, nil
	})
	return err
}

func (a *app) awaitJob(ctx context.Context, c *client.Client, ns api.NamespaceID, id api.JobID, reached func(api.JobInfo) (bool, error)) (api.JobInfo, error) {
	w := a.jobWatcher(ns, id)
	read := func(ctx context.Context, q client.Query) (api.JobInfo, uint64, error) { return c.Job(ctx, ns, id, q) }
	return await(ctx, w, read, func(j api.JobInfo, err error) (bool, error) {
		if err != nil {
			return false, err
		}
		done, err := reached(j)
		switch {
		case err != nil:
			return false, err
		case done:
			w.reached(string(j.State), "")
		case j.State == api.JobRunning && j.Spec.Type.Ends():
			w.is(string(j.State), ", and not complete yet")
		case j.State == api.JobRunning && len(j.Waits) == 0:
			w.is(string(j.State), ", and not healthy everywhere yet")
		default:
			w.waits(string(j.State), j.Waits)
		}
		return done, nil
	})
}

// rollout is where apply brings a job: to run as was applied or, if that is
// asked, to have been healthy everywhere, or to be complete if it ends.
type rollout struct {
	revision uint64 // that was applied
	healthy  bool
	old      map[api.AllocID]bool // what had ended before is history
}

func newRollout(applied api.JobInfo, healthy bool) *rollout {
	r := &rollout{revision: applied.Revision, healthy: healthy, old: map[api.AllocID]bool{}}
	for _, a := range applied.Allocations {
		r.old[a.ID] = a.Terminal()
	}
	return r
}

// reached reports whether the job is where it was to be brought, or why it will
// not be. An allocation of a service that fails is replaced, for as long as it
// takes; who has applied it wants to know.
func (r *rollout) reached(j api.JobInfo) (bool, error) {
	if back := j.Status.Reverted; back != nil && back.From == r.revision {
		return false, fmt.Errorf("revision %d of it has failed, and it has gone back to revision %d: %s", back.From, back.To, plain(back.Reason))
	}
	if j.Revision > r.revision {
		return false, fmt.Errorf("revision %d of it was applied in the meantime", j.Revision)
	}
	switch j.State {
	case api.JobComplete:
		return true, nil
	case api.JobRunning:
		if !r.healthy || !j.Spec.Type.Ends() && j.Status.Stable >= r.revision {
			return true, nil
		}
	case api.JobFailed:
		for _, a := range slices.Backward(j.Allocations) {
			if why := a.Status.Why(); a.Status.State == api.AllocFailed && why != "" {
				return false, errors.New("it has failed: " + plain(why))
			}
		}
		return false, errors.New("it has failed")
	case api.JobStopped, api.JobStopping:
		return false, errors.New("it was stopped")
	case api.JobPending:
	}
	if j.Spec.Type.Ends() {
		return false, nil // it has several tries
	}
	for _, a := range j.Allocations {
		if a.Status.State == api.AllocFailed && !r.old[a.ID] && a.Revision == j.Revision {
			return false, fmt.Errorf("allocation %s of it has failed: %s; the servers go on trying (see 'berth alloc status %s')",
				a.ID.Short(), orUnknown(plain(a.Status.Why())), a.ID.Short())
		}
	}
	return false, nil
}

func orUnknown(why string) string {
	if why == "" {
		return "its node does not say why"
	}
	return why
}

// stopped is where stop brings a job.
func stopped(j api.JobInfo) (bool, error) {
	if j.Desired == api.Present {
		return false, errors.New("it was started again")
	}
	return j.State == api.JobStopped, nil
}

// awaitStopped waits until a job's tasks have ended, and until those that ended
// hold no volume.
func (a *app) awaitStopped(ctx context.Context, c *client.Client, id api.JobID) (api.JobInfo, error) {
	job, err := a.awaitJob(ctx, c, a.ns(), id, stopped)
	if err != nil {
		return job, err
	}
	for _, al := range job.Allocations {
		read := func(ctx context.Context, q client.Query) (api.AllocationInfo, uint64, error) {
			return c.Allocation(ctx, string(al.ID), q)
		}
		short := al.ID.Short()
		w := &watcher{app: a, what: "the volumes of allocation " + short, look: "alloc explain " + short}
		_, err := await(ctx, w, read, func(info api.AllocationInfo, err error) (bool, error) {
			if api.CodeOf(err) == api.CodeNotFound {
				a.screen.drop(w.what)
				return true, nil // so long ago that it was collected
			}
			held := heldVolumes(info.Attachments)
			a.screen.drop(w.what)
			if err != nil || len(held) == 0 {
				return true, err
			}
			w.what = fmt.Sprintf("volume %s/%s", a.ns(), held[0])
			w.waits("being released", info.Waits)
			return false, nil
		})
		if err != nil {
			return job, err
		}
	}
	return job, nil
}
