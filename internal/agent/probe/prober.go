package probe

import (
	"container/heap"
	"context"
	"hash/fnv"
	"reflect"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
)

// maxProbes bounds the probes that are on their way at a time.
const maxProbes = 32

// firstProbe is within which time a check of which nothing is known is asked. One
// that was known is asked within its interval.
const firstProbe = time.Second

// Check is what is to be asked.
type Check struct {
	Service string
	Spec    api.ServiceCheck
	// Restart is when tasks are to be started again for it, nil for never.
	Restart *api.CheckRestart
	// Since is when the run of its tasks began; zero if they do not run. Another
	// run is asked afresh.
	Since time.Time
	// Address is what tcp and http ask: host and port.
	Address string
	// Command is what a script is, and Run runs it.
	Command []string
	Run     func(ctx context.Context, command []string) Answer
	// Was is how the check was when an earlier agent ended, nil if nobody knows.
	Was *api.CheckStatus
}

// Teller is told what becomes of an allocation's checks. It is called without a
// lock held, and may be called by several goroutines.
type Teller interface {
	// Turned: a check is not as it was.
	Turned()
	// Failed: tasks are to be started again, because check failed so often in the
	// run that began at since.
	Failed(check Check, failures int, output string)
}

// Answer is what came of a probe.
type Answer struct {
	OK bool
	// Warning: it is none, and some take that for none.
	Warning bool
	// Unasked: nothing was learnt.
	Unasked bool
	Output  string
}

// Prober makes the checks of a node. It is safe for concurrent use.
type Prober struct {
	mu     sync.Mutex // guards below
	owners map[api.AllocID]*owner
	queue  queue
	flying int
	wake   chan struct{} // capacity 1
}

type owner struct {
	teller  Teller
	targets []*target
}

// target is one check with what is known of it. Prober's mu guards it.
type target struct {
	check  Check
	owner  *owner
	status api.CheckStatus
	// good and bad are the probes in a row, and failures those that count for a
	// restart, -1 once it was asked for.
	good, bad, failures int
	due                 time.Time
	// index is its place in the queue, -1 if it is not there.
	index int
	stop  context.CancelFunc // of the probe on its way, or nil
	gone  bool
}

// New returns a prober without checks.
func New() *Prober {
	return &Prober{owners: map[api.AllocID]*owner{}, wake: make(chan struct{}, 1)}
}

// Set says which checks an allocation has. Those that it had go on as they are.
func (p *Prober) Set(id api.AllocID, checks []Check, teller Teller) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.owners[id]
	if was == nil {
		was = &owner{}
	}
	next := &owner{teller: teller}
	for _, c := range checks {
		t := was.take(&c)
		if t == nil {
			t = fresh(&c, id)
		} else {
			t.check = c
		}
		t.owner = next
		next.targets = append(next.targets, t)
		if t.index < 0 && t.stop == nil && !c.Since.IsZero() {
			heap.Push(&p.queue, t)
		}
	}
	for _, t := range was.targets {
		p.drop(t)
	}
	p.owners[id] = next
	p.nudge()
}

// take takes out the target of a check that asks the same of the same run.
func (o *owner) take(c *Check) *target {
	for i, t := range o.targets {
		if t != nil && t.check.Service == c.Service && t.check.Spec.Name == c.Spec.Name {
			if !same(&t.check, c) {
				return nil
			}
			o.targets[i] = nil
			return t
		}
	}
	return nil
}

func same(a, b *Check) bool {
	return a.Since.Equal(b.Since) && a.Address == b.Address && reflect.DeepEqual(a.Command, b.Command) && reflect.DeepEqual(a.Spec, b.Spec) &&
		reflect.DeepEqual(a.Restart, b.Restart)
}

// fresh is a check that nobody has asked yet in this run of its tasks, or since
// the agent has started.
func fresh(c *Check, id api.AllocID) *target {
	now := time.Now()
	t := &target{check: *c, index: -1, status: api.CheckStatus{Service: c.Service, Name: c.Spec.Name, Status: api.CheckPending, Since: stored(now)}}
	within := firstProbe
	switch {
	case c.Was != nil && c.Since.IsZero() && c.Was.Status == api.CheckPending:
		t.status = *c.Was
	case c.Since.IsZero():
	case c.Was != nil && !c.Was.Since.Before(c.Since):
		t.status, within = *c.Was, interval(c)
	case c.Spec.InitialStatus != "":
		t.status.Status = c.Spec.InitialStatus
	}
	// Who starts many at once, or starts again itself, does not ask all at once.
	h := fnv.New32a()
	_, _ = h.Write([]byte(string(id) + "\x00" + api.CheckKey(c.Service, c.Spec.Name))) // never fails
	t.due = now.Add(time.Duration(float64(h.Sum32()) / (1 << 32) * float64(min(within, interval(c)))))
	return t
}

