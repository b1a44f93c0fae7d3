package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/rendering"
)

// Reader is what a task's templates read of the servers. What was read is followed
// until it is read no more.
type Reader interface {
	rendering.Lookups
	// Begin begins a reading: what is not read until Settle is followed no more.
	Begin()
	Settle()
	// News has one when something has changed that was read.
	News() <-chan struct{}
	// Failing is why something that was read is not known, nil while it may come.
	Failing() error
	Close()
}

// Reads has templates read of the servers with what this returns. It is called
// before the first Up.
func (t *Tasks) Reads(reader func(ns api.NamespaceID) Reader) { t.reader = reader }

// followed is a task whose templates may come to other texts while it runs.
type followed struct {
	reader Reader
	// path is where the texts are that the task was told of last. They are the
	// agent's own: a task may do with its files what it likes.
	path string

	mu sync.Mutex // guards below
	// stale: what was read has changed since the texts were made, or they are to be
	// made once more because that failed.
	stale bool
	// written are the texts that the files have, by place; nil if that is not known.
	// made are those that a start is about to write.
	written, made map[string]string
	// tell is what the task is to be told.
	tell *telling
	said string // to people, last
}

// telling is what a task is to be told of a change, and when.
type telling struct {
	due     time.Time
	restart bool
	signals []string
	scripts []*api.ChangeScript
	places  []string
}

// followed is a task's, nil for one whose templates do not change.
func (t *Tasks) followed(s *allocrunner.Step, a *api.AllocAssignment, task *api.Task) *followed {
	if t.reader == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.follows[a.ID]
	if of == nil {
		of = map[string]*followed{}
		t.follows[a.ID] = of
	}
	f, looked := of[task.Name]
	if !looked && slices.ContainsFunc(task.Templates, func(one api.Template) bool { return one.Lookups() }) {
		f = &followed{reader: t.reader(a.Allocation.Namespace), path: filepath.Join(s.Dir, ".templates", task.Name+".json"), stale: true}
		f.written = f.load()
	}
	of[task.Name] = f // the texts of an allocation's templates stay
	return f
}

// following is a task that is followed already, or nil.
func (t *Tasks) following(id api.AllocID, task string) *followed {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.follows[id][task]
}

// unfollow follows a task no more, or all of an allocation's.
func (t *Tasks) unfollow(id api.AllocID, task string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, f := range t.follows[id] {
		if task == "" || name == task {
			if f != nil {
				f.reader.Close()
			}
			delete(t.follows[id], name)
		}
	}
	if len(t.follows[id]) == 0 {
		delete(t.follows, id)
	}
}

// firstAnswers is how long a start waits for the servers' first answers before it
// says that it does.
const firstAnswers = 2 * time.Second

// make makes the files of a task that is about to start. While no server answers
// they are what they were at its last start.
func (t *Tasks) make(ctx context.Context, s *allocrunner.Step, a *api.AllocAssignment, task *api.Task, env map[string]string) ([]rendered, error) {
	f := t.followed(s, a, task)
	if f == nil {
		return t.render(ctx, task.Templates, env, unreachable{}, nil)
	}
	ctx, cancel := s.WhileWanted(ctx)
	defer cancel()
	patience := time.NewTimer(firstAnswers)
	defer patience.Stop()
	for {
		of := maps.Clone(env)
		all, err := f.read(func() ([]rendered, error) { return t.render(ctx, task.Templates, of, f.reader, nil) })
		wait, waits := errors.AsType[*awaits](err)
		if !waits {
			if err == nil {
				maps.Copy(env, of)
				f.hold(all)
			}
			return all, err
		}
		if wait.asked {
			return nil, wait
		}
		if failing := f.reader.Failing(); failing != nil {
			of = maps.Clone(env)
			if all, err := t.render(ctx, task.Templates, of, f.reader, f.before); err == nil {
				maps.Copy(env, of)
				f.hold(all)
				return all, nil
			}
			wait.reason += ": " + allocrunner.OneLine(failing)
			return nil, wait
		}
		select {
		case <-f.reader.News():
		case <-patience.C:
			return nil, wait
		case <-ctx.Done():
			return nil, wait
		}
	}
}

// unreachable is what templates read that nobody follows.
type unreachable struct{}

func (unreachable) Variable(string) (items map[string]string, found, ok bool) {
	return nil, false, false
}
func (unreachable) Variables(string) (paths []string, ok bool)                { return nil, false }
func (unreachable) Service(string) (instances []api.ServiceInstance, ok bool) { return nil, false }

// read makes texts of what is known now.
func (f *followed) read(render func() ([]rendered, error)) ([]rendered, error) {
	f.mu.Lock()
	f.stale = false // what comes from now on is news
	f.mu.Unlock()
	f.reader.Begin()
	all, err := render()
	if err == nil {
		f.reader.Settle()
	}
	return all, err
}

