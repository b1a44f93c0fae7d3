package allocrunner_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

var errBroken = errors.New("broken")

// breaks makes a step fail; the function that it returns mends it.
func (w *world) breaks(broken string, err error) (mend func()) {
	var mended atomic.Bool
	w.fail = func(step string) error {
		if step == broken && !mended.Load() {
			return err
		}
		return nil
	}
	return func() { mended.Store(true) }
}

// bubble is synctest.Test with a world in it.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t)) })
}

// after lets time pass.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func wantSteps(t *testing.T, w *world, want string) {
	t.Helper()
	if diff := cmp.Diff(want, w.steps()); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

const (
	allUp   = "record up, up a, up b, up c, record up"
	allDown = "record down, down c, down b, down a, record done"
)

func TestHooksComeUpInOrderAndGoDownInReverse(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		r := w.fresh()
		stop := w.start(r)
		synctest.Wait()
		wantSteps(t, w, allUp)
		if got := w.last().State; got != api.AllocRunning {
			t.Errorf("the servers hear %q, want running", got)
		}
		w.clearSteps()
		r.Update(unwanted())
		synctest.Wait()
		wantSteps(t, w, allDown)
		if got := w.last().State; got != api.AllocComplete {
			t.Errorf("the servers hear %q, want complete", got)
		}
		w.clearSteps()
		r.Stop()
		synctest.Wait()
		wantSteps(t, w, "remove, delete")
		if !w.forgotten {
			t.Error("the facts are not forgotten")
		}
		must(t, stop)
	})
}

func TestFailingHookIsRetriedWithBackoff(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		var tries []time.Duration
		began := time.Now()
		w.fail = func(step string) error {
			if step == "up b" {
				tries = append(tries, time.Since(began))
				return errBroken
			}
			return nil
		}
		stop := w.start(w.fresh())
		after(2 * time.Second)
		ms := time.Millisecond
		if diff := cmp.Diff([]time.Duration{0, 250 * ms, 750 * ms, 1750 * ms}, tries); diff != "" {
			t.Errorf("tries (-want +got):\n%s", diff)
		}
		p := w.last().Problem
		want := &api.Problem{Step: "b", Message: "broken", Since: began.UTC(), Next: began.Add(3750 * ms).UTC()}
		if diff := cmp.Diff(want, p); diff != "" {
			t.Errorf("problem (-want +got):\n%s", diff)
		}
		after(time.Hour)
		if n := len(tries); tries[n-1]-tries[n-2] != time.Minute {
			t.Errorf("the last pause is %v, want a minute", tries[n-1]-tries[n-2])
		}
		must(t, stop)
	})
}

// An engine that was back and needed another moment was tried again a minute
// later: as long as it had been away was its backoff.
func TestNewsBeginTheBackoffAnew(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		step string
		wish api.AllocAssignment
	}{
		"Up":   {"up b", wanted()},
		"Down": {"down b", unwanted()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				var tries []time.Duration
				began := time.Now()
				w.fail = func(step string) error {
					if step == tc.step {
						tries = append(tries, time.Since(began))
						return errBroken
					}
					return nil
				}
				r := w.fresh()
				stop := w.start(r)
				synctest.Wait()
				r.Update(tc.wish)
				after(10 * time.Minute)
				tries, began = nil, time.Now()
				r.Retry()
				after(2 * time.Second)
				ms := time.Millisecond
				if diff := cmp.Diff([]time.Duration{0, 250 * ms, 750 * ms, 1750 * ms}, tries); diff != "" {
					t.Errorf("tries after the news (-want +got):\n%s", diff)
				}
				must(t, stop)
			})
		})
	}
}

func TestNewsBeginTheBackoffOfWhatIsPartlyUpAnew(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		h := &halfway{reason: errBroken}
		r := w.runnerOf(localdb.Allocation{Assignment: wanted()}, h)
		stop := w.start(r)
		after(10 * time.Minute)
		h.ups = 0
		r.Retry()
		after(2 * time.Second)
		if h.ups != 4 {
			t.Errorf("after the news it was called %d times in 2s, want 4", h.ups)
		}
		must(t, stop)
	})
}

