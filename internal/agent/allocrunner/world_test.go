package allocrunner_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const id = api.AllocID("0123456789abcdef0123456789abcdef")

// wanted is an assignment to run.
func wanted() api.AllocAssignment {
	return api.AllocAssignment{
		ID:          id,
		Allocation:  &api.Allocation{ID: id, Desired: api.DesireRun, Status: api.AllocStatus{State: api.AllocPending}},
		Group:       &api.TaskGroup{Name: "db"},
		Attachments: []api.AttachmentAssignment{{Attachment: api.Attachment{AllocID: id, Name: "data"}}},
	}
}

// unwanted is the same with the wish that it ends.
func unwanted() api.AllocAssignment {
	a := wanted()
	a.Allocation.Desired = api.DesireStop
	return a
}

// parts are the model's hooks, in order.
var parts = []string{"a", "b", "c"}

// world is a node in memory: what its hooks have done, its local database, and
// what the servers have heard. It judges every step that a runner takes.
type world struct {
	t testing.TB
	// fail is asked about every step, and its error is the step's.
	fail func(step string) error
	// watch is the Watch of the last part; without it, nothing ends by itself.
	watch func(ctx context.Context, s *allocrunner.Step) (allocrunner.News, error)
	// onUp is called by the last part's Up.
	onUp func(s *allocrunner.Step)
	// heard is told what the servers hear.
	heard func(s api.AllocStatus)

	mu        sync.Mutex // guards below
	effects   map[string]bool
	directory bool
	record    *localdb.Allocation
	journal   []string
	said      []api.AllocStatus
	forgotten bool // the facts of it are
	moment    int  // counts the moments before and after every effect
	dieAt     int  // the moment in which the agent is killed; 0 is never
}

func newWorld(t testing.TB) *world {
	return &world{
		t: t, effects: map[string]bool{},
		fail:  func(string) error { return nil },
		heard: func(api.AllocStatus) {},
		onUp:  func(*allocrunner.Step) {},
		watch: func(ctx context.Context, _ *allocrunner.Step) (allocrunner.News, error) {
			<-ctx.Done()
			return allocrunner.Again, ctx.Err()
		},
	}
}

// killed is what a runner panics with whose agent is killed.
type killed struct{}

// pass is a moment in which the agent may be killed.
func (w *world) pass() {
	w.mu.Lock()
	w.moment++
	die := w.moment == w.dieAt
	w.mu.Unlock()
	if die {
		panic(killed{})
	}
}

// begin notes a step and asks whether it fails.
func (w *world) begin(step string) error {
	w.pass()
	w.mu.Lock()
	w.journal = append(w.journal, step)
	w.mu.Unlock()
	return w.fail(step)
}

// do changes the world; the caller's rules are checked in the same moment.
func (w *world) do(change func()) {
	w.mu.Lock()
	change()
	w.mu.Unlock()
	w.pass()
}

// wrong is a rule broken; the caller holds mu.
func (w *world) wrong(format string, args ...any) {
	w.t.Helper()
	w.t.Errorf("%s\nafter %s", fmt.Sprintf(format, args...), strings.Join(w.journal, ", "))
}

func (w *world) steps() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.journal, ", ")
}

func (w *world) clearSteps() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.journal = nil
}

func (w *world) last() api.AllocStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.said) == 0 {
		return api.AllocStatus{}
	}
	return w.said[len(w.said)-1]
}

func (w *world) recorded() localdb.Allocation {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.record == nil {
		return localdb.Allocation{}
	}
	return *w.record
}

func (w *world) up() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.effects))
}

// part is a hook whose effect has two halves.
type part struct {
	w     *world
	place int
}

func (p part) Name() string { return parts[p.place] }

func (p part) Up(context.Context, *allocrunner.Step) error {
	name := p.Name()
	if err := p.w.begin("up " + name); err != nil {
		return err
	}
	p.w.do(func() {
		if p.w.record == nil || p.w.record.Phase != localdb.PhaseUp {
			p.w.wrong("%s came up, and the record is %+v", name, p.w.record)
		}
		for _, before := range parts[:p.place] {
			if !p.w.effects[before] {
				p.w.wrong("%s came up before %s", name, before)
			}
		}
		p.w.directory = true
		p.w.effects["half of "+name] = true
	})
	p.w.do(func() {
		p.w.effects[name] = true
		delete(p.w.effects, "half of "+name)
	})
	return nil
}

