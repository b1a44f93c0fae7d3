package docker_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/berth-dev/berth/internal/agent/driver/docker"
)

// TestPullsAreShared: many want an image at once, and it is pulled once; who
// leaves hears no more of it, and if it was the one who pulled, another one does.
func TestPullsAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var all docker.Pulls
		var mu sync.Mutex
		heard := map[string][]string{}
		hear := func(name string) func(string) {
			return func(what string) {
				mu.Lock()
				defer mu.Unlock()
				heard[name] = append(heard[name], what)
			}
		}
		step := make(chan string)
		begun := 0
		work := func(ctx context.Context) func(func(string)) error {
			return func(say func(string)) error {
				mu.Lock()
				begun++
				mu.Unlock()
				for {
					select {
					case what := <-step:
						if what == "fail" {
							return errors.New("no such image")
						}
						say(what)
					case <-ctx.Done():
						return ctx.Err()
					}
				}
			}
		}
		answers := map[string]error{}
		var callers sync.WaitGroup
		call := func(name string) context.CancelFunc {
			ctx, cancel := context.WithCancel(t.Context())
			callers.Go(func() {
				err := all.Share(ctx, "image", hear(name), work(ctx))
				mu.Lock()
				defer mu.Unlock()
				answers[name] = err
			})
			synctest.Wait()
			return cancel
		}
		leaveFirst, leaveSecond := call("first"), call("second")
		defer call("third")()
		tell := func(what string) {
			step <- what
			synctest.Wait()
		}
		tell("one")
		leaveSecond()
		synctest.Wait()
		tell("two")
		leaveFirst()
		synctest.Wait()
		tell("three")
		tell("fail")
		callers.Wait()
		for name, want := range map[string][]string{"first": {"one", "two"}, "second": {"one"}, "third": {"one", "two", "three"}} {
			if !slices.Equal(heard[name], want) {
				t.Errorf("the %s heard %q, not %q", name, heard[name], want)
			}
		}
		if begun != 2 || all.Running() != 0 {
			t.Errorf("it was pulled %d times, and %d pulls run on", begun, all.Running())
		}
		if !errors.Is(answers["first"], context.Canceled) || !errors.Is(answers["second"], context.Canceled) {
			t.Errorf("who left got %v and %v", answers["first"], answers["second"])
		}
		if err := answers["third"]; err == nil || err.Error() != "no such image" {
			t.Errorf("the third got %v", err)
		}
	})
}
