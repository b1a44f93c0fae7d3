package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csimanager"
	"github.com/berth-dev/berth/internal/agent/mount"
	"github.com/berth-dev/berth/internal/supervise"
)

// How often it is tried again to undo what was found on the node.
const (
	firstLook = time.Second
	lastLook  = 30 * time.Second
)

// settle says that nothing is left of the epochs before this one: after all is
// down that the node knows of, and after a look at everything else that can be
// found on it, which is undone too. Records may be older than what was done,
// and a mount that nobody remembers is one that may be written to.
func (s *allocations) settle(ctx context.Context) {
	for {
		select {
		case <-s.down:
		case <-ctx.Done():
			return
		}
		insist(ctx, s.undoRest)
	}
}

// insist repeats what returns false, less and less often.
func insist(ctx context.Context, do func(ctx context.Context) bool) {
	for delay := firstLook; !do(ctx); delay = min(2*delay, lastLook) {
		if !supervise.Sleep(ctx, delay) {
			return
		}
	}
}

// undoRest undoes what is left, and reports whether there is no more to be done.
func (s *allocations) undoRest(ctx context.Context) (done bool) {
	epoch, owed := s.owed()
	if !owed {
		return true
	}
	if err := s.remains(ctx, s.live); err != nil {
		if ctx.Err() == nil {
			s.log.Warn("what this node ran in an ended epoch cannot be undone yet", "epoch", epoch, "error", err)
			s.facts.SetRemains(oneLine(err))
		}
		return false
	}
	s.facts.SetRemains("")
	if now, owed := s.owed(); !owed || now != epoch {
		return !owed
	}
	s.facts.SetUndone(epoch)
	return true
}

// owed is the epoch for which the servers wait to hear that nothing is left of
// those before it, if all is down that the node knows of.
func (s *allocations) owed() (epoch uint64, owed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch, s.undoing != nil && len(s.undoing) == 0
}

// live reports whether an allocation runs, or may.
func (s *allocations) live(id api.AllocID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runners[id] != nil && s.wanted[id]
}

// remains undoes what is found on the node: what the local database has of
// volumes, what is mounted where volumes are, and what is mounted in the
// directories of allocations that do not run.
func (a *Agent) remains(mounter *csimanager.Mounter) func(context.Context, func(api.AllocID) bool) error {
	return func(ctx context.Context, running func(api.AllocID) bool) error {
		dir := filepath.Join(a.cfg.DataDir, "alloc")
		taken, err := mount.Clear(a.cfg.Table, dir, func(path string) bool {
			rest, _ := filepath.Rel(dir, path)
			alloc, _, _ := strings.Cut(rest, string(os.PathSeparator))
			return running(api.AllocID(alloc))
		})
		for _, t := range taken {
			a.log.Warn("a mount of an allocation that does not run was taken away", "path", t.Path, "device", t.Source)
		}
		return errors.Join(err, mounter.Clear(ctx))
	}
}

// clear undoes, before a node is made known, what is found where it is to have
// its volumes: its local database is new, and whoever was here before is another
// node for the servers, which may have given all of its volumes away.
func (a *Agent) clear(ctx context.Context) {
	insist(ctx, func(ctx context.Context) bool {
		err := a.allocations.remains(ctx, a.allocations.live)
		if err != nil && ctx.Err() == nil {
			a.log.Error("this node is new, and what it finds mounted in its data directory cannot be taken away: it registers when that is gone", "error", err)
		}
		return err == nil
	})
}

// oneLine is the first line of an error, and how many there are more.
func oneLine(err error) string {
	first, rest, more := strings.Cut(err.Error(), "\n")
	if more {
		first += fmt.Sprintf(" (and %d more)", strings.Count(rest, "\n")+1)
	}
	return first
}
