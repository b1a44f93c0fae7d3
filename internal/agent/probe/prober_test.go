package probe_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/probe"
)

// world is a prober with the checks of one allocation, whose answers the test
// gives.
type world struct {
	t      *testing.T
	prober *probe.Prober
	stop   func()

	mu     sync.Mutex // guards below
	answer probe.Answer
	takes  time.Duration
	asked  []time.Time
	flying int
	most   int
	turned int
	failed []string
}

const alloc api.AllocID = "a1"

// bubble runs a test with a prober in virtual time.
func bubble(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, prober: probe.New(), answer: probe.Answer{OK: true, Output: "fine"}}
		w.run()
		f(w)
		w.stop()
	})
}

func (w *world) run() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.prober.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	}
}

func (w *world) Turned() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turned++
}

func (w *world) Failed(c probe.Check, failures int, output string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = append(w.failed, fmt.Sprintf("%s/%s %d %s", c.Service, c.Spec.Name, failures, output))
}

func (w *world) script(ctx context.Context, _ []string) probe.Answer {
	w.mu.Lock()
	w.asked = append(w.asked, time.Now())
	w.flying++
	w.most = max(w.most, w.flying)
	answer, takes := w.answer, w.takes
	w.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		answer = probe.Answer{Output: "cut"}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flying--
	return answer
}

func (w *world) says(a probe.Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = a
}

// last says how long an answer takes.
func (w *world) last(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.takes = d
}

// check is a script that is asked every ten seconds.
func (w *world) check(change func(*probe.Check)) probe.Check {
	c := probe.Check{
		Service: "db", Since: time.Now().Add(-time.Hour), Run: w.script,
		Spec: api.ServiceCheck{Name: "a", Type: api.CheckScript, Interval: api.Duration(10 * time.Second), Timeout: api.Duration(4 * time.Second)},
	}
	if change != nil {
		change(&c)
	}
	return c
}

func (w *world) set(checks ...probe.Check) { w.prober.Set(alloc, checks, w) }

// after lets time pass, and all that is to happen in it.
func (w *world) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// want compares how the checks are: name, state, output.
func (w *world) want(lines ...string) {
	w.t.Helper()
	synctest.Wait()
	var got []string
	for _, s := range w.prober.Statuses(alloc) {
		got = append(got, fmt.Sprintf("%s %s %s", s.Name, s.Status, s.Output))
	}
	if diff := cmp.Diff(lines, got); diff != "" {
		w.t.Errorf("checks (-want +got):\n%s", diff)
	}
}

func TestCheckTurnsOnlyWhenItsAnswerDoes(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.set(w.check(nil))
		w.want("a pending ")
		w.after(time.Second)
		w.want("a passing fine")
		since := w.prober.Statuses(alloc)[0].Since
		w.says(probe.Answer{OK: true, Output: "another word"})
		w.after(time.Minute)
		w.want("a passing fine")
		if got := w.prober.Statuses(alloc)[0].Since; !got.Equal(since) {
			t.Errorf("it passes since %s, and then since %s", since, got)
		}
		w.says(probe.Answer{Output: "refused"})
		w.after(10 * time.Second)
		w.want("a critical refused")
		if w.turned != 2 || len(w.asked) < 7 || len(w.asked) > 9 {
			t.Errorf("%d turns were told, %d probes made", w.turned, len(w.asked))
		}
	})
}

func TestCheckTurnsAfterSoManyInARow(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.set(w.check(func(c *probe.Check) { c.Spec.SuccessBeforePassing, c.Spec.FailuresBeforeCritical = 2, 3 }))
		w.after(time.Second)
		w.want("a pending ")
		w.after(10 * time.Second)
		w.want("a passing fine")
		w.says(probe.Answer{Output: "no"})
		w.after(20 * time.Second)
		w.want("a passing fine")
		w.says(probe.Answer{OK: true})
		w.after(10 * time.Second)
		w.says(probe.Answer{Output: "no"})
		w.after(20 * time.Second)
		w.want("a passing fine")
		w.after(10 * time.Second)
		w.want("a critical no")
	})
}

// An agent that starts again does not say of what passes that nobody knows, and
// does not ask everything at once.
func TestWhatWasKnownGoesOn(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		was := &api.CheckStatus{Service: "db", Name: "a", Status: api.CheckPassing, Since: time.Now().Add(-time.Minute), Output: "then"}
		w.set(w.check(func(c *probe.Check) { c.Was = was }))
		w.want("a passing then")
		w.says(probe.Answer{Output: "no"})
		w.after(10 * time.Second)
		w.want("a critical no")
		// Of a run that began later nothing is known.
		w.set(w.check(func(c *probe.Check) { c.Was, c.Since = was, time.Now() }))
		w.want("a pending ")
	})
}