func (p part) Down(context.Context, *allocrunner.Step) error {
	name := p.Name()
	if err := p.w.begin("down " + name); err != nil {
		return err
	}
	p.w.do(func() {
		if p.w.record == nil || p.w.record.Phase == localdb.PhaseUp {
			p.w.wrong("%s went down, and the record is %+v", name, p.w.record)
		}
		for _, behind := range parts[p.place+1:] {
			if p.w.effects[behind] || p.w.effects["half of "+behind] {
				p.w.wrong("%s went down before %s", name, behind)
			}
		}
		if p.w.effects[name] {
			p.w.effects["half of "+name] = true
		}
		delete(p.w.effects, name)
	})
	p.w.do(func() { delete(p.w.effects, "half of "+name) })
	return nil
}

// ending is a part that knows when the allocation has ended.
type ending struct{ part }

func (e ending) Up(ctx context.Context, s *allocrunner.Step) error {
	if err := e.part.Up(ctx, s); err != nil {
		return err
	}
	e.w.onUp(s)
	return nil
}

func (e ending) Watch(ctx context.Context, s *allocrunner.Step) (allocrunner.News, error) {
	if up := e.w.up(); !slices.Equal(up, parts) {
		e.w.t.Errorf("Watch is called when %v is up", up)
	}
	return e.w.watch(ctx, s)
}

func (w *world) PutAllocation(a *localdb.Allocation) error {
	if err := w.begin("record " + string(a.Phase)); err != nil {
		return err
	}
	w.do(func() {
		order := []localdb.Phase{localdb.PhaseUp, localdb.PhaseDown, localdb.PhaseDone}
		if w.record != nil && slices.Index(order, a.Phase) < slices.Index(order, w.record.Phase) {
			w.wrong("the record went from %s back to %s", w.record.Phase, a.Phase)
		}
		if a.Phase == localdb.PhaseDone && len(w.effects) > 0 {
			w.wrong("done is recorded, and %v is left", w.effects)
		}
		saved := *a
		w.record = &saved
	})
	return nil
}

func (w *world) DeleteAllocation(got api.AllocID) error {
	if err := w.begin("delete"); err != nil {
		return err
	}
	w.do(func() {
		if got != id || len(w.effects) > 0 || w.directory {
			w.wrong("the record of %s is deleted, and %v is left, directory %v", got, w.effects, w.directory)
		}
		w.record = nil
	})
	return nil
}

func (w *world) SetAllocation(f api.AllocFact) {
	w.pass()
	w.mu.Lock()
	if f.ID != id {
		w.wrong("%s is spoken of", f.ID)
	}
	if f.Status.State.Terminal() && len(w.effects) > 0 {
		w.wrong("the end is said, and %v is left", w.effects)
	}
	w.said = append(w.said, f.Status)
	w.mu.Unlock()
	w.heard(f.Status)
	w.pass()
}

func (w *world) ForgetAllocation(got api.AllocID, attachments []string) {
	w.do(func() {
		w.forgotten = got == id && slices.Equal(attachments, []string{"data"})
	})
}

func (w *world) remove(dir string) error {
	if err := w.begin("remove"); err != nil {
		return err
	}
	w.do(func() {
		if dir != "/alloc/"+string(id) {
			w.wrong("%s is removed", dir)
		}
		w.directory = false
	})
	return nil
}

// runner is the runner of a new agent on what the last one has left.
func (w *world) runner(record localdb.Allocation) *allocrunner.Runner {
	return w.runnerOf(record, part{w, 0}, part{w, 1}, ending{part{w, 2}})
}

func (w *world) runnerOf(record localdb.Allocation, hooks ...allocrunner.Hook) *allocrunner.Runner {
	return allocrunner.New(allocrunner.Config{
		Dir: "/alloc", Hooks: hooks, Memory: w, Facts: w,
		Remove: func(_ context.Context, dir string) error {
			if err := w.remove(dir); err != nil {
				return err
			}
			return os.ErrNotExist // as good as removed
		},
	}, record, slog.New(slog.DiscardHandler))
}

// fresh is the runner of an allocation that the node has not heard of.
func (w *world) fresh() *allocrunner.Runner {
	return w.runner(localdb.Allocation{Assignment: wanted()})
}

// start runs r; the function that it returns ends the agent.
func (w *world) start(r *allocrunner.Runner) (stop func() error) {
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// must ends the agent, which must not be a failure.
func must(t testing.TB, stop func() error) {
	t.Helper()
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
}
