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

// TestCurrent: what of a group may change while its allocations go on, and of
// what of it they are to be told.
func TestCurrent(t *testing.T) {
	t.Parallel()
	attempts := 5
	for name, tc := range map[string]struct {
		change           func(*api.JobSpec)
		current, inPlace bool
	}{
		"Nothing":       {func(*api.JobSpec) {}, true, false},
		"Count":         {func(s *api.JobSpec) { s.Groups[0].Count = 9 }, true, false},
		"Priority":      {func(s *api.JobSpec) { s.Priority = 9 }, true, false},
		"Update":        {func(s *api.JobSpec) { s.Groups[0].Update = &api.Update{MaxParallel: 2} }, true, false},
		"Reschedule":    {func(s *api.JobSpec) { s.Reschedule = &api.Reschedule{Delay: 1} }, true, false},
		"Constraint":    {func(s *api.JobSpec) { s.Groups[0].Tasks[0].Constraints = []api.Constraint{{}} }, true, false},
		"WaitTimeout":   {func(s *api.JobSpec) { s.Groups[0].Volumes[0].WaitTimeout = 1 }, true, false},
		"Restart":       {func(s *api.JobSpec) { s.Groups[0].Restart = &api.RestartPolicy{Attempts: &attempts} }, true, true},
		"TaskRestart":   {func(s *api.JobSpec) { s.Groups[0].Tasks[0].Restart = &api.RestartPolicy{Attempts: &attempts} }, true, true},
		"Kill":          {func(s *api.JobSpec) { s.Groups[0].Tasks[0].KillSignal, s.Groups[0].Tasks[0].KillTimeout = "SIGTERM", 1 }, true, true},
		"Services":      {func(s *api.JobSpec) { s.Groups[0].Services = []api.Service{{Name: "s"}} }, true, true},
		"HealthTimeout": {func(s *api.JobSpec) { s.Groups[0].Tasks[0].CSIPlugin.HealthTimeout = 1 }, true, true},
		"ChangeMode": {func(s *api.JobSpec) {
			one := &s.Groups[0].Tasks[0].Templates[0]
			one.ChangeMode, one.ChangeSignal = api.ChangeSignal, "SIGHUP"
		}, true, true},
		"ChangeScript": {func(s *api.JobSpec) {
			s.Groups[0].Tasks[0].Templates[0].ChangeScript = &api.ChangeScript{Command: "/reload"}
		}, true, true},
		"Splay":         {func(s *api.JobSpec) { s.Groups[0].Tasks[0].Templates[0].Splay = new(api.Duration) }, true, true},
		"TemplateData":  {func(s *api.JobSpec) { s.Groups[0].Tasks[0].Templates[0].Data = "other" }, false, false},
		"TemplatePlace": {func(s *api.JobSpec) { s.Groups[0].Tasks[0].Templates[0].Destination = "local/other" }, false, false},
		"RestartAndEnv": {func(s *api.JobSpec) {
			s.Groups[0].Restart, s.Groups[0].Tasks[0].Env = &api.RestartPolicy{Attempts: &attempts}, map[string]string{"A": "1"}
		}, false, false},
		"PluginID": {func(s *api.JobSpec) { s.Groups[0].Tasks[0].CSIPlugin.ID = "other" }, false, false},
		"Volume":   {func(s *api.JobSpec) { s.Groups[0].Volumes[0].Source = "other" }, false, false},
		"Meta":     {func(s *api.JobSpec) { s.Meta = map[string]string{"a": "1"} }, false, false},
		"Type":     {func(s *api.JobSpec) { s.Type = api.JobBatch }, false, false},
		"Gone":     {func(s *api.JobSpec) { s.Groups[0].Name = "other" }, false, false},
	} {
		spec := func() *api.JobSpec {
			return &api.JobSpec{Type: api.JobService, Groups: []api.TaskGroup{{
				Name: "g", Count: 1, Volumes: []api.VolumeRequest{{Name: "data", Source: "pg"}},
				Tasks: []api.Task{{Name: "t", CSIPlugin: &api.CSIPlugin{ID: "disk"}, Templates: []api.Template{{Data: "x", Destination: "local/x"}}}},
			}}}
		}
		was, is := spec(), spec()
		tc.change(is)
		if current, inPlace := fit.Current(was, is, "g"), fit.InPlace(was, is, "g"); current != tc.current || inPlace != tc.inPlace {
			t.Errorf("%s: current %t, in place %t; want %t, %t", name, current, inPlace, tc.current, tc.inPlace)
		}
		if !fit.Same(was, spec()) {
			t.Errorf("%s: the spec that was compared has changed", name)
		}
	}
}
