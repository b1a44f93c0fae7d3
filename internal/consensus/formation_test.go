package consensus_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/consensus"
	"github.com/berth-dev/berth/internal/state"
)

// found is a discovery that answers what a test wants.
type found func(ctx context.Context, self consensus.Member) ([]consensus.Member, error)

// Found implements consensus.Discovery.
func (f found) Found(ctx context.Context, self consensus.Member) ([]consensus.Member, error) {
	return f(ctx, self)
}

func TestFormation(t *testing.T) {
	t.Parallel()

	t.Run("Three", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := formed(t, 3)
			propose(t, c.leader(), volume(1))
			c.settled()
		})
	})

	t.Run("WaitsForAll", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 3)
			c.startServer(c.servers[0])
			c.startServer(c.servers[1])
			time.Sleep(time.Minute)
			for _, s := range c.servers[:2] {
				if id, _ := s.Leader(); id != "" {
					t.Errorf("%s follows %s, and one server of three is missing", s.id, id)
				}
			}
			c.startServer(c.servers[2])
			c.leader()
		})
	})

	// A server that hears of the others late, when two have formed the cluster
	// and asked it for its vote, takes part all the same.
	t.Run("OneIsLate", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 3)
			late := c.servers[2]
			c.discover = found(func(ctx context.Context, self consensus.Member) ([]consensus.Member, error) {
				members, err := c.meeting.Found(ctx, self)
				if self.ID == late.id {
					time.Sleep(time.Minute)
				}
				return members, err
			})
			c.start()
			propose(t, c.leader(), volume(1))
			time.Sleep(2 * time.Minute)
			c.settled()
			select {
			case err := <-late.ended:
				t.Errorf("the late server has ended: %v", err)
				late.cancel = nil
			default:
			}
		})
	})

	t.Run("OneHasALog", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 1)
			c.discover = found(func(_ context.Context, self consensus.Member) ([]consensus.Member, error) {
				return []consensus.Member{self, {ID: "other", Address: "other", Expect: 3, Formed: true}}, nil
			})
			c.start()
			time.Sleep(time.Minute)
			if s := c.servers[0]; s.Ready() {
				t.Error("it formed a cluster of its own")
			}
		})
	})

	t.Run("RestartDoesNotFormAgain", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := formed(t, 3)
			propose(t, c.leader(), volume(1))
			c.settled()
			c.stop()
			c.discover = found(func(_ context.Context, self consensus.Member) ([]consensus.Member, error) {
				t.Errorf("%s has a log, and looks for others", self.ID)
				return nil, nil
			})
			c.start()
			if c.leader().View().Volume(api.DefaultNamespace, volume(1).ID) == nil {
				t.Error("the volume is gone")
			}
			c.settled()
		})
	})

	refused := map[string]struct {
		members []consensus.Member
		says    string
	}{
		"ExpectDiffers": {
			[]consensus.Member{{ID: "server-0", Expect: 3}, {ID: "b", Address: "b", Expect: 3}, {ID: "c", Address: "c", Expect: 5}},
			"server c expects 5 servers, and this one 3",
		},
		"TooMany": {
			[]consensus.Member{{ID: "server-0", Expect: 3}, {ID: "b", Expect: 3}, {ID: "c", Expect: 3}, {ID: "d", Expect: 3}},
			"found 4 servers, and expected 3",
		},
		"OneTwice": {
			[]consensus.Member{{ID: "server-0", Address: "a", Expect: 3}, {ID: "b", Address: "b", Expect: 3}, {ID: "b", Address: "c", Expect: 3}},
			"duplicate",
		},
		"NotAmongThem": {
			[]consensus.Member{{ID: "x", Address: "x", Expect: 3}, {ID: "y", Address: "y", Expect: 3}, {ID: "z", Address: "z", Expect: 3}},
			"not a voter",
		},
	}
	for name, test := range refused {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3)
				c.discover = found(func(context.Context, consensus.Member) ([]consensus.Member, error) { return test.members, nil })
				s := c.servers[0]
				c.startServer(s)
				err := <-s.ended
				s.cancel()
				s.cancel = nil
				if err == nil || !strings.Contains(err.Error(), test.says) {
					t.Errorf("it ended with %v, and should say %q", err, test.says)
				}
			})
		})
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	store, err := state.New()
	if err != nil {
		t.Fatal(err)
	}
	_, err = consensus.New(consensus.Config{}, store, slog.New(slog.DiscardHandler))
	if api.CodeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), "server_id") || !strings.Contains(err.Error(), "bootstrap_expect") {
		t.Errorf("an empty configuration was answered with %v", err)
	}
	_, transport := raft.NewInmemTransport("")
	c, err := consensus.New(consensus.Config{
		ServerID: "one", Expect: 1, Discover: consensus.Alone{}, Transport: transport, Stores: consensus.MemoryStores(),
	}, store, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	// Nothing works before Run, and nothing breaks.
	if _, err := c.Propose(t.Context(), volume(1)); api.CodeOf(err) != api.CodeUnavailable {
		t.Errorf("a write before the start was answered with %v", err)
	}
	if err := c.Restore(t.Context(), strings.NewReader("")); err == nil {
		t.Error("a restore before the start was taken")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Barrier(ctx); err == nil {
		t.Error("a barrier passed before the start")
	}
	if id, addr := c.Leader(); id != "" || addr != "" || c.Ready() {
		t.Errorf("before the start %s leads", id)
	}
	if d := time.Since(c.Now()); d.Abs() > time.Minute {
		t.Errorf("before the start command time is %s away", d)
	}
}