func TestWaitingHookIsCalledWhenTheAssignmentChanges(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		mend := w.breaks("up b", &allocrunner.Waiting{Reason: "not attached yet"})
		r := w.fresh()
		stop := w.start(r)
		after(20 * time.Second)
		wantSteps(t, w, "record up, up a, up b")
		if p := w.last().Problem; p == nil || p.Message != "not attached yet" || !p.Next.IsZero() {
			t.Errorf("problem is %+v", p)
		}
		w.clearSteps()
		mend()
		next := wanted()
		next.Attachments[0].Attachment.Status.State = api.ControllerPublished
		r.Update(next)
		synctest.Wait()
		wantSteps(t, w, allUp)
		if diff := cmp.Diff(next, w.recorded().Assignment); diff != "" {
			t.Errorf("recorded assignment (-want +got):\n%s", diff)
		}
		must(t, stop)
	})
}

// A hook that is called while the servers end the allocation sees that they do.
// That its volume is given up is no problem of anybody's, and was said as one.
func TestUpThatMeetsTheEndIsNoProblem(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		r := w.fresh()
		w.fail = func(step string) error {
			if step != "up b" {
				return nil
			}
			r.Update(unwanted())
			return &allocrunner.Waiting{Reason: "the hold has ended"}
		}
		w.heard = func(s api.AllocStatus) {
			if s.Problem != nil && strings.Contains(s.Problem.Message, "hold") {
				t.Errorf("the servers hear of the problem %+v", s.Problem)
			}
		}
		stop := w.start(r)
		synctest.Wait()
		wantSteps(t, w, "record up, up a, up b, record down, down c, down b, down a, record done")
		must(t, stop)
	})
}

// What takes long on the way up, and is of no use to an allocation that is to
// end, ends with the wish for it.
func TestLongWorkEndsWithTheWish(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(r *allocrunner.Runner){
		"Stopped":   func(r *allocrunner.Runner) { r.Update(unwanted()) },
		"Forgotten": func(r *allocrunner.Runner) { r.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				began := false
				w.onUp = func(s *allocrunner.Step) {
					ctx, cancel := s.WhileWanted(t.Context())
					defer cancel()
					began = true
					<-ctx.Done()
				}
				r := w.fresh()
				stop := w.start(r)
				synctest.Wait()
				if phase := r.Phase(); !began || phase != localdb.PhaseUp {
					t.Fatalf("began %t, phase %s", began, phase)
				}
				end(r)
				synctest.Wait()
				if phase := r.Phase(); phase != localdb.PhaseDone {
					t.Errorf("phase %s after the end", phase)
				}
				must(t, stop)
			})
		})
	}
}

// The servers send an allocation again whenever its row has changed, and
// reporting a problem changes it.
func TestWhatTheNodeItselfReportedDoesNotDefeatTheBackoff(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.breaks("up a", errBroken)
		r := w.fresh()
		stop := w.start(r)
		after(20 * time.Second)
		w.clearSteps()
		for i := range uint64(10) {
			echo := wanted()
			echo.Allocation.Meta.Version = i
			echo.Allocation.Running, echo.Allocation.Passing, echo.Allocation.Faltered = time.Now(), time.Now(), time.Now()
			echo.Allocation.Status.Problem = w.last().Problem
			echo.Attachments[0].Attachment.Meta.Version = i
			r.Update(echo)
			synctest.Wait()
		}
		wantSteps(t, w, "")
		must(t, stop)
	})
}

func TestFatalHookFailsTheAllocation(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.breaks("up b", &allocrunner.Fatal{Err: errBroken})
		stop := w.start(w.fresh())
		synctest.Wait()
		wantSteps(t, w, "record up, up a, up b, "+allDown)
		got := w.last()
		if got.State != api.AllocFailed || got.Problem == nil || got.Problem.Message != "broken" || got.Ended.IsZero() {
			t.Errorf("the servers hear %+v", got)
		}
		must(t, stop)
	})
}

