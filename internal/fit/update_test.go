package fit_test

import (
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
)

// TestHealthy: an allocation is healthy when it has run for some time, and not
// while one of its tasks waits to be started again.
func TestHealthy(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rules := api.Update{MinHealthyTime: api.Duration(10 * time.Second)}
	runs := api.TaskStatus{State: api.TaskRunning}
	for name, tc := range map[string]struct {
		running time.Duration // ago
		state   api.AllocState
		desired api.AllocDesire
		task    api.TaskStatus
		ok      bool
		in      time.Duration
	}{
		"Long":         {time.Minute, api.AllocRunning, api.DesireRun, runs, true, -50 * time.Second},
		"JustNow":      {10 * time.Second, api.AllocRunning, api.DesireRun, runs, true, 0},
		"Young":        {4 * time.Second, api.AllocRunning, api.DesireRun, runs, false, 6 * time.Second},
		"Pending":      {time.Minute, api.AllocPending, api.DesireRun, runs, false, -1},
		"Failed":       {time.Minute, api.AllocFailed, api.DesireRun, runs, false, -1},
		"Stopping":     {time.Minute, api.AllocRunning, api.DesireStop, runs, false, -1},
		"StartedAgain": {time.Minute, api.AllocRunning, api.DesireRun, api.TaskStatus{State: api.TaskPending, Next: now.Add(time.Second)}, false, -1},
		"Ended":        {time.Minute, api.AllocRunning, api.DesireRun, api.TaskStatus{State: api.TaskEnded}, true, -50 * time.Second},
	} {
		a := &api.Allocation{Desired: tc.desired, Running: now.Add(-tc.running), Status: api.AllocStatus{
			State: tc.state, Tasks: map[string]api.TaskStatus{"a": runs, "t": tc.task},
		}}
		want := now.Add(tc.in)
		if tc.in == -1 {
			want = time.Time{}
		}
		if ok, at := fit.Healthy(a, rules, now); ok != tc.ok || !at.Equal(want) {
			t.Errorf("%s: %t at %s, want %t at %s", name, ok, at, tc.ok, want)
		}
	}
}
