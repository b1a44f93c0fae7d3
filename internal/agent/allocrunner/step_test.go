package allocrunner_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
)

// What one hook hands to another, several do at once, and what is read is a copy:
// run it with -race.
func TestStepIsSharedByHooks(t *testing.T) {
	t.Parallel()
	const hooks = 8
	s := allocrunner.NewStep("/alloc", api.AllocAssignment{ID: "a"})
	var all sync.WaitGroup
	for i := range hooks {
		name := fmt.Sprint(i)
		all.Go(func() {
			s.SetMount(name, "/mnt/"+name)
			s.SetTask(name, api.TaskStatus{State: api.TaskRunning, PID: i})
			s.SetPlugin(name, allocrunner.PluginPlace{SocketDir: "/sock/" + name})
			s.SetFailing(name, i, "broken")
			s.SetStarting(i%2 == 0)
			s.SetAwaited(name)
			s.Say(name, "begins")
		})
		all.Go(func() {
			s.Mounts()["other"] = "/changed"
			s.Tasks()["other"] = api.TaskStatus{}
			_, _ = s.Plugin(name)
			_, _, _, _ = s.Failing(name, i), s.Starting(), s.Awaited(), s.Events()
			_ = s.Assignment()
		})
	}
	all.Wait()
	mounts, pids := map[string]string{}, map[string]int{}
	for i := range hooks {
		mounts[fmt.Sprint(i)] = fmt.Sprintf("/mnt/%d", i)
		if p, ok := s.Plugin(fmt.Sprint(i)); !ok || p.SocketDir != fmt.Sprintf("/sock/%d", i) {
			t.Errorf("plugin %d is at %+v", i, p)
		}
		if why := s.Failing(fmt.Sprint(i), i); why != "broken" {
			t.Errorf("run %d of task %d fails for %q", i, i, why)
		}
		if why := s.Failing(fmt.Sprint(i), i+1); why != "" {
			t.Errorf("the next run of task %d fails for %q", i, why)
		}
	}
	for name, task := range s.Tasks() {
		pids[name] = task.PID
	}
	if diff := cmp.Diff(mounts, s.Mounts()); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	if len(pids) != hooks || pids["3"] != 3 || len(s.Events()) == 0 {
		t.Errorf("tasks %v, events %v", pids, s.Events())
	}
}