// before is the text that a file had last.
func (f *followed) before(place string) (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text, known := f.written[place]
	return text, known
}

// await notes that the task is not started before there is news, and tells people
// why, once.
func (f *followed) await(s *allocrunner.Step, task string, why *awaits) error {
	if why.asked {
		f.say(s, task, "it "+why.reason)
	}
	return &allocrunner.Waiting{Reason: "task " + task + " " + why.reason}
}

// say tells people something, unless it was said last.
func (f *followed) say(s *allocrunner.Step, task, what string) {
	f.mu.Lock()
	again := f.said == what
	f.said = what
	f.mu.Unlock()
	if !again && what != "" {
		s.Say(task, what)
	}
}

// hold keeps what a start is about to write.
func (f *followed) hold(all []rendered) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made = changing(all)
}

// starts notes the texts that a task is about to be started with, before it is.
func (f *followed) starts() error {
	f.mu.Lock()
	texts := f.made
	f.mu.Unlock()
	if err := f.store(texts); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.written, f.tell, f.said = texts, nil, ""
	return nil
}

// changing are the texts of the files that may change, by place.
func changing(all []rendered) map[string]string {
	texts := map[string]string{}
	for i := range all {
		if all[i].changes {
			texts[all[i].Dir+"/"+all[i].Path] = all[i].Content
		}
	}
	return texts
}

// load reads the texts that the task was told of last. What cannot be read is not
// known.
func (f *followed) load() map[string]string {
	b, err := os.ReadFile(f.path)
	var texts map[string]string
	if err != nil || json.Unmarshal(b, &texts) != nil {
		return nil
	}
	return texts
}

// store writes them down, for the agent alone.
func (f *followed) store(texts map[string]string) error {
	b, err := json.Marshal(texts)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(f.path), 0o700)
	}
	if err == nil {
		err = os.WriteFile(f.path+".new", b, 0o600)
	}
	if err == nil {
		err = os.Rename(f.path+".new", f.path)
	}
	if err != nil {
		return fmt.Errorf("record the texts of templates: %w", err)
	}
	return nil
}

// wait waits until there is something to do for the templates of a task.
func (f *followed) wait(ctx context.Context) error {
	var due <-chan time.Time
	f.mu.Lock()
	if f.tell != nil {
		in := time.Until(f.tell.due)
		if in <= 0 {
			in = retryTelling // Up could not tell it: the task does not run, or is not reached
		}
		timer := time.NewTimer(in)
		defer timer.Stop()
		due = timer.C
	}
	f.mu.Unlock()
	select {
	case <-f.reader.News():
		f.mu.Lock()
		f.stale = true
		f.mu.Unlock()
		return errNews
	case <-due:
		return errNews
	case <-ctx.Done():
		return ctx.Err()
	}
}

// retryTelling is when a task is told once more that could not be told.
const retryTelling = 5 * time.Second

// refresh does what a change of what its templates read asks for, for a task that
// runs. What cannot be made leaves all as it is.
func (t *Tasks) refresh(ctx context.Context, s *allocrunner.Step, a *api.AllocAssignment, task *api.Task) error {
	f := t.followed(s, a, task)
	if f == nil {
		return nil
	}
	f.mu.Lock()
	stale := f.stale
	f.mu.Unlock()
	select {
	case <-f.reader.News():
		stale = true
	default:
	}
	if stale {
		if err := t.remake(ctx, s, a, task, f); err != nil {
			f.mu.Lock()
			f.stale = true
			f.mu.Unlock()
			return &allocrunner.Partial{Err: fmt.Errorf("task %s: %w", task.Name, err)}
		}
	}
	f.mu.Lock()
	tell := f.tell
	f.mu.Unlock()
	if tell == nil || time.Now().Before(tell.due) {
		return nil
	}
	if err := t.tell(ctx, s, a, task, tell); err != nil {
		f.mu.Lock()
		tell.due = time.Now().Add(retryTelling)
		f.mu.Unlock()
		return &allocrunner.Partial{Err: fmt.Errorf("tell task %s of a change: %w", task.Name, err)}
	}
	f.mu.Lock()
	f.tell = nil
	texts := f.written
	f.mu.Unlock()
	if tell.restart {
		return nil // its start notes the texts
	}
	return f.store(texts)
}

