package consensus_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/hashicorp/raft"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

// The registers are jobs. Their version counts the writes that changed
// something.

// operation is what a client does to a register.
type operation struct {
	key  api.JobID
	kind string // write, swap, add, read
	// value is what it writes, or adds; version is what a swap rests on.
	value   int
	version uint64
}

// outcome is what it heard. Nothing is known of one that is uncertain.
type outcome struct {
	uncertain bool
	register  cell
}

// cell is a register at one moment; the zero value is before its first write.
type cell struct {
	version uint64
	value   int
}

func (r cell) write(value int) cell {
	if r.version > 0 && r.value == value {
		return r
	}
	return cell{r.version + 1, value}
}

// registers is the model that histories are checked against.
func registers() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byKey := map[api.JobID][]porcupine.Operation{}
			for _, op := range history {
				key := op.Input.(operation).key
				byKey[key] = append(byKey[key], op)
			}
			var parts [][]porcupine.Operation
			for _, part := range byKey {
				parts = append(parts, part)
			}
			return parts
		},
		Init: func() any { return cell{} },
		Step: func(now, input, output any) (bool, any) {
			r, op, out := now.(cell), input.(operation), output.(outcome)
			next, legal := r, true
			switch op.kind {
			case "write":
				next = r.write(op.value)
			case "swap":
				if legal = r.version == op.version; legal {
					next = r.write(op.value)
				}
			case "add":
				// It heard what it found.
				legal = out.uncertain || out.register == r
				next = r.write(r.value + op.value)
			case "read":
				legal = out.register == r
			}
			if !legal {
				// One that is uncertain may come to nothing.
				return out.uncertain, r
			}
			return true, next
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	}
}

// client does random operations on whichever server says that it leads.
type client struct {
	id      int
	cluster *cluster
	rnd     *rand.Rand
	history *history
}

// history is what all clients did.
type history struct {
	mu         sync.Mutex // guards all below
	operations []porcupine.Operation
	outcomes   map[api.Code]int
	values     int
}

// value is one that nobody has written yet.
func (h *history) value() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.values += 1000
	return h.values
}

func (h *history) add(op porcupine.Operation, code api.Code) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.outcomes[code]++
	switch code {
	case "":
	case api.CodeUncertain:
		op.Return = math.MaxInt64
		op.Output = outcome{uncertain: true}
	default:
		return // nothing was done, and nothing is said
	}
	h.operations = append(h.operations, op)
}

func (c *client) run(tb testing.TB, end time.Time) {
	for time.Now().Before(end) {
		time.Sleep(time.Duration(c.rnd.IntN(20)) * time.Millisecond)
		if s := c.pick(); s != nil {
			c.operate(tb, s)
		}
	}
}

// pick is a server that says that it leads, or nil. Two may.
func (c *client) pick() *server {
	var leaders []*server
	for _, s := range c.cluster.servers {
		if s.Ready() && s.View().Cluster() != nil {
			leaders = append(leaders, s)
		}
	}
	if len(leaders) == 0 {
		return nil
	}
	return leaders[c.rnd.IntN(len(leaders))]
}

