package probe

import (
	"container/heap"
	"context"
	"hash/fnv"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
)

// maxProbes bounds the probes that are on their way at a time.
const maxProbes = 32

// maxOfOne bounds those of one allocation, so that others have their turns.
const maxOfOne = 4

// maxUnasked is how many probes in a row may teach nothing before it is said.
const maxUnasked = 3

// firstProbe is within which time a check of which nothing is known is asked. One
// that was known is asked within its interval.
const firstProbe = time.Second

// Check is what is to be asked.
type Check struct {
	Service string
	// Spec is what is asked now, with what stands for names filled in. Of is what
	// the job says: while that is the same, so is the check.
	Spec, Of api.ServiceCheck
	// Restart is when tasks are to be started again for it, nil for never.
	Restart *api.CheckRestart
	// Since is when the run of its tasks began; zero if they do not run. Another
	// run is asked afresh.
	Since time.Time
	// Address is what tcp and http ask: host and port. It is empty while nobody
	// knows it.
	Address string
	// Command is what a script is, and Run runs it.
	Command []string
	Run     func(ctx context.Context, command []string) Answer
	// Lives, if it is there, reports whether the tasks still run of which a probe
	// failed: those that end by themselves have not failed their check.
	Lives func(ctx context.Context) bool
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
	// Unasked: nothing was learnt, and Output says why.
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

// owner is an allocation with its checks. Prober's mu guards it.
type owner struct {
	teller  Teller
	targets []*target
	// flying are its probes on their way, at most maxOfOne, and held are its
	// targets whose turn came when there were as many.
	flying int
	held   []*target
}

// target is one check with what is known of it. Prober's mu guards it.
type target struct {
	check  Check
	owner  *owner
	status api.CheckStatus
	// good and bad are the probes in a row, and failures those that count for a
	// restart, -1 once it was asked for.
	good, bad, failures int
	// unasked are the probes in a row that taught nothing, and said is what the
	// check's status said before that was said, where it was.
	unasked int
	said    string
	due     time.Time
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
	o := p.owners[id]
	if o == nil {
		o = &owner{}
		p.owners[id] = o
	}
	p.release(o)
	o.teller = teller
	was := o.targets
	o.targets = nil
	for _, c := range checks {
		t := take(was, &c)
		if t == nil {
			t = fresh(&c, id)
		} else {
			t.check = c
		}
		t.owner = o
		o.targets = append(o.targets, t)
		if t.index < 0 && t.stop == nil && !c.Since.IsZero() {
			heap.Push(&p.queue, t)
		}
	}
	for _, t := range was {
		p.drop(t)
	}
	p.nudge()
}

// release puts back what was held; the caller holds mu.
func (p *Prober) release(o *owner) {
	for _, t := range o.held {
		heap.Push(&p.queue, t)
	}
	o.held = nil
}

// take takes out the target of a check that asks the same of the same run.
func take(targets []*target, c *Check) *target {
	for i, t := range targets {
		if t == nil || t.check.Service != c.Service || t.check.Spec.Name != c.Spec.Name {
			continue
		}
		if !same(&t.check, c) {
			return nil
		}
		targets[i] = nil
		return t
	}
	return nil
}

// same reports whether what is known of a goes for b. What is filled in for names,
// and the node's address, may change while an agent runs: then the next probe asks
// otherwise.
func same(a, b *Check) bool {
	return a.Since.Equal(b.Since) && reflect.DeepEqual(a.Of, b.Of)
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
		o.held = nil
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
		if t.owner.flying >= maxOfOne {
			t.owner.held = append(t.owner.held, t)
			continue
		}
		probing, cancel := context.WithCancel(ctx)
		t.stop = cancel
		p.flying++
		t.owner.flying++
		check := t.check
		probes.Go(func() {
			began := time.Now()
			answer := ask(probing, &check)
			if !answer.OK && !answer.Unasked && !lives(probing, &check) {
				answer = Answer{Unasked: true, Output: "its task does not run"}
			}
			aborted := probing.Err() != nil
			cancel()
			p.done(t, &check, answer, began, aborted)
		})
	}
	return time.Time{}
}

// lives reports whether the tasks of a check still run, as far as that can be said
// in time.
func lives(ctx context.Context, c *Check) bool {
	if c.Lives == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, api.DefaultCheckTimeout)
	defer cancel()
	return c.Lives(ctx)
}

// done takes note of an answer.
func (p *Prober) done(t *target, asked *Check, answer Answer, began time.Time, aborted bool) {
	p.mu.Lock()
	p.flying--
	t.owner.flying--
	p.release(t.owner)
	t.stop = nil
	teller, turned, failed := t.owner.teller, false, 0
	if !t.gone {
		switch {
		case aborted:
		case answer.Unasked:
			turned = t.doubt(answer)
		default:
			again := t.believe()
			turned, failed = t.judge(answer)
			turned = turned || again
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

// doubt takes note of a probe that taught nothing. The check is as it was, but when
// there were several it says so.
func (t *target) doubt(a Answer) (turned bool) {
	if t.unasked++; t.unasked != maxUnasked {
		return false
	}
	t.said = t.status.Output
	t.status.Output = Line("it could not be asked " + strconv.Itoa(maxUnasked) + " times in a row: " + a.Output)
	return true
}

// believe takes that back, since something was learnt.
func (t *target) believe() (turned bool) {
	turned = t.unasked >= maxUnasked
	if turned {
		t.status.Output = t.said
	}
	t.unasked = 0
	return turned
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
