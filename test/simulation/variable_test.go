package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/test/cluster"
)

// TestWhoFollowsAVariableHearsOfItsLastValue: tasks follow a variable that is
// put and deleted, and its neighbours, while leaders die with any of their
// entries. Nobody sees an older value after a newer one, and in the end all have
// what there is.
func TestWhoFollowsAVariableHearsOfItsLastValue(t *testing.T) {
	t.Parallel()
	const seeds = 20
	for seed := range uint64(seeds) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { followVariable(t, seed) })
		})
	}
}

const followed api.VariablePath = "nomad/jobs/db"

func followVariable(t *testing.T, seed uint64) {
	c := cluster.Start(t, cluster.Config{})
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	var followers sync.WaitGroup
	all := make([]*follower, 3)
	for i := range all {
		all[i] = &follower{}
		followers.Go(func() { all[i].run(ctx, c) })
	}
	defer followers.Wait()
	defer cancel()
	w := &writer{Cluster: c, rand: rand.New(rand.NewPCG(seed, seed))}
	w.put(ctx, followed+"/main", 0) // there is a leader
	last := 0
	for value := 1; value <= 20; value++ {
		if w.rand.IntN(3) == 0 && w.died == nil {
			w.died = c.Doom(1 + w.rand.IntN(3))
		}
		switch w.rand.IntN(4) {
		case 0:
			w.until(func() error {
				err := c.Client.DeleteVariable(ctx, api.DefaultNamespace, followed, 0)
				if api.CodeOf(err) == api.CodeNotFound {
					return nil
				}
				return err
			})
			last = 0
		case 1:
			w.put(ctx, followed+"/main", value)
		default:
			w.put(ctx, followed, value)
			last = value
		}
		time.Sleep(time.Duration(w.rand.Int64N(int64(time.Second))))
	}
	w.revive()
	time.Sleep(time.Minute)
	for i, f := range all {
		seen := f.seen()
		if len(seen) == 0 || seen[len(seen)-1] != last {
			t.Errorf("seed %d: follower %d has seen %v, and what there is is %d", seed, i, seen, last)
		}
		values := slices.DeleteFunc(seen, func(v int) bool { return v == 0 })
		if !slices.IsSorted(values) {
			t.Errorf("seed %d: follower %d has seen an older value after a newer one: %v", seed, i, values)
		}
	}
}

// writer writes until it is done, whatever becomes of leaders.
type writer struct {
	*cluster.Cluster
	rand *rand.Rand
	died <-chan struct{}
}

func (w *writer) put(ctx context.Context, path api.VariablePath, value int) {
	w.until(func() error {
		_, err := w.Client.PutVariable(ctx, api.DefaultNamespace, path, api.VariableSpec{Items: map[string]string{"value": strconv.Itoa(value)}}, 0)
		return err
	})
}

func (w *writer) until(write func() error) {
	for write() != nil {
		w.revive()
		time.Sleep(50 * time.Millisecond)
	}
}

// revive starts another server if the last one has died.
func (w *writer) revive() {
	select {
	case <-w.died:
		w.died = nil
		restartServer(w.Cluster)
	default:
	}
}

// follower follows the variable as a node does for a task.
type follower struct {
	mu  sync.Mutex // guards all
	all []int
}

func (f *follower) seen() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.all)
}

func (f *follower) run(ctx context.Context, c *cluster.Cluster) {
	index := uint64(0)
	for ctx.Err() == nil {
		v, at, err := c.Client.Variable(ctx, api.DefaultNamespace, followed, client.Query{Index: index, Wait: 20 * time.Second})
		value := 0
		switch {
		case err == nil:
			_, _ = fmt.Sscan(v.Items["value"], &value) // it is a number, or 0 is wrong
		case api.CodeOf(err) != api.CodeNotFound:
			time.Sleep(100 * time.Millisecond)
			continue
		}
		index = at
		f.mu.Lock()
		if len(f.all) == 0 || f.all[len(f.all)-1] != value {
			f.all = append(f.all, value)
		}
		f.mu.Unlock()
	}
}
