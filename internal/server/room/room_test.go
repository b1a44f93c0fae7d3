package room_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/server/inquiry"
	"github.com/berth-dev/berth/internal/server/room"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a state, and plugins that say how much room they have.
type world struct {
	store *state.Store

	mu      sync.Mutex // guards below
	entries int
	has     map[string]int64 // by plugin and place
	hang    map[api.PluginID]bool
	asked   map[api.PluginID]int
	sets    []string
}

func newWorld(t *testing.T, lines string) *world {
	t.Helper()
	return &world{store: statetest.Load(t, lines), has: map[string]int64{}, hang: map[api.PluginID]bool{}, asked: map[api.PluginID]int{}}
}

func (w *world) View() state.View { return w.store.View() }

func (w *world) Now() time.Time { return time.Now().UTC() }

func (w *world) Propose(_ context.Context, commands ...command.Command) (uint64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	tx := w.store.Begin(w.store.View().Index()+1, time.Now().UTC())
	plan := command.Plan(commands)
	if err := errors.Join(plan.Validate(), plan.Apply(tx)); err != nil {
		tx.Abort()
		return 0, err
	}
	if tx.Writes() > 0 {
		w.entries++
	}
	tx.Commit()
	return 0, nil
}

func (w *world) Capacity(ctx context.Context, p inquiry.Place, q api.CapacityQuestion) (api.AvailableCapacity, error) {
	w.mu.Lock()
	hang := w.hang[p.Plugin]
	n, ok := w.has[string(p.Plugin)+" "+q.Topology["zone"]]
	w.asked[p.Plugin]++
	w.sets = append(w.sets, q.Topology["zone"]+" "+q.Parameters["kind"])
	w.mu.Unlock()
	switch {
	case hang:
		<-ctx.Done()
		return api.AvailableCapacity{}, ctx.Err()
	case !ok:
		return api.AvailableCapacity{}, api.Errorf(api.CodeUnavailable, "nobody knows")
	}
	return api.AvailableCapacity{Available: n}, nil
}

func (w *world) set(place string, n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n < 0 {
		delete(w.has, place)
		return
	}
	w.has[place] = n
}

// writes is how many entries there were since the last time.
func (w *world) writes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.entries
	w.entries = 0
	return n
}

// rooms are what is recorded of a plugin's room, by zone.
func (w *world) rooms(plugin api.PluginID) map[string]int64 {
	all := map[string]int64{}
	for r := range w.View().PluginRooms(plugin) {
		all[r.Topology["zone"]+r.Parameters["kind"]] = r.Available
	}
	return all
}

func run(t *testing.T, w *world) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- room.New(w, w, slog.New(slog.DiscardHandler)).Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

const (
	nodes = `
node {"id":"n1","status":{"state":"ready"}}
node {"id":"n2","status":{"state":"ready"}}
`
	can  = `"healthy":true,"plugin_capabilities":["CONTROLLER_SERVICE","VOLUME_ACCESSIBILITY_CONSTRAINTS"],"controller_capabilities":["CREATE_DELETE_VOLUME","GET_CAPACITY"]`
	disk = `instance {"plugin_id":"disk","node_id":"n1","topology":{"zone":"a"},` + can + `}
instance {"plugin_id":"disk","node_id":"n2","topology":{"zone":"b"},` + can + `}
volume {"id":"pg","status":{"state":"ready"}}
`
)

// TestOnlyWhatMattersIsWritten: what a plugin says again is no entry, nor what is
// nearly the same; what differs is one, and what is not known any more is taken
// out.
func TestOnlyWhatMattersIsWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nodes+disk)
		w.set("disk a", 1000)
		w.set("disk b", 0)
		run(t, w)
		check := func(what string, writes int, want map[string]int64) {
			t.Helper()
			if diff := cmp.Diff(want, w.rooms("disk")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
			if n := w.writes(); n != writes {
				t.Errorf("%s: %d entries, want %d", what, n, writes)
			}
		}
		synctest.Wait()
		check("at once", 1, map[string]int64{"a": 1024, "b": 0})
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		check("the same", 0, map[string]int64{"a": 1024, "b": 0})
		w.set("disk a", 900)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		check("nearly the same", 0, map[string]int64{"a": 1024, "b": 0})
		w.set("disk a", 500)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		check("less", 1, map[string]int64{"a": 512, "b": 0})
		w.set("disk b", 3000)
		w.set("disk a", -1)
		time.Sleep(time.Minute)
		synctest.Wait()
		check("more, and an answer that did not come", 1, map[string]int64{"a": 512, "b": 3072})
		time.Sleep(time.Minute)
		synctest.Wait()
		check("an answer that did not come again", 1, map[string]int64{"b": 3072})
		time.Sleep(31 * time.Minute)
		synctest.Wait()
		check("said anew before it is old", 1, map[string]int64{"b": 3072})
	})
}

// TestWhoMakesVolumesIsAskedOften: every ten seconds, and else every minute.
func TestWhoMakesVolumesIsAskedOften(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		more string
		want int // questions in five minutes
	}{
		"Idle":        {"", 12},
		"Other calls": {`operation {"kind":"publish","volume_id":"pg","node_id":"n1"}`, 12},
		"Making":      {`operation {"kind":"create","volume_id":"new","status":{"state":"assigned","executor":"n1"}}`, 62},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, nodes+disk+c.more)
				w.set("disk a", 1)
				w.set("disk b", 1)
				run(t, w)
				time.Sleep(5*time.Minute + time.Second)
				synctest.Wait()
				w.mu.Lock()
				defer w.mu.Unlock()
				if n := w.asked["disk"]; n < c.want-2 || n > c.want+2 {
					t.Errorf("%d questions, want about %d", n, c.want)
				}
			})
		})
	}
}

