package hook_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/allocrunner/hook"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

// A newer revision that takes no new process is followed from the next end of a
// task on: nothing is started again for it.
func TestPolicyIsTakenOverWhileTheTaskRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &machine{t: t, ends: func(string, int) *driver.Status { return nil }, runs: map[string]driver.Status{}, over: map[string]chan struct{}{}}
		ctx, cancel := context.WithCancel(t.Context())
		life := &mortal{m: m, die: cancel}
		node := func() *api.Node { return &api.Node{ID: "db-1-9f31c2aa", Name: "db-1"} }
		was := policy(api.JobService, api.RestartFail, 0)()
		was.Allocation.Revision = 1
		runner := allocrunner.New(allocrunner.Config{
			Dir: "/alloc", Hooks: []allocrunner.Hook{hook.NewTasks(map[string]driver.Driver{"fake": life}, node)},
			Memory: life, Facts: life, Remove: life.remove,
		}, localdb.Allocation{Assignment: was}, slog.New(slog.DiscardHandler))
		ended := make(chan error, 1)
		go func() { ended <- runner.Run(ctx) }()
		synctest.Wait()
		is := policy(api.JobService, api.RestartFail, 2)()
		alloc := *is.Allocation
		alloc.Revision, is.Allocation = 2, &alloc
		runner.Update(is)
		synctest.Wait()
		m.mu.Lock()
		if got := strings.Join(m.starts, ", "); got != "pg" {
			t.Errorf("after the change the starts are %s, want pg", got)
		}
		if m.record.Assignment.Allocation.Revision != 2 {
			t.Error("the new revision is not recorded")
		}
		m.end(id("pg"), driver.Status{ExitCode: 1})
		m.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		m.mu.Lock()
		if got := strings.Join(m.starts, ", "); got != "pg, pg/1" {
			t.Errorf("after an end the starts are %s, want pg, pg/1", got)
		}
		m.mu.Unlock()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
