package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner/hook"
	"github.com/berth-dev/berth/internal/agent/tasklog"
	"github.com/berth-dev/berth/internal/frame"
)

// sendLog serves a stream of a task's log.
func (s *allocations) sendLog(ctx context.Context, offer api.StreamOffer, out *frame.Writer) error {
	q := offer.Logs
	if q == nil {
		return api.Errorf(api.CodeInvalid, "the servers do not say which log")
	}
	// The names become part of a path. The servers have checked them; a file
	// that is no log is still not theirs to read.
	if q.Task != filepath.Base(q.Task) || q.Task == "." || q.Task == ".." || q.Validate() != nil {
		return api.Errorf(api.CodeInvalid, "the servers ask for what is no log: task %q, type %q", q.Task, q.Type)
	}
	dir, over, err := s.look(q.AllocID, q.Task)
	if err != nil {
		return err
	}
	r, err := tasklog.Open(tasklog.Path(hook.TaskDir(dir, q.Task), q.Task, q.Type), q.LogQuery)
	if err != nil {
		return err
	}
	defer r.Close()
	begun, err := json.Marshal(api.LogBegun{Offset: r.Offset()})
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	if err := out.Put(frame.Begin, begun); err != nil {
		return err
	}
	if !q.Follow {
		over = func() bool { return true }
	}
	return r.Copy(ctx, out, over)
}

// look finds an allocation's directory, and tells whether a task of it has
// written its last word.
func (s *allocations) look(id api.AllocID, task string) (dir string, over func() bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runners[id]; r != nil {
		return r.Dir(), func() bool { return r.Over(task) }, nil
	}
	for i := range s.held {
		// It ran in an earlier boot, and waits for word of the servers.
		if s.held[i].Assignment.ID == id {
			return filepath.Join(s.cfg.Dir, string(id)), func() bool { return true }, nil
		}
	}
	return "", nil, api.Errorf(api.CodeUnavailable, "the node has nothing of allocation %s yet, or no more", id.Short())
}