func TestAllocationEndsByItself(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		news allocrunner.News
		want api.AllocState
	}{
		"Complete": {allocrunner.Complete, api.AllocComplete},
		"Failed":   {allocrunner.Failed, api.AllocFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w *world) {
				w.watch = func(context.Context, *allocrunner.Step) (allocrunner.News, error) { return tc.news, nil }
				stop := w.start(w.fresh())
				synctest.Wait()
				wantSteps(t, w, allUp+", "+allDown)
				if got := w.last().State; got != tc.want {
					t.Errorf("the servers hear %q, want %q", got, tc.want)
				}
				must(t, stop)
			})
		})
	}
}

func TestNewsOfAHookCallsUpAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		told := false
		w.watch = func(ctx context.Context, _ *allocrunner.Step) (allocrunner.News, error) {
			if !told {
				told = true
				return allocrunner.Again, nil
			}
			<-ctx.Done()
			return allocrunner.Again, ctx.Err()
		}
		stop := w.start(w.fresh())
		synctest.Wait()
		wantSteps(t, w, allUp+", up a, up b, up c")
		must(t, stop)
	})
}

// An allocation whose prestart tasks run is up, and not running yet.
func TestStartingIsNotRunning(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		var begun atomic.Bool
		w.onUp = func(s *allocrunner.Step) { s.SetStarting(!begun.Load()) }
		stop := w.start(w.fresh())
		synctest.Wait()
		if got := w.last().State; got != api.AllocPending {
			t.Errorf("the servers hear %q, want pending", got)
		}
		begun.Store(true)
		after(time.Minute)
		if got := w.last().State; got != api.AllocRunning {
			t.Errorf("the servers hear %q, want running", got)
		}
		must(t, stop)
	})
}

// What a hook asks to record is recorded before it goes on, and comes back.
func TestTasksAreRecordedForTheNextAgent(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		want := api.TaskStatus{State: api.TaskPending, Restarts: 2}
		w.watch = func(ctx context.Context, _ *allocrunner.Step) (allocrunner.News, error) {
			<-ctx.Done()
			return allocrunner.Again, ctx.Err()
		}
		w.onUp = func(s *allocrunner.Step) {
			s.SetTask("pg", want)
			if err := s.Record(); err != nil {
				t.Error(err)
			}
			if got := w.recorded().Status.Tasks["pg"]; got != want {
				t.Errorf("recorded is %+v", got)
			}
		}
		stop := w.start(w.fresh())
		synctest.Wait()
		must(t, stop)
		w.onUp = func(s *allocrunner.Step) {
			if got := s.Tasks()["pg"]; got != want {
				t.Errorf("the next agent finds %+v", got)
			}
		}
		stop = w.start(w.runner(w.recorded()))
		synctest.Wait()
		must(t, stop)
	})
}

// Of two tasks that were recorded at once, the older record was written over the
// newer one, which was forgotten by the next agent.
func TestTasksThatAreRecordedAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		var writes atomic.Int64
		w.fail = func(string) error {
			for range writes.Add(1) * 37 % 100 {
				runtime.Gosched() // the disk is slower for one than for another
			}
			return nil
		}
		w.onUp = func(s *allocrunner.Step) {
			var all sync.WaitGroup
			for i := range 100 {
				all.Go(func() {
					s.SetTask(strconv.Itoa(i), api.TaskStatus{State: api.TaskEnded})
					if err := s.Record(); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if got := len(w.recorded().Status.Tasks); got != 100 {
				t.Errorf("%d tasks are recorded", got)
			}
		}
		stop := w.start(w.fresh())
		synctest.Wait()
		must(t, stop)
	})
}

func TestBrokenWatchEndsNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.watch = func(context.Context, *allocrunner.Step) (allocrunner.News, error) {
			return allocrunner.Again, errBroken
		}
		stop := w.start(w.fresh())
		after(time.Hour)
		if strings.Contains(w.steps(), "down") {
			t.Errorf("an allocation went down that nobody saw end: %s", w.steps())
		}
		if n := strings.Count(w.steps(), "up c"); n < 60 || n > 80 {
			t.Errorf("it was looked at %d times in an hour, want about every minute", n)
		}
		must(t, stop)
	})
}