func (c *client) operate(tb testing.TB, s *server) {
	op := operation{key: api.JobID(fmt.Sprintf("register-%d", c.rnd.IntN(3)))}
	seen := look(s.View(), op.key)
	var do func(context.Context) (cell, error)
	switch c.rnd.IntN(5) {
	case 0:
		op.kind, op.value = "write", c.history.value()
		do = func(ctx context.Context) (cell, error) {
			_, err := s.Propose(ctx, job(op.key, op.value))
			return cell{}, err
		}
	case 1: // what is there already, as far as the client knows
		op.kind, op.value = "write", seen.value
		do = func(ctx context.Context) (cell, error) {
			_, err := s.Propose(ctx, job(op.key, op.value))
			return cell{}, err
		}
	case 2:
		if seen.version == 0 {
			return
		}
		op.kind, op.value, op.version = "swap", c.history.value(), seen.version
		do = func(ctx context.Context) (cell, error) {
			swap := job(op.key, op.value)
			swap.Version = op.version
			_, err := s.Propose(ctx, swap)
			return cell{}, err
		}
	case 3:
		op.kind, op.value = "add", 1+c.rnd.IntN(9)
		do = func(ctx context.Context) (cell, error) { return add(ctx, s, op.key, op.value) }
	case 4:
		op.kind = "read"
		do = func(ctx context.Context) (cell, error) {
			err := s.Barrier(ctx)
			return look(s.View(), op.key), err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	call := time.Now().UnixNano()
	found, err := do(ctx)
	c.history.add(porcupine.Operation{
		ClientId: c.id, Input: op, Call: call, Output: outcome{register: found}, Return: time.Now().UnixNano(),
	}, api.CodeOf(err))
	if code := api.CodeOf(err); code == api.CodeInternal || code == api.CodeInvalid {
		tb.Errorf("%+v: %v", op, err)
	}
}

// add reads and writes in one turn, and answers what it read.
func add(ctx context.Context, s *server, key api.JobID, n int) (cell, error) {
	var found cell
	plan := func(v state.View, _ time.Time) (command.Plan, error) {
		found = look(v, key)
		return command.Plan{job(key, found.value+n)}, nil
	}
	answered := make(chan error, 1)
	if _, err := s.Decide(ctx, plan, func(_ uint64, err error) { answered <- err }); err != nil {
		return cell{}, err
	}
	select {
	case err := <-answered:
		return found, err
	case <-ctx.Done():
		return cell{}, api.Errorf(api.CodeUncertain, "no answer in time")
	}
}

func look(v state.View, key api.JobID) cell {
	j := v.Job(api.DefaultNamespace, key)
	if j == nil {
		return cell{}
	}
	return cell{version: j.Version, value: valueOf(&j.Spec)}
}

// TestLeaderChanges cuts leaders off at random moments while clients write.
// What the clients heard must fit one order of events; all servers must end
// with the same state; and leaderships must not mix in the log.
func TestLeaderChanges(t *testing.T) {
	t.Parallel()
	const clients = 5
	const length = 15 * time.Second

	for seed := range seeds(6) {
		t.Run(fmt.Sprintf("Seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 4))
				c := formed(t, 3)
				c.network.delay(20*time.Millisecond, rand.New(rand.NewPCG(seed, 5)))
				h := &history{outcomes: map[api.Code]int{}}
				end := time.Now().Add(length)
				var wg sync.WaitGroup
				for i := range clients {
					cl := &client{id: i, cluster: c, rnd: rand.New(rand.NewPCG(seed, 100+uint64(i))), history: h}
					wg.Go(func() { cl.run(t, end) })
				}
				for time.Now().Before(end) {
					disturb(c, rnd)
				}
				c.network.heal()
				wg.Wait()
				leader := c.settled()
				replay(t, leader)
				for key := range 3 {
					id := api.JobID(fmt.Sprintf("register-%d", key))
					h.add(porcupine.Operation{
						ClientId: clients, Input: operation{key: id, kind: "read"}, Call: time.Now().UnixNano(),
						Output: outcome{register: look(leader.View(), id)}, Return: time.Now().UnixNano() + 1,
					}, "")
				}
				if h.outcomes[""] < 100 {
					t.Errorf("too little was done to show anything: %v", h.outcomes)
				}
				t.Log("outcomes", h.outcomes, "void entries", voids(t, leader), "operations", len(h.operations))
				check(t, h.operations)
			})
		})
	}
}

// disturb does something to the network for a while.
func disturb(c *cluster, rnd *rand.Rand) {
	time.Sleep(time.Duration(rnd.IntN(1500)) * time.Millisecond)
	switch rnd.IntN(4) {
	case 0, 1: // away with the leader
		for _, s := range c.servers {
			if s.Ready() {
				c.network.isolate(s)
			}
		}
	case 2:
		c.network.isolate(c.servers[rnd.IntN(len(c.servers))])
	case 3: // an error of raft, on a leader that goes on
		c.servers[rnd.IntN(len(c.servers))].Drop()
	}
	time.Sleep(time.Duration(rnd.IntN(4000)) * time.Millisecond)
	c.network.heal()
}

func check(t *testing.T, operations []porcupine.Operation) {
	t.Helper()
	result, info := porcupine.CheckOperationsVerbose(registers(), operations, 0)
	if result == porcupine.Ok {
		return
	}
	t.Errorf("what the clients heard does not fit any order of events: %s", result)
	path := t.TempDir() + "/history.html"
	if err := porcupine.VisualizePath(registers(), info, path); err != nil {
		t.Log(err)
	}
	for _, op := range operations {
		t.Logf("%v", op)
	}
}

// TestUnchangedWriteOnDeposedLeader: a leader whose disk hangs does not notice
// that the others go on without it. It must not say that something is written,
// because it was when it last looked, nor refuse something for that.
func TestUnchangedWriteOnDeposedLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := formed(t, 3)
		old := c.leader()
		if _, err := old.Propose(t.Context(), job("register", 1)); err != nil {
			t.Fatal(err)
		}
		hang := make(chan struct{})
		old.disk.happens(func([]*raft.Log) error { <-hang; return nil }, nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := old.Barrier(t.Context()); err == nil {
				t.Error("a barrier passed on a leader without followers")
			}
		})
		synctest.Wait()
		c.network.isolate(old)
		eventually(t, "another leader", func() bool {
			for _, s := range c.servers {
				if s != old && s.Ready() {
					_, err := s.Propose(t.Context(), job("register", 2))
					return err == nil
				}
			}
			return false
		})
		if !old.Ready() {
			t.Fatal("the old leader has noticed, and this test shows nothing")
		}
		wg.Go(func() {
			if _, err := old.Propose(t.Context(), job("register", 1)); api.CodeOf(err) != api.CodeUnavailable {
				t.Errorf("a write of what was there before was answered with %v", err)
			}
		})
		wg.Go(func() {
			refused := job("register", 3)
			refused.Version = 2 // which it has at the others
			if _, err := old.Propose(t.Context(), refused); api.CodeOf(err) != api.CodeUnavailable {
				t.Errorf("a write that was refused for what was there before was answered with %v", err)
			}
		})
		time.Sleep(time.Second)
		close(hang)
		c.network.heal()
		wg.Wait()
		c.settled()
	})
}