func TestCheckOfWhatDoesNotRunIsPending(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.set(w.check(nil))
		w.after(time.Second)
		w.want("a passing fine")
		stopped := func(c *probe.Check) { c.Since = time.Time{} }
		w.set(w.check(stopped))
		w.want("a pending ")
		since, asked := w.prober.Statuses(alloc)[0].Since, len(w.asked)
		w.after(time.Minute)
		w.set(w.check(stopped))
		if got := w.prober.Statuses(alloc)[0].Since; !got.Equal(since) || len(w.asked) != asked {
			t.Errorf("pending since %s and then %s; %d probes were made, and then %d", since, got, asked, len(w.asked))
		}
		w.set(w.check(func(c *probe.Check) { c.Since, c.Spec.InitialStatus = time.Now(), api.CheckPassing }))
		w.want("a passing ")
	})
}

// The answer of a probe that was on its way when its tasks ended counts nothing.
func TestProbeThatIsOvertakenIsCut(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.last(3 * time.Second)
		w.set(w.check(nil))
		w.after(time.Second)
		if w.flying != 1 {
			t.Fatalf("%d probes are on their way", w.flying)
		}
		w.set(w.check(func(c *probe.Check) { c.Since = time.Time{} }))
		synctest.Wait()
		if w.flying != 0 {
			t.Errorf("a probe goes on whose task has ended")
		}
		w.after(time.Minute)
		w.want("a pending ")
		w.prober.Forget(alloc)
		w.want()
	})
}

func TestProbeHasALimit(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.last(time.Hour)
		w.set(w.check(nil))
		w.after(6 * time.Second)
		w.want("a critical no answer within 4s: cut")
		if w.flying != 0 {
			t.Error("it goes on")
		}
	})
}

// A probe that taught nothing turns nothing.
func TestProbeThatCouldNotBeMadeCountsNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.set(w.check(nil))
		w.after(time.Second)
		w.says(probe.Answer{Unasked: true})
		w.after(20 * time.Second)
		w.want("a passing fine")
	})
}

// It is not hidden that nobody could ask for long; the check is as it was.
func TestProbesThatCannotBeMadeAreSaid(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.set(w.check(nil))
		w.after(time.Second)
		since := w.prober.Statuses(alloc)[0].Since
		w.says(probe.Answer{Unasked: true, Output: "busy"})
		w.after(time.Minute)
		w.want("a passing it could not be asked 3 times in a row: busy")
		w.says(probe.Answer{OK: true, Output: "another word"})
		w.after(10 * time.Second)
		w.want("a passing fine")
		if got := w.prober.Statuses(alloc)[0].Since; !got.Equal(since) || w.turned != 3 {
			t.Errorf("it passes since %s, and then since %s; %d turns were told", since, got, w.turned)
		}
	})
}

// What a task that has ended does not answer is not its check's failure.
func TestEndOfATaskIsNoFailure(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		var dead atomic.Bool
		w.set(w.check(func(c *probe.Check) {
			c.Restart = &api.CheckRestart{Limit: 1}
			c.Lives = func(context.Context) bool { return !dead.Load() }
		}))
		w.after(time.Second)
		dead.Store(true)
		w.says(probe.Answer{Output: "no"})
		w.after(20 * time.Second)
		w.want("a passing fine")
		if w.failed != nil {
			t.Errorf("asked for %q", w.failed)
		}
		dead.Store(false)
		w.after(10 * time.Second)
		w.want("a critical no")
	})
}

// What is filled in for names may change while the job's word is the same: the
// check is as it was, and the next probe asks otherwise. Another word of the job
// is another check.
func TestCheckIsWhatTheJobSays(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		c := w.check(nil)
		w.set(c)
		w.after(time.Second)
		c.Spec.Path, c.Command, c.Address = "/other", []string{"other"}, "[::1]:1"
		var asked atomic.Bool
		c.Run = func(_ context.Context, command []string) probe.Answer {
			asked.Store(slices.Equal(command, []string{"other"}))
			return probe.Answer{OK: true}
		}
		w.set(c)
		w.want("a passing fine")
		w.after(10 * time.Second)
		w.want("a passing fine")
		if !asked.Load() {
			t.Error("the next probe asks as before")
		}
		c.Of.Path = "/of-the-job"
		w.set(c)
		w.want("a pending ")
	})
}