func TestRunningAllocationIsLookedAtTwiceAMinute(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		stop := w.start(w.fresh())
		after(10*time.Minute + time.Second)
		if n := strings.Count(w.steps(), "up c"); n != 21 {
			t.Errorf("hooks were called %d times in ten minutes, want 21", n)
		}
		if n := strings.Count(w.steps(), "record"); n != 2 {
			t.Errorf("%d records were written, want 2", n)
		}
		must(t, stop)
	})
}

// TestStoppedInEveryState stops an allocation, by wish and by forgetting it.
func TestStoppedInEveryState(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(w *world) (wait time.Duration){
		"Running": func(*world) time.Duration { return time.Second },
		"NotRun":  func(*world) time.Duration { return -1 },
		"Waiting": func(w *world) time.Duration {
			w.breaks("up b", &allocrunner.Waiting{Reason: "wait"})
			return time.Second
		},
		"BackingOff": func(w *world) time.Duration {
			w.breaks("up b", errBroken)
			return 10 * time.Minute
		},
		"ComingUp": func(w *world) time.Duration {
			w.fail = func(step string) error {
				if step == "up b" {
					slow()
				}
				return nil
			}
			return time.Second
		},
		"WatchBroken": func(w *world) time.Duration {
			w.watch = func(context.Context, *allocrunner.Step) (allocrunner.News, error) {
				return allocrunner.Again, errBroken
			}
			return 10 * time.Minute
		},
		"GoingDown": func(w *world) time.Duration {
			w.watch = func(context.Context, *allocrunner.Step) (allocrunner.News, error) { return allocrunner.Complete, nil }
			w.fail = func(step string) error {
				if step == "down b" {
					slow()
				}
				return nil
			}
			return time.Second
		},
		"Ended": func(w *world) time.Duration {
			w.watch = func(context.Context, *allocrunner.Step) (allocrunner.News, error) { return allocrunner.Complete, nil }
			return time.Second
		},
	} {
		for way, end := range map[string]func(r *allocrunner.Runner){
			"Unwanted":  func(r *allocrunner.Runner) { r.Update(unwanted()) },
			"Forgotten": func(r *allocrunner.Runner) { r.Stop() },
		} {
			t.Run(name+"/"+way, func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T, w *world) {
					wait := prepare(w)
					r := w.fresh()
					var stop func() error
					if wait < 0 {
						end(r)
						stop = w.start(r)
					} else {
						stop = w.start(r)
						after(wait)
						end(r)
					}
					after(3 * time.Second)
					if up := w.up(); len(up) > 0 {
						t.Errorf("%v is still up: %s", up, w.steps())
					}
					if got := w.last().State; got != api.AllocComplete {
						t.Errorf("the servers hear %q, want complete", got)
					}
					if gone := w.recorded().Phase == ""; gone != (way == "Forgotten") {
						t.Errorf("the record is gone: %v", gone)
					}
					must(t, stop)
				})
			})
		}
	}
}

func TestAgentThatEndsLeavesEverythingUp(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		stop := w.start(w.fresh())
		synctest.Wait()
		must(t, stop)
		if diff := cmp.Diff(parts, w.up()); diff != "" {
			t.Errorf("up (-want +got):\n%s", diff)
		}
		w.clearSteps()
		stop = w.start(w.runner(w.recorded()))
		synctest.Wait()
		wantSteps(t, w, "up a, up b, up c")
		if got := w.last().State; got != api.AllocRunning {
			t.Errorf("the servers hear %q, want running", got)
		}
		must(t, stop)
	})
}