func interval(c *Check) time.Duration {
	if c.Spec.Interval > 0 {
		return time.Duration(c.Spec.Interval)
	}
	return api.DefaultCheckInterval
}

// drop forgets a target; the caller holds mu.
func (p *Prober) drop(t *target) {
	if t == nil {
		return
	}
	t.gone = true
	if t.index >= 0 {
		heap.Remove(&p.queue, t.index)
	}
	if t.stop != nil {
		t.stop()
	}
}

// Forget ends an allocation's checks. How they were is known until then.
func (p *Prober) Forget(id api.AllocID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o := p.owners[id]; o != nil {
		for _, t := range o.targets {
			p.drop(t)
		}
		delete(p.owners, id)
	}
}

// Statuses is how an allocation's checks are, in their order.
func (p *Prober) Statuses(id api.AllocID) []api.CheckStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.owners[id]
	if o == nil {
		return nil
	}
	all := make([]api.CheckStatus, len(o.targets))
	for i, t := range o.targets {
		all[i] = t.status
	}
	return all
}

func (p *Prober) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run makes the probes until ctx ends, and returns when none is on its way.
func (p *Prober) Run(ctx context.Context) error {
	var probes sync.WaitGroup
	defer probes.Wait()
	for ctx.Err() == nil {
		due := p.begin(ctx, &probes)
		var late <-chan time.Time
		stop := func() bool { return false }
		if !due.IsZero() {
			timer := time.NewTimer(time.Until(due))
			late, stop = timer.C, timer.Stop
		}
		select {
		case <-late:
		case <-p.wake:
		case <-ctx.Done():
		}
		stop()
	}
	return nil
}

// begin sends off what is due, and answers when there is more to do; zero if that
// is when something ends, or is said.
func (p *Prober) begin(ctx context.Context, probes *sync.WaitGroup) (next time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) > 0 && p.flying < maxProbes {
		if now := time.Now(); p.queue[0].due.After(now) {
			return p.queue[0].due
		}
		t := heap.Pop(&p.queue).(*target) //nolint:forcetypeassert // it holds nothing else
		probing, cancel := context.WithCancel(ctx)
		t.stop = cancel
		p.flying++
		check := t.check
		probes.Go(func() {
			began := time.Now()
			answer := ask(probing, &check)
			aborted := probing.Err() != nil
			cancel()
			p.done(t, &check, answer, began, aborted)
		})
	}
	return time.Time{}
}

// done takes note of an answer.
func (p *Prober) done(t *target, asked *Check, answer Answer, began time.Time, aborted bool) {
	p.mu.Lock()
	p.flying--
	t.stop = nil
	teller, turned, failed := t.owner.teller, false, 0
	if !t.gone {
		if !aborted && !answer.Unasked {
			turned, failed = t.judge(answer)
		}
		t.due = began.Add(interval(&t.check))
		if now := time.Now(); t.due.Before(now) {
			t.due = now
		}
		heap.Push(&p.queue, t)
	}
	p.nudge()
	p.mu.Unlock()
	if turned {
		teller.Turned()
	}
	if failed > 0 {
		teller.Failed(*asked, failed, answer.Output)
	}
}

// judge is what an answer makes of a check. failed is after how many failures its
// tasks are to be started again, 0 if they are not.
func (t *target) judge(a Answer) (turned bool, failed int) {
	now := time.Now()
	if a.OK {
		t.good, t.bad = t.good+1, 0
	} else {
		t.good, t.bad = 0, t.bad+1
	}
	state := t.status.Status
	switch {
	case a.OK && t.good >= t.check.Spec.SuccessBeforePassing:
		state = api.CheckPassing
	case !a.OK && t.bad >= t.check.Spec.FailuresBeforeCritical:
		state = api.CheckCritical
	}
	if state != t.status.Status {
		t.status.Status, t.status.Since, t.status.Output = state, stored(now), a.Output
		turned = true
	}
	r := t.check.Restart
	switch {
	case r == nil || t.failures < 0:
	case a.OK || a.Warning && r.IgnoreWarnings:
		t.failures = 0
	case now.Before(t.check.Since.Add(time.Duration(r.Grace))):
	default:
		if t.failures++; t.failures >= r.Limit {
			failed, t.failures = t.failures, -1
		}
	}
	return turned, failed
}

// stored is a time as it comes back from a record.
func stored(t time.Time) time.Time { return t.UTC().Round(0) }

// queue is a heap of targets, the one that is due first at the top.
type queue []*target

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	t := x.(*target) //nolint:forcetypeassert // nothing else is pushed
	t.index = len(*q)
	*q = append(*q, t)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	(*q)[last], *q = nil, (*q)[:last]
	t.index = -1
	return t
}
