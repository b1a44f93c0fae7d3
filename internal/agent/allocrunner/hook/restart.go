package hook

import (
	"cmp"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/driver"
)

// after is how a task is that has ended: pending, if its policy starts it
// again, and ended if not.
func after(policy api.Restarts, ended api.TaskStatus, now time.Time) api.TaskStatus {
	if policy.Attempts == 0 || ended.End().Succeeded() && !policy.Success {
		return ended
	}
	next := api.TaskStatus{
		State: api.TaskPending, Dir: ended.Dir, Restarts: ended.Restarts + 1, Last: ended.End(),
		Next: stored(now.Add(policy.Delay)), Attempts: ended.Attempts, Since: ended.Since, Asked: ended.Asked,
		Poststop: ended.Poststop,
	}
	if next.Since.IsZero() || !now.Before(next.Since.Add(policy.Interval)) {
		next.Since, next.Attempts = stored(now), 0
	}
	next.Attempts++
	switch {
	case next.Attempts <= policy.Attempts:
		return next
	case policy.Mode == api.RestartDelay:
		next.Next = next.Since.Add(policy.Interval)
		next.Since, next.Attempts = next.Next, 1
		return next
	case ended.End().Succeeded():
		ended.Reason = "it ended, which it should not, and its restarts are used up"
	}
	return ended
}

// obey records that a task is to be started again because a user asks for it.
// That it was asked for is done with the record: what is recorded is then done
// like any other start. A restart that is counted by no policy leaves no trace
// in it. What was not started yet, or is not to be, has nothing to restart.
func obey(s *allocrunner.Step, task *api.Task, was api.TaskStatus, asked int, by string) (api.TaskStatus, error) {
	next := was
	next.Asked = asked
	switch {
	case asked < was.Asked: // the servers were put back to an older state
	case was.State == api.TaskRunning:
		next = again(next)
		next.Reason = askedFor(by)
		s.Say(task.Name, next.Reason)
	case was.State == api.TaskPending:
		next.Next = time.Time{} // now
	case was.State == "":
		next.State = api.TaskPending
	}
	s.SetTask(task.Name, next)
	return next, s.Record()
}

// again is how a task that runs is when it is to be started again at once, without
// that its policy counts it.
func again(was api.TaskStatus) api.TaskStatus {
	return api.TaskStatus{
		State: api.TaskPending, Dir: was.Dir, Restarts: was.Restarts + 1, Last: was.Last,
		Attempts: was.Attempts, Since: was.Since, Asked: was.Asked, Poststop: was.Poststop,
	}
}

// askedFor is why a task is started again that somebody wants to be.
func askedFor(by string) string {
	if by == "" {
		return "restarted by a user"
	}
	return "restarted by " + by
}

// seen is how a task is by its driver's word, and by what is known of its
// earlier runs.
func seen(was api.TaskStatus, s driver.Status, dir string) api.TaskStatus {
	t := api.TaskStatus{
		State: api.TaskRunning, PID: s.PID, Started: stored(s.Started), Ended: stored(s.Ended),
		ExitCode: s.ExitCode, Signal: s.Signal, Reason: s.Reason, Dir: dir,
		Restarts: was.Restarts, Last: was.Last, Attempts: was.Attempts, Since: was.Since, Asked: was.Asked,
		Poststop: was.Poststop,
	}
	if s.State == driver.StateEnded {
		t.State = api.TaskEnded
		if was.State == api.TaskRunning {
			t.Reason = cmp.Or(t.Reason, was.Reason) // it was stopped for that
		}
	}
	return t
}

// stored is a time as it comes back from a record.
func stored(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Round(0)
}