// TestPluginThatHangsKeepsNoOther: what it said is taken out when it is silent,
// and others are asked meanwhile.
func TestPluginThatHangsKeepsNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nodes+disk+`
instance {"plugin_id":"slow","node_id":"n1","topology":{"zone":"a"},`+can+`}
volume {"id":"web","spec":{"plugin_id":"slow"},"status":{"state":"ready"}}
room {"plugin_id":"slow","topology":{"zone":"a"},"available":8}
`)
		w.hang["slow"] = true
		w.set("disk a", 4)
		w.set("disk b", 4)
		run(t, w)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff(map[string]int64{"a": 4, "b": 4}, w.rooms("disk")); diff != "" {
			t.Errorf("meanwhile (-want +got):\n%s", diff)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := w.rooms("slow"); len(got) != 0 {
			t.Errorf("of who is silent, %v is believed", got)
		}
	})
}

// TestWhatIsAsked: each zone of ready nodes, for the parameters of volumes and of
// jobs with volumes of their own; no plugin that has no topologies or cannot
// say, and what was known of one that is gone goes.
func TestWhatIsAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nodes+disk+`
node {"id":"down"}
instance {"plugin_id":"disk","node_id":"down","topology":{"zone":"c"},`+can+`}
instance {"plugin_id":"flat","node_id":"n1","healthy":true,"plugin_capabilities":["CONTROLLER_SERVICE"],"controller_capabilities":["GET_CAPACITY"]}
instance {"plugin_id":"mute","node_id":"n1","topology":{"zone":"a"},"healthy":true,"plugin_capabilities":["CONTROLLER_SERVICE","VOLUME_ACCESSIBILITY_CONSTRAINTS"]}
volume {"id":"fast","spec":{"parameters":{"kind":"fast"}},"status":{"state":"ready"}}
volume {"id":"flat","spec":{"plugin_id":"flat"},"status":{"state":"ready"}}
volume {"id":"registered","spec":{"external_id":"x","parameters":{"kind":"other"}},"status":{"state":"ready"}}
job {"id":"job","spec":{"groups":[{"count":1,"volumes":[{"name":"scratch","ephemeral":{"plugin_id":"disk","parameters":{"kind":"scratch"}}}]}]}}
job {"id":"stopped","desired":"absent","spec":{"groups":[{"count":1,"volumes":[{"name":"scratch","ephemeral":{"plugin_id":"disk","parameters":{"kind":"gone"}}}]}]}}
room {"plugin_id":"gone","topology":{"zone":"a"},"available":8}
`)
		w.set("disk a", 4)
		run(t, w)
		synctest.Wait()
		w.mu.Lock()
		slices.Sort(w.sets)
		if diff := cmp.Diff([]string{"a ", "a fast", "a scratch", "b ", "b fast", "b scratch"}, w.sets); diff != "" {
			t.Errorf("asked (-want +got):\n%s", diff)
		}
		w.mu.Unlock()
		if diff := cmp.Diff(map[string]int64{"a": 4, "afast": 4, "ascratch": 4}, w.rooms("")); diff != "" {
			t.Errorf("recorded (-want +got):\n%s", diff)
		}
	})
}

// TestNothingInUse: several plugins can be asked while nothing is in use.
func TestNothingInUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nodes+`
instance {"plugin_id":"a","node_id":"n1","topology":{"zone":"a"},`+can+`}
instance {"plugin_id":"b","node_id":"n1","topology":{"zone":"a"},`+can+`}
instance {"plugin_id":"c","node_id":"n1","topology":{"zone":"a"},`+can+`}
`)
		run(t, w)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := w.rooms(""); len(got) != 0 {
			t.Errorf("recorded: %v", got)
		}
	})
}

// TestMoreThanAreAskedInARound: all are asked in turn, those of one set of
// parameters as those of another, and what was said before stays.
func TestMoreThanAreAskedInARound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const zones = 700
		var lines strings.Builder
		for i := range zones {
			fmt.Fprintf(&lines, "node {\"id\":\"m%03d\",\"status\":{\"state\":\"ready\"}}\n", i)
			fmt.Fprintf(&lines, "instance {\"plugin_id\":\"disk\",\"node_id\":\"m%03d\",\"topology\":{\"zone\":\"z%03d\"},%s}\n", i, i, can)
		}
		w := newWorld(t, lines.String()+`
volume {"id":"pg","status":{"state":"ready"}}
volume {"id":"fast","spec":{"parameters":{"kind":"fast"}},"status":{"state":"ready"}}
`)
		for i := range zones {
			w.set(fmt.Sprintf("disk z%03d", i), 8)
		}
		run(t, w)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		fast := 0
		for set := range w.rooms("disk") {
			if strings.HasSuffix(set, "fast") {
				fast++
			}
		}
		if n := len(w.rooms("disk")); n != 1000 || fast != 500 {
			t.Errorf("after a round %d are known, %d of them of the second set; want 1000 and 500", n, fast)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(w.rooms("disk")); n != 2*zones {
			t.Errorf("after two rounds %d are known, want all %d", n, 2*zones)
		}
	})
}
