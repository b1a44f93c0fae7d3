// Package supervise runs named tasks: started in order, stopped in reverse,
// restarted with backoff when they fail. It is the one place where goroutines
// that live long are kept.
//
// It never hides a failure: each is logged, and a task that keeps failing ends
// the group with its error. Invariant: when Run returns, every task has ended.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"
)

// Task is something that runs until its context ends. It returns only when all
// that it started has ended. To return earlier is a failure, also with nil.
type Task struct {
	Name string
	Run  func(ctx context.Context) error
}

// Policy says how often a task may fail.
type Policy struct {
	// Failures within Window end the group. Zero values mean 5 in a minute.
	Failures int
	Window   time.Duration
	// FirstBackoff doubles up to LastBackoff between restarts. Zero values
	// mean 100 milliseconds and 10 seconds.
	FirstBackoff, LastBackoff time.Duration
}

func (p Policy) withDefaults() Policy {
	if p.Failures == 0 {
		p.Failures = 5
	}
	if p.Window == 0 {
		p.Window = time.Minute
	}
	if p.FirstBackoff == 0 {
		p.FirstBackoff = 100 * time.Millisecond
	}
	if p.LastBackoff == 0 {
		p.LastBackoff = 10 * time.Second
	}
	return p
}

// errReturned is the failure of a task that returned without being asked to.
var errReturned = errors.New("returned although nobody stopped it")

// Run starts the tasks in order and keeps them running until ctx ends or one
// of them fails too often. It then stops them in reverse order, each only when
// the one after it has ended, and returns nil if ctx ended, or the failure.
func Run(ctx context.Context, log *slog.Logger, policy Policy, tasks ...Task) error {
	policy = policy.withDefaults()
	failed := make(chan error, len(tasks))
	stops := make([]func(), 0, len(tasks))
	for _, t := range tasks {
		stops = append(stops, start(ctx, log, policy, t, failed))
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	for _, stop := range slices.Backward(stops) {
		stop()
	}
	return err
}

// start runs a task in a goroutine of its own; the returned function stops it
// and waits for it. The task does not see ctx end by itself: the order of
// stopping is Run's.
func start(ctx context.Context, log *slog.Logger, policy Policy, t Task, failed chan<- error) func() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := keep(ctx, log, policy, t); err != nil {
			failed <- fmt.Errorf("task %s: %w", t.Name, err)
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// keep restarts a task until ctx ends or it has failed too often.
func keep(ctx context.Context, log *slog.Logger, policy Policy, t Task) error {
	var failures []time.Time
	backoff := policy.FirstBackoff
	for {
		began := time.Now()
		err := once(ctx, t)
		if ctx.Err() != nil {
			if err != nil && !errors.Is(err, context.Canceled) {
				log.Warn("task ended with an error", "task", t.Name, "error", err)
			}
			return nil
		}
		if err == nil {
			err = errReturned
		}
		now := time.Now()
		failures = append(failures, now)
		for now.Sub(failures[0]) > policy.Window {
			failures = failures[1:]
		}
		if len(failures) >= policy.Failures {
			return fmt.Errorf("failed %d times within %s: %w", len(failures), policy.Window, err)
		}
		if now.Sub(began) > policy.Window {
			backoff = policy.FirstBackoff
		}
		log.Error("task failed and is restarted", "task", t.Name, "error", err, "backoff", backoff)
		if !Sleep(ctx, backoff) {
			return nil
		}
		backoff = min(2*backoff, policy.LastBackoff)
	}
}

func once(ctx context.Context, t Task) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return t.Run(ctx)
}

// Sleep waits for d and reports true, or false if ctx ended before.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