func TestEndThatMayNotHaveBeenHeardIsSaidAgain(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		ended := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
		record := localdb.Allocation{
			Phase: localdb.PhaseDone, Assignment: wanted(),
			Status: api.AllocStatus{
				State: api.AllocFailed, Ended: ended, Problem: &api.Problem{Step: "run", Message: "broken"},
				Tasks: map[string]api.TaskStatus{"pg": {State: api.TaskEnded, ExitCode: 3}},
			},
		}
		w.record = &record
		stop := w.start(w.runner(record))
		synctest.Wait()
		wantSteps(t, w, "down c, down b, down a, record done")
		if diff := cmp.Diff(record.Status, w.last()); diff != "" {
			t.Errorf("the servers hear (-want +got):\n%s", diff)
		}
		must(t, stop)
	})
}

func TestNothingComesUpBeforeItIsRecorded(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		mend := w.breaks("record up", errBroken)
		stop := w.start(w.fresh())
		after(time.Minute)
		if strings.Contains(w.steps(), "up a") {
			t.Errorf("steps: %s", w.steps())
		}
		if p := w.last().Problem; p == nil || p.Step != "record" || p.Next.IsZero() {
			t.Errorf("the problem is %+v", p)
		}
		mend()
		w.clearSteps()
		after(time.Minute)
		wantSteps(t, w, allUp+", up a, up b, up c")
		must(t, stop)
	})
}

// An agent that could not record that an allocation goes down, and went on,
// would bring it up again after a restart: its volume may be another node's.
func TestNothingGoesDownBeforeItIsRecorded(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		mend := w.breaks("record down", errBroken)
		r := w.fresh()
		stop := w.start(r)
		synctest.Wait()
		w.clearSteps()
		r.Update(unwanted())
		after(time.Minute)
		if steps := strings.ReplaceAll(w.steps(), "record down", ""); strings.Trim(steps, ", ") != "" {
			t.Errorf("went on: %s", w.steps())
		}
		if p := w.last().Problem; p == nil || p.Step != "record" || w.last().State.Terminal() {
			t.Errorf("the servers hear %+v", w.last())
		}
		mend()
		w.clearSteps()
		after(time.Minute)
		wantSteps(t, w, allDown)
		must(t, stop)
	})
}

func TestNoEndIsSaidBeforeAllIsDown(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		mend := w.breaks("down a", errBroken)
		w.watch = func(_ context.Context, s *allocrunner.Step) (allocrunner.News, error) {
			s.SetTask("pg", api.TaskStatus{State: api.TaskEnded, ExitCode: 1})
			return allocrunner.Failed, nil
		}
		stop := w.start(w.fresh())
		after(time.Hour)
		got := w.last()
		if got.State.Terminal() || got.Problem == nil || got.Problem.Step != "a" || got.Tasks["pg"].ExitCode != 1 {
			t.Errorf("the servers hear %+v", got)
		}
		if n := strings.Count(w.steps(), "down c"); n != 1 {
			t.Errorf("c went down %d times", n)
		}
		mend()
		after(time.Minute)
		if got := w.last(); got.State != api.AllocFailed || got.Problem != nil {
			t.Errorf("the servers hear %+v", got)
		}
		must(t, stop)
	})
}

func TestBackoffOfOneHookIsNotTheNextOnes(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		var mended atomic.Bool
		first := true
		w.fail = func(step string) error {
			if step == "down c" && !mended.Load() || step == "down b" && first {
				first = step == "down c"
				return errBroken
			}
			return nil
		}
		r := w.fresh()
		stop := w.start(r)
		synctest.Wait()
		r.Update(unwanted())
		after(10 * time.Minute)
		mended.Store(true)
		after(time.Minute + time.Second)
		if up := w.up(); len(up) > 0 {
			t.Errorf("%v is still up: b waited for as long as c", up)
		}
		must(t, stop)
	})
}

func TestDirectoryThatStaysKeepsTheRecord(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		mend := w.breaks("remove", errBroken)
		r := w.fresh()
		r.Stop()
		if err := r.Run(t.Context()); !errors.Is(err, errBroken) {
			t.Errorf("Run: %v, want broken", err)
		}
		if w.recorded().Phase != localdb.PhaseDone {
			t.Errorf("the record is %+v", w.recorded())
		}
		mend()
		if err := r.Run(t.Context()); err != nil || w.recorded().Phase != "" {
			t.Errorf("Run: %v; the record is %+v", err, w.recorded())
		}
	})
}

