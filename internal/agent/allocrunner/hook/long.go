package hook

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/driver"
)

// sayLong is after how long it is said what the end of a task waits for. Most take
// less, and nobody asks.
const sayLong = 2 * time.Second

// long says what the end of a task waits for if that takes long, until over is
// called.
func (*Tasks) long(s *allocrunner.Step, task *api.Task, p api.Problem) (over func()) {
	done := make(chan struct{})
	var saying sync.WaitGroup
	saying.Go(func() {
		timer := time.NewTimer(sayLong)
		defer timer.Stop()
		select {
		case <-timer.C:
			s.SetEnding(task.Name, &p)
		case <-done:
		}
	})
	return func() {
		close(done)
		saying.Wait()
		s.SetEnding(task.Name, nil)
	}
}

// stopping is what people wait for who wait for the end of a task that was asked
// to end.
func stopping(a *api.AllocAssignment, task *api.Task, since time.Time) api.Problem {
	limit := max(0, cmp.Or(time.Duration(task.KillTimeout), driver.DefaultKillTimeout))
	return api.Problem{
		Step: api.StepStop, Since: stored(since),
		Message: fmt.Sprintf("task %s was asked to end, and has until %s (kill_timeout %s); %s", task.Name, until(since.Add(limit)), short(limit), cut(a, task)),
	}
}

// cleaning is the same for a task that runs after the others.
func cleaning(a *api.AllocAssignment, task *api.Task, since time.Time) api.Problem {
	return api.Problem{
		Step: api.StepStop, Since: stored(since),
		Message: fmt.Sprintf("task %s runs after the others, and has until %s (%s); %s", task.Name, until(since.Add(task.PoststopTime())), short(task.PoststopTime()), cut(a, task)),
	}
}

func until(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// short is a duration as people write it: 5m, not 5m0s.
func short(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// cut is how to end a task at once.
func cut(a *api.AllocAssignment, task *api.Task) string {
	return fmt.Sprintf("'berth alloc signal %s --task %s SIGKILL' ends it at once", a.ID.Short(), task.Name)
}
