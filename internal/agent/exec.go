package agent

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner/hook"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/frame"
)

// maxVisits bounds the commands that people run on this node at a time. They may
// stay for days, and leave streams for logs and questions.
const maxVisits = 16

// exec serves a command that a person runs where a task runs. Who ran what is
// recorded first.
func (a *Agent) exec(ctx context.Context, offer api.StreamOffer, in *io.PipeReader, out *frame.Writer) error {
	q := offer.Exec
	if q == nil {
		return api.Errorf(api.CodeInvalid, "the servers do not say what to run")
	}
	if err := q.Validate(); err != nil {
		return err
	}
	id, name, err := a.allocations.visited(q.AllocID, q.Task)
	if err != nil {
		return err
	}
	host := a.host(name)
	if host == nil {
		return api.Errorf(api.CodeInvalid, "driver %s runs no commands in its tasks", name)
	}
	select {
	case a.visits <- struct{}{}:
		defer func() { <-a.visits }()
	default:
		return api.Errorf(api.CodeUnavailable, "%d commands run in tasks of this node already, which is all that it serves at a time: end one, or try again", maxVisits)
	}
	said := spoken(q.Command)
	a.allocations.note(q.AllocID, q.Task, fmt.Sprintf("%s is run in the task, asked for %s", said, q.Asker))
	log := a.log.With("alloc", q.AllocID.Short(), "task", q.Task, "by", q.By, "from", q.From, "command", said)
	log.Info("command begins in a task")
	err = host.Visit(ctx, id, &q.ExecRequest, driver.VisitConn{
		In: frame.NewReader(in), Out: out, Close: func() { _ = in.CloseWithError(io.ErrClosedPipe) }, // never fails
	})
	log.Info("command has ended in a task", "error", err)
	return err
}

func (a *Agent) host(name string) driver.Host {
	for _, d := range a.cfg.Drivers {
		if h, ok := d.(driver.Host); ok && d.Name() == name {
			return h
		}
	}
	return nil
}

// visited is the run of a task that runs, and its driver.
func (s *allocations) visited(alloc api.AllocID, name string) (id, driver string, err error) {
	running, err := s.running(alloc)
	if err != nil {
		return "", "", err
	}
	for task, run := range running {
		if task.Name == name {
			return hook.RunID(alloc, name, run), task.Driver, nil
		}
	}
	return "", "", api.Errorf(api.CodeConflict, "task %s of allocation %s does not run (see 'berth alloc status %s')", name, alloc.Short(), alloc.Short())
}

// note has something said of a task that is there.
func (s *allocations) note(id api.AllocID, task, message string) {
	s.mu.Lock()
	r := s.runners[id]
	s.mu.Unlock()
	if r != nil {
		r.Note(task, message)
	}
}

// spoken is a command as people read it, and no longer than that.
func spoken(command []string) string {
	const most = 200
	words := make([]string, len(command))
	for i, w := range command {
		words[i] = w
		if w == "" || strings.ContainsFunc(w, func(r rune) bool { return r <= ' ' || r == '"' || r == 0x7f }) {
			words[i] = strconv.Quote(w)
		}
	}
	said := strings.ToValidUTF8(strings.Join(words, " "), "?")
	if len(said) > most {
		said = strings.ToValidUTF8(said[:most], "") + "..."
	}
	return said
}