// An allocation with many checks that hang does not hold up another's.
func TestOneAllocationDoesNotTakeAllProbes(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.last(time.Hour)
		var many []probe.Check
		for i := range 64 {
			many = append(many, w.check(func(c *probe.Check) {
				c.Spec.Name, c.Spec.Interval, c.Spec.Timeout = fmt.Sprint(i), api.Duration(time.Second), api.Duration(30*time.Second)
			}))
		}
		w.prober.Set("greedy", many, w)
		w.after(5 * time.Second)
		if w.flying != 4 {
			t.Errorf("%d probes of one allocation are on their way", w.flying)
		}
		w.prober.Set("greedy", many, w) // again, with some held
		w.last(0)
		w.set(w.check(nil))
		w.after(time.Second)
		w.want("a passing fine")
		w.after(40 * time.Second)
		for _, s := range w.prober.Statuses("greedy") {
			if s.Status != api.CheckPassing && s.Status != api.CheckCritical {
				t.Errorf("nobody asked %s", s.Name)
			}
		}
		w.prober.Forget("greedy")
		w.after(time.Second)
	})
}

func TestTasksAreStartedAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		restart api.CheckRestart
		answer  probe.Answer
		run     time.Duration // ago
		want    int           // failures, 0 for none
	}{
		"AtTheLimit":     {api.CheckRestart{Limit: 3}, probe.Answer{Output: "no"}, time.Hour, 3},
		"NotInItsGrace":  {api.CheckRestart{Limit: 1, Grace: api.Duration(5 * time.Minute)}, probe.Answer{Output: "no"}, time.Minute, 0},
		"AfterItsGrace":  {api.CheckRestart{Limit: 2, Grace: api.Duration(time.Minute)}, probe.Answer{Output: "no"}, 30 * time.Second, 2},
		"Warning":        {api.CheckRestart{Limit: 2}, probe.Answer{Warning: true, Output: "no"}, time.Hour, 2},
		"WarningIgnored": {api.CheckRestart{Limit: 2, IgnoreWarnings: true}, probe.Answer{Warning: true, Output: "no"}, time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(w *world) {
				w.says(tc.answer)
				w.set(w.check(func(c *probe.Check) { c.Restart, c.Since = &tc.restart, time.Now().Add(-tc.run) }))
				w.after(2 * time.Minute)
				var want []string
				if tc.want > 0 {
					want = []string{fmt.Sprintf("db/a %d no", tc.want)}
				}
				if !slices.Equal(w.failed, want) {
					t.Errorf("asked for %q, want %q", w.failed, want)
				}
				w.want("a critical no")
			})
		})
	}
}

func TestSuccessBeginsTheCountAfresh(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.set(w.check(func(c *probe.Check) { c.Restart = &api.CheckRestart{Limit: 3} }))
		for range 5 {
			w.says(probe.Answer{Output: "no"})
			w.after(20 * time.Second)
			w.says(probe.Answer{OK: true})
			w.after(10 * time.Second)
		}
		if w.failed != nil {
			t.Errorf("asked for %q", w.failed)
		}
	})
}

// Of five hundred allocations no more are asked at once than the bound, and their
// turns come nevertheless.
func TestManyAreNotAskedAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.last(100 * time.Millisecond)
		for i := range 500 {
			w.prober.Set(api.AllocID(fmt.Sprintf("a%d", i)), []probe.Check{w.check(nil)}, w)
		}
		w.after(30 * time.Second)
		first := map[time.Time]int{}
		for _, at := range w.asked[:500] {
			first[at]++
		}
		if w.most > 32 || len(w.asked) < 1000 || len(first) < 50 {
			t.Errorf("%d at once, %d probes, the first 500 of them at %d times", w.most, len(w.asked), len(first))
		}
		for i := range 500 {
			id := api.AllocID(fmt.Sprintf("a%d", i))
			if s := w.prober.Statuses(id); len(s) != 1 || s[0].Status != api.CheckPassing {
				t.Errorf("%s is %+v", id, s)
			}
		}
	})
}

// Run returns when nothing is on its way, and goes on when it is called again.
func TestRunEndsWithItsProbes(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.set(w.check(nil))
		w.after(time.Second)
		w.last(time.Hour)
		w.after(10 * time.Second)
		w.stop()
		if w.flying != 0 {
			t.Error("a probe outlives Run")
		}
		w.want("a passing fine")
		w.last(0)
		w.says(probe.Answer{Output: "no"})
		w.run()
		w.after(20 * time.Second)
		w.want("a critical no")
	})
}

func TestLineHarmsNoTerminal(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"a\r\n\tb\x1b[31m c\x00": "a b [31m c",
		"\xff":                   "?",
		" ":                      "",
	} {
		if got := probe.Line(said); got != want {
			t.Errorf("%q becomes %q, want %q", said, got, want)
		}
	}
	if got := probe.Line(string(slices.Repeat([]byte("é"), 4000))); len(got) > api.MaxCheckOutput {
		t.Errorf("a line of %d bytes", len(got))
	}
}