// remake makes the texts again, and replaces the files whose texts are others.
func (t *Tasks) remake(ctx context.Context, s *allocrunner.Step, a *api.AllocAssignment, task *api.Task, f *followed) error {
	place, _ := s.Plugin(task.Name)
	env := t.environment(a, task, s.Dir, s.Mounts(), place)
	all, err := f.read(func() ([]rendered, error) { return t.render(ctx, task.Templates, env, f.reader, nil) })
	if wait, ok := errors.AsType[*awaits](err); ok {
		if wait.asked {
			f.say(s, task.Name, "its files stay as they are: it "+wait.reason)
		}
		return nil
	}
	if err != nil {
		return err
	}
	f.say(s, task.Name, "")
	texts := changing(all)
	f.mu.Lock()
	written := f.written
	f.mu.Unlock()
	if written == nil {
		// Nobody knows any more what it was told: this is taken for it.
		f.mu.Lock()
		f.written = texts
		f.mu.Unlock()
		return f.store(texts)
	}
	var others []rendered
	for i := range all {
		if p := all[i].Dir + "/" + all[i].Path; all[i].changes && written[p] != all[i].Content {
			others = append(others, all[i])
		}
	}
	if len(others) == 0 {
		return nil
	}
	f.mu.Lock()
	tell := f.tell.and(others)
	f.mu.Unlock()
	if !tell.restart { // its next start writes them
		if err := driver.Rewrite(TaskDir(s.Dir, task.Name), AllocDir(s.Dir), files(others)); err != nil {
			return err
		}
	}
	f.mu.Lock()
	f.tell, f.written = tell, texts
	f.mu.Unlock()
	return nil
}

// and is what a task is to be told when these files have changed, too. It is told of
// all of them at once, and no later than of the first.
func (w *telling) and(others []rendered) *telling {
	next := &telling{}
	if w != nil {
		*next = *w
		next.signals, next.scripts, next.places = slices.Clone(w.signals), slices.Clone(w.scripts), slices.Clone(w.places)
	}
	for i := range others {
		one := others[i].of
		switch one.Change() {
		case api.ChangeRestart:
			next.restart = true
		case api.ChangeSignal:
			if !slices.Contains(next.signals, one.ChangeSignal) {
				next.signals = append(next.signals, one.ChangeSignal)
			}
		case api.ChangeScriptMode:
			next.scripts = append(next.scripts, one.ChangeScript)
		case api.ChangeNoop:
		}
		if due := time.Now().Add(drawn(one.Within())); one.Change() != api.ChangeNoop && (next.due.IsZero() || due.Before(next.due)) {
			next.due = due
		}
		if p := others[i].Dir + "/" + others[i].Path; !slices.Contains(next.places, p) {
			next.places = append(next.places, p)
		}
	}
	return next
}

// drawn is a time below another.
func drawn(splay time.Duration) time.Duration {
	if splay <= 0 {
		return 0
	}
	return rand.N(splay)
}

// tell tells a task that its files have changed.
func (t *Tasks) tell(ctx context.Context, s *allocrunner.Step, a *api.AllocAssignment, task *api.Task, what *telling) error {
	was := s.Tasks()[task.Name]
	changed := strings.Join(what.places, ", ")
	if what.restart {
		s.Say(task.Name, "it is started again: what is to be in "+changed+" has changed")
		s.SetTask(task.Name, again(was))
		return s.Record()
	}
	d, id := t.drivers[task.Driver], runID(a, task.Name, was.Restarts)
	for _, signal := range what.signals {
		to, ok := d.(driver.Signaller)
		if !ok {
			return errors.New("its driver sends no signals")
		}
		switch err := to.Signal(ctx, id, signal); api.CodeOf(err) {
		case "":
		case api.CodeNotFound, api.CodeConflict:
			continue // it has ended: its next start finds the files
		default:
			return err
		}
		s.Say(task.Name, "it gets "+signal+": "+changed+" has changed")
	}
	for _, c := range what.scripts {
		if err := t.reload(ctx, s, a, task, c); err != nil {
			return err
		}
	}
	return nil
}

// reload runs a change script. What it says may be what it was given, and is
// nobody's to read.
func (t *Tasks) reload(ctx context.Context, s *allocrunner.Step, a *api.AllocAssignment, task *api.Task, c *api.ChangeScript) error {
	place, _ := s.Plugin(task.Name)
	env := t.environment(a, task, s.Dir, s.Mounts(), place)
	command := []string{t.expand(c.Command, env)}
	for _, arg := range c.Args {
		command = append(command, t.expand(arg, env))
	}
	ctx, cancel := s.WhileWanted(ctx)
	defer cancel()
	limited, over := context.WithTimeout(ctx, c.Limit())
	defer over()
	run := s.Tasks()[task.Name].Restarts
	answer := script(limited, t.drivers[task.Driver], runID(a, task.Name, run), command)
	said := "change script " + command[0]
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case answer.Unasked:
		return errors.New(answer.Output) // the task has no room for another command: nothing was run
	case answer.OK:
		s.Say(task.Name, said+" has ended with success")
		return nil
	case limited.Err() != nil:
		said += fmt.Sprintf(" had not ended after %s", c.Limit())
	default:
		said += " has failed"
	}
	s.Say(task.Name, said)
	if c.FailOnError {
		s.SetFailing(task.Name, run, said)
	}
	return nil
}
