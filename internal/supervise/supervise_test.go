package supervise_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/internal/supervise"
)

// journal notes what happens, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) note(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

func (j *journal) task(name string) supervise.Task {
	return supervise.Task{Name: name, Run: func(ctx context.Context) error {
		<-ctx.Done()
		j.note("stop " + name)
		return nil
	}}
}

func run(ctx context.Context, tasks ...supervise.Task) <-chan error {
	ended := make(chan error, 1)
	go func() {
		ended <- supervise.Run(ctx, slog.New(slog.DiscardHandler), supervise.Policy{}, tasks...)
	}()
	return ended
}

func TestRun(t *testing.T) {
	t.Parallel()
	t.Run("StopsInReverse", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var j journal
			ctx, cancel := context.WithCancel(t.Context())
			ended := run(ctx, j.task("a"), j.task("b"), j.task("c"))
			synctest.Wait()
			cancel()
			if err := <-ended; err != nil {
				t.Fatalf("Run: %v", err)
			}
			if got, want := strings.Join(j.all(), ", "), "stop c, stop b, stop a"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	})
	t.Run("RestartsWithBackoff", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var began []time.Duration
			origin := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := run(ctx, supervise.Task{Name: "flaky", Run: func(ctx context.Context) error {
				began = append(began, time.Since(origin))
				if len(began) < 4 {
					return errors.New("not yet")
				}
				<-ctx.Done()
				return nil
			}})
			time.Sleep(time.Hour)
			cancel()
			if err := <-ended; err != nil {
				t.Fatalf("Run: %v", err)
			}
			want := []time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond, 700 * time.Millisecond}
			if !slices.Equal(began, want) {
				t.Errorf("began at %v, want %v", began, want)
			}
		})
	})
	for name, fail := range map[string]func() error{
		"ErrorTooOften":  func() error { return errors.New("broken") },
		"PanicTooOften":  func() error { panic("broken") },
		"ReturnTooOften": func() error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var j journal
				ended := run(t.Context(), j.task("good"),
					supervise.Task{Name: "bad", Run: func(context.Context) error { return fail() }})
				err := <-ended
				if err == nil || !strings.Contains(err.Error(), "task bad: failed 5 times") {
					t.Errorf("got %v, want the failure of task bad", err)
				}
				if got := j.all(); !slices.Equal(got, []string{"stop good"}) {
					t.Errorf("got %v, want the good task stopped", got)
				}
			})
		})
	}
	t.Run("RareFailuresAreForgiven", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := run(ctx, supervise.Task{Name: "rare", Run: func(ctx context.Context) error {
				if supervise.Sleep(ctx, 50*time.Second) {
					return errors.New("again")
				}
				return nil
			}})
			time.Sleep(24 * time.Hour)
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	})
}
