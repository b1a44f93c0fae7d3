package hook_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/driver"
)

func named(name string, lifecycle *api.Lifecycle) api.Task {
	return api.Task{Name: name, Driver: "fake", Lifecycle: lifecycle}
}

// steps are the calls of one kind, in order.
func steps(d *fake, kind string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []string
	for _, call := range d.calls {
		if what, task, _ := strings.Cut(call, " "); strings.HasPrefix(what, kind) {
			all = append(all, task)
		}
	}
	return all
}

func TestMainTasksWaitForPrestartAndPoststartForThem(t *testing.T) {
	t.Parallel()
	d, a := newFake(), assignment()
	a.JobType = api.JobService
	a.Group.Tasks = []api.Task{
		named("after", &api.Lifecycle{Hook: api.HookPoststart}),
		named("pg", nil),
		named("init", &api.Lifecycle{Hook: api.HookPrestart}),
		named("proxy", &api.Lifecycle{Hook: api.HookPrestart, Sidecar: true}),
	}
	h, s := tasks(d, a)
	up := func(want string, starting bool) {
		t.Helper()
		if err := h.Up(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.Fields(want), steps(d, "start")); diff != "" || s.Starting() != starting {
			t.Errorf("starts (-want +got):\n%s, starting %v, want %v", diff, s.Starting(), starting)
		}
	}
	up("init proxy", true)
	up("init proxy", true)
	d.end(id("init"), driver.Status{})
	up("init proxy pg after", false)
	d.end(id("after"), driver.Status{})
	up("init proxy pg after", false)
	// What ran to its end is no end of the service, and runs no second time.
	if got := s.Tasks()["after"]; got.State != api.TaskEnded || got.Reason != "" {
		t.Errorf("the poststart task is %+v", got)
	}
	d.end(id("pg"), driver.Status{})
	up("init proxy pg after", false)
	if news, err := h.Watch(t.Context(), s); news != allocrunner.Complete || err != nil {
		t.Errorf("Watch: %v, %v, and the main task has ended", news, err)
	}
}

func TestLeaderIsStoppedFirstAndSidecarsLast(t *testing.T) {
	t.Parallel()
	d, a := newFake(), assignment()
	leader := named("pg", nil)
	leader.Leader = true
	a.Group.Tasks = []api.Task{named("proxy", &api.Lifecycle{Hook: api.HookPrestart, Sidecar: true}), named("logs", nil), leader}
	h, s := tasks(d, a)
	if err := h.Up(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := h.Down(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if got, want := steps(d, "stop"), []string{"pg", "logs", "proxy"}; !slices.Equal(got, want) {
		t.Errorf("stopped were %v, want %v", got, want)
	}
}

func TestSidecarIsStartedAgainAlsoInABatch(t *testing.T) {
	t.Parallel()
	d, a := newFake(), assignment()
	a.JobType, a.Group.Restart = api.JobBatch, nil
	a.Group.Tasks = []api.Task{named("proxy", &api.Lifecycle{Hook: api.HookPrestart, Sidecar: true}), named("pg", nil)}
	h, s := tasks(d, a)
	if err := h.Up(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	d.end(id("proxy"), driver.Status{})
	if err := h.Up(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if got := s.Tasks()["proxy"]; got.State != api.TaskPending || got.Restarts != 1 {
		t.Errorf("the sidecar is %+v", got)
	}
}