// slow is what a hook takes whose call is in the way.
func slow() { time.Sleep(2 * time.Second) }

// An allocation whose volumes' plugin is not healthy runs, and says so.
func TestIllPluginIsTheProblemOfWhatRuns(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		ill := &api.Problem{Step: api.StepPlugin, Message: "plugin disk is not healthy on this node: it hangs", Since: time.Now().UTC()}
		var is atomic.Pointer[api.Problem]
		w.onUp = func(s *allocrunner.Step) { s.SetIll("disk", is.Load()) }
		r := w.fresh()
		stop := w.start(r)
		for _, want := range []*api.Problem{ill, nil} {
			is.Store(want)
			r.Retry()
			after(time.Second)
			if diff := cmp.Diff(want, w.last().Problem); diff != "" || w.last().State != api.AllocRunning {
				t.Errorf("it is %s, its problem (-want +got):\n%s", w.last().State, diff)
			}
		}
		if events := w.last().Events; len(events) != 2 || events[1].Message != "plugin disk is healthy again" {
			t.Errorf("events: %+v", events)
		}
		must(t, stop)
	})
}

// halfway is a hook that is up but for what waits for the servers.
type halfway struct {
	ups    int
	reason error
}

func (*halfway) Name() string { return "halfway" }

func (h *halfway) Up(context.Context, *allocrunner.Step) error {
	h.ups++
	if h.reason != nil {
		return &allocrunner.Partial{Err: h.reason}
	}
	return nil
}

func (*halfway) Down(context.Context, *allocrunner.Step) error { return nil }

func (*halfway) Watch(ctx context.Context, _ *allocrunner.Step) (allocrunner.News, error) {
	<-ctx.Done()
	return allocrunner.Again, ctx.Err()
}

// What waits for the servers is no failure, also where others are watched: it was
// called with a backoff, and each time a person was warned.
func TestWaitingBesideOthersIsNoFailure(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		h := &halfway{reason: &allocrunner.Waiting{Reason: "not attached yet"}}
		r := w.runnerOf(localdb.Allocation{Assignment: wanted()}, h)
		stop := w.start(r)
		after(20 * time.Second)
		if p := w.last().Problem; p == nil || p.Message != "not attached yet" || !p.Next.IsZero() {
			t.Errorf("problem is %+v", p)
		}
		if h.ups != 1 {
			t.Errorf("it was called %d times in 20 seconds", h.ups)
		}
		h.reason = nil
		next := wanted()
		next.Attachments[0].Attachment.Status.State = api.ControllerPublished
		r.Update(next)
		synctest.Wait()
		if h.ups != 2 || w.last().Problem != nil {
			t.Errorf("after %d calls it is %+v", h.ups, w.last())
		}
		must(t, stop)
	})
}

// A hook that waits for a plugin's answer says nothing meanwhile: what it waits for
// is said for it, on the way up and down.
func TestLateCallIsTheProblemAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		late := &api.Problem{Step: "NodeStageVolume", Message: "plugin disk has not answered since 04:10:11 UTC", Since: time.Now().UTC()}
		answer := make(chan struct{})
		w.onUp = func(s *allocrunner.Step) {
			s.SetLate("data", late)
			<-answer
			s.SetLate("data", nil)
		}
		stop := w.start(w.fresh())
		after(time.Second)
		if diff := cmp.Diff(late, w.last().Problem); diff != "" || w.last().State != api.AllocPending {
			t.Errorf("it is %s, its problem (-want +got):\n%s", w.last().State, diff)
		}
		close(answer)
		after(time.Second)
		if w.last().Problem != nil || w.last().State != api.AllocRunning {
			t.Errorf("it is %s, its problem %+v", w.last().State, w.last().Problem)
		}
		must(t, stop)
	})
}
