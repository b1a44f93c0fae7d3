package sweep_test

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
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/server/inquiry"
	"github.com/berth-dev/berth/internal/server/sweep"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a state, and plugins that say what a test lets them.
type world struct {
	t     *testing.T
	store *state.Store

	mu      sync.Mutex // guards below
	entries int
	has     map[string]map[string]*api.ExternalVolume // by plugin and place, then id
	broken  map[string]error                          // by plugin and place
	during  func()                                    // is called in the middle of a list
	asked   []string
	hang    map[api.PluginID]bool
}

// writes is how many entries were written, and questions what was asked.
func (w *world) writes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.entries
}

func (w *world) questions() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked)
}

// breaks makes a place answer an error, nil none.
func (w *world) breaks(place string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken[place] = err
}

func (w *world) hangs(plugin api.PluginID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hang[plugin] = true
}

func key(p inquiry.Place) string { return strings.TrimSuffix(string(p.Plugin)+" "+p.Key(), " ") }

func (w *world) View() state.View { return w.store.View() }

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

func (w *world) Volumes(ctx context.Context, p inquiry.Place, begin func(), each func(api.ExternalVolume) error) error {
	w.mu.Lock()
	w.asked = append(w.asked, key(p))
	hang, err, during := w.hang[p.Plugin], w.broken[key(p)], w.during
	var all []api.ExternalVolume
	for _, v := range w.has[key(p)] {
		all = append(all, *v)
	}
	w.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	begin()
	for _, v := range all {
		if err := each(v); err != nil {
			return err
		}
	}
	if during != nil {
		during()
	}
	return err
}

func (w *world) Volume(_ context.Context, p inquiry.Place, id string) (api.ExternalVolume, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, key(p)+" "+id)
	if err := w.broken[key(p)+" "+id]; err != nil {
		return api.ExternalVolume{}, err
	}
	if v := w.has[key(p)][id]; v != nil {
		return *v, nil
	}
	return api.ExternalVolume{}, api.Errorf(api.CodeNotFound, "there is no %s", id)
}

// put lets a place have volumes.
func (w *world) put(place string, volumes ...api.ExternalVolume) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.has[place] == nil {
		w.has[place] = map[string]*api.ExternalVolume{}
	}
	for _, v := range volumes {
		w.has[place][v.ExternalID] = &v
	}
}

func (w *world) drop(place, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.has[place], id)
}

// findings are what is recorded, a line each.
func (w *world) findings() (lines []string) {
	for _, f := range state.Findings().From(w.store.View(), nil) {
		line := fmt.Sprintf("%s %s", f.Kind, f.ExternalID)
		if f.ExternalNodeID != "" {
			line += " " + f.ExternalNodeID
		}
		if f.VolumeID != "" {
			line += " = " + string(f.VolumeID)
		}
		lines = append(lines, line+": "+f.Message)
	}
	slices.Sort(lines)
	return lines
}

func (w *world) want(what string, want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.findings()); diff != "" {
		w.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

const cloud = `
cluster {"id":"CLUSTER"}
node {"id":"n1","status":{"state":"ready"}}
instance {"plugin_id":"ebs","node_id":"n1","type":"monolith","healthy":true,"external_node_id":"i-1","plugin_capabilities":["CONTROLLER_SERVICE"],"controller_capabilities":["LIST_VOLUMES","LIST_VOLUMES_PUBLISHED_NODES"]}
volume {"id":"pg","spec":{"plugin_id":"ebs"},"status":{"state":"ready","external_id":"vol-1"}}
publication {"volume_id":"pg","node_id":"n1","plugin_id":"ebs","status":{"outcome":"published","external_node_id":"i-1"}}
`

func external(id string, nodes ...string) api.ExternalVolume {
	return api.ExternalVolume{ExternalID: id, Capacity: 1 << 30, Nodes: nodes}
}

// bubble runs a sweeper of that world, whose plugins have nothing yet.
func bubble(t *testing.T, text string, f func(w *world, s *sweep.Sweeper)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, store: statetest.Load(t, text), has: map[string]map[string]*api.ExternalVolume{}, broken: map[string]error{}, hang: map[api.PluginID]bool{}}
		s := sweep.New(sweep.Config{}, w, w, nil, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		synctest.Wait()
		f(w, s)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// after lets sweeps come and go.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func ours() string { return fit.CSIName(fit.VolumeUID("CLUSTER", strings.Repeat("ab", 16))) }

// TestLeakedDisksAreFound: peers leave them for the bill to show.
func TestLeakedDisksAreFound(t *testing.T) {
	t.Parallel()
	bubble(t, cloud+`
operation {"id":"delete/default/old@1","kind":"delete","volume_id":"old","plugin_id":"ebs","request":{"delete":{"external_id":"vol-9"}},"status":{"state":"succeeded","code":"OK"}}
volume {"id":"new","uid":"`+strings.TrimPrefix(fit.CSIName(fit.VolumeUID("CLUSTER", strings.Repeat("cd", 16))), "berth-")+`","spec":{"plugin_id":"ebs"}}
`, func(w *world, s *sweep.Sweeper) {
		being := external("disk/" + fit.CSIName(fit.VolumeUID("CLUSTER", strings.Repeat("cd", 16))))
		theirs := external("disk/" + fit.CSIName(fit.VolumeUID("ANOTHER", strings.Repeat("ab", 16))))
		w.put("ebs", external("vol-1", "i-1"), external("disk/"+ours(), "i-7"), external("vol-9"), external("somebody-elses"), being, theirs)
		after(20 * time.Minute)
		w.want("what this cluster left", "leak disk/"+ours()+": it bears the name "+ours()+", which this cluster gave",
			"leak vol-9: operation delete/default/old@1 was to delete it, and ended with OK")
		if r := s.Reports(); len(r) != 1 || r[0].Volumes != 6 || r[0].Unknown != 5 || r[0].Findings != 2 {
			t.Errorf("the report: %+v", r)
		}
		w.drop("ebs", "vol-9")
		after(20 * time.Minute)
		w.want("after one was deleted by hand", "leak disk/"+ours()+": it bears the name "+ours()+", which this cluster gave")
	})
}

// TestAnUnchangedSweepWritesNothing: only differences enter the log.
func TestAnUnchangedSweepWritesNothing(t *testing.T) {
	t.Parallel()
	bubble(t, cloud, func(w *world, _ *sweep.Sweeper) {
		sick := external("vol-1", "i-1")
		sick.Condition = &api.VolumeCondition{Abnormal: true, Message: "97.1% of inodes are used at 10:00"}
		w.put("ebs", sick, external("disk/"+ours()))
		after(20 * time.Minute)
		if w.writes() != 1 {
			t.Errorf("two findings took %d entries", w.writes())
		}
		asked := len(w.questions())
		for i := range 10 {
			sick.Condition = &api.VolumeCondition{Abnormal: true, Message: fmt.Sprintf("97.%d%% of inodes are used at 11:%d", i, i)}
			w.put("ebs", sick)
			after(5 * time.Minute)
		}
		if w.writes() != 1 || len(w.questions())-asked < 10 {
			t.Errorf("after %d sweeps more, there are %d entries", len(w.questions())-asked, w.writes())
		}
	})
}

// TestADetachmentByHandIsFound, and so is an attachment.
func TestADetachmentByHandIsFound(t *testing.T) {
	t.Parallel()
	bubble(t, cloud, func(w *world, _ *sweep.Sweeper) {
		w.put("ebs", external("vol-1", "i-2"))
		after(20 * time.Minute)
		w.want("moved by hand",
			"attached vol-1 i-2 = pg: the provider has it attached to a node where nothing uses it: it was attached by hand, or a detachment was lost",
			"detached vol-1 i-1 = pg: the provider does not have it attached to the node, where it is in use: it was detached by hand, or its attachment was lost")
		w.put("ebs", external("vol-1", "i-1"))
		after(20 * time.Minute)
		w.want("moved back")
	})
}

func TestAVolumeThatVanishedIsFound(t *testing.T) {
	t.Parallel()
	bubble(t, cloud, func(w *world, _ *sweep.Sweeper) {
		after(20 * time.Minute)
		w.want("the plugin has nothing", "vanished vol-1 = pg: the plugin has it no more: it was deleted at the provider, or is not in reach of any of its controllers")
		w.put("ebs", external("vol-1", "i-1"))
		after(20 * time.Minute)
		w.want("it is back")
	})
}

func TestAnAbnormalConditionIsFoundAndCleared(t *testing.T) {
	t.Parallel()
	bubble(t, cloud, func(w *world, _ *sweep.Sweeper) {
		v := external("vol-1", "i-1")
		v.Condition = &api.VolumeCondition{Abnormal: true, Message: "it smokes"}
		w.put("ebs", v)
		after(20 * time.Minute)
		w.want("abnormal", "abnormal vol-1 = pg: the plugin says: it smokes")
		v.Condition = &api.VolumeCondition{Abnormal: true, Message: "it burns"}
		w.put("ebs", v)
		after(20 * time.Minute)
		w.want("worse", "abnormal vol-1 = pg: the plugin says: it burns")
		v.Condition = &api.VolumeCondition{}
		w.put("ebs", v)
		after(20 * time.Minute)
		w.want("well")
	})
}

// TestWhatIsOnItsWayIsNoFinding: what differs once differs because something
// happened between the list and the state.
func TestWhatIsOnItsWayIsNoFinding(t *testing.T) {
	t.Parallel()
	bubble(t, cloud, func(w *world, s *sweep.Sweeper) {
		w.put("ebs", external("vol-1"))
		if r, err := s.Sweep(context.Background(), "ebs"); err != nil || r[0].Waiting != 1 {
			t.Fatalf("the first look: %+v, %v", r, err)
		}
		after(30 * time.Second)
		if r, err := s.Sweep(context.Background(), "ebs"); err != nil || r[0].Waiting != 1 || r[0].Findings != 0 {
			t.Fatalf("a look too soon: %+v, %v", r, err)
		}
		w.put("ebs", external("vol-1", "i-1"))
		after(20 * time.Minute)
		w.want("once is nothing")
		if w.writes() > 0 {
			t.Errorf("%d entries", w.writes())
		}
	})
	// The volume is published while the list is made, and again each time.
	bubble(t, cloud, func(w *world, _ *sweep.Sweeper) {
		change := func(change func(*api.Publication)) {
			tx := w.store.Begin(w.store.View().Index()+1, time.Now().UTC())
			next := *w.store.View().Publication("default", "pg", "n1")
			change(&next)
			tx.PutPublication(&next)
			tx.Commit()
		}
		change(func(p *api.Publication) { p.Status.Outcome = api.OutcomeDetached })
		w.put("ebs", external("vol-1"))
		w.mu.Lock()
		w.during = func() { change(func(p *api.Publication) { p.Status.Outcome = api.OutcomePublished }) }
		w.mu.Unlock()
		for range 10 {
			after(4 * time.Minute)
			change(func(p *api.Publication) { p.Status.Outcome = api.OutcomeDetached })
		}
		w.want("published meanwhile")
	})
	// Operations that are open explain everything.
	bubble(t, strings.ReplaceAll(cloud, `"outcome":"published"`, `"operation":"unpublish/default/pg/n1@1","outcome":"published"`)+`
volume {"id":"grows","spec":{"plugin_id":"ebs"},"status":{"state":"ready","external_id":"vol-2","operation":"expand/default/grows@1"}}
volume {"id":"goes","desired":"absent","spec":{"plugin_id":"ebs"},"status":{"state":"deleting","external_id":"vol-3"}}
`, func(w *world, _ *sweep.Sweeper) {
		w.put("ebs", external("vol-1"))
		after(time.Hour)
		w.want("in change")
	})
}

const local = `
cluster {"id":"CLUSTER"}
node {"id":"n1","status":{"state":"ready"}}
node {"id":"n2","status":{"state":"ready"}}
node {"id":"n3","status":{"state":"down"}}
instance {"plugin_id":"local","node_id":"n1","type":"monolith","healthy":true,"plugin_capabilities":["CONTROLLER_SERVICE"],"controller_capabilities":["LIST_VOLUMES"],"topology":{"node":"n1"}}
instance {"plugin_id":"local","node_id":"n2","type":"monolith","healthy":true,"plugin_capabilities":["CONTROLLER_SERVICE"],"controller_capabilities":["LIST_VOLUMES"],"topology":{"node":"n2"}}
instance {"plugin_id":"local","node_id":"n3","type":"monolith","healthy":true,"plugin_capabilities":["CONTROLLER_SERVICE"],"controller_capabilities":["LIST_VOLUMES"],"topology":{"node":"n3"}}
volume {"id":"a","spec":{"plugin_id":"local"},"status":{"state":"ready","external_id":"a@n1","accessible_topology":[{"node":"n1"}]}}
volume {"id":"b","spec":{"plugin_id":"local"},"status":{"state":"ready","external_id":"b@n2","accessible_topology":[{"node":"n2"}]}}
volume {"id":"c","spec":{"plugin_id":"local"},"status":{"state":"ready","external_id":"c@n3","accessible_topology":[{"node":"n3"}]}}
`

// TestDisksInMachinesAreAskedOfTheirMachines: one machine's controller knows
// nothing of another's, and what a machine that is away has is not lost.
func TestDisksInMachinesAreAskedOfTheirMachines(t *testing.T) {
	t.Parallel()
	bubble(t, local, func(w *world, _ *sweep.Sweeper) {
		w.put(`local "node"="n1"`, external("a@n1"))
		w.put(`local "node"="n2"`, external("b@n2"))
		after(time.Hour)
		w.want("all is there")
		w.drop(`local "node"="n2"`, "b@n2")
		after(time.Hour)
		w.want("one is lost", "vanished b@n2 = b: the plugin has it no more: it was deleted at the provider, or is not in reach of any of its controllers")
		w.breaks(`local "node"="n2"`, api.Errorf(api.CodeUnavailable, "node n2 is not connected"))
		after(4 * time.Hour)
		w.want("and stays lost while nobody can be asked", "vanished b@n2 = b: the plugin has it no more: it was deleted at the provider, or is not in reach of any of its controllers")
	})
}

// TestAListThatBreaksOffIsNoList: half of a list is not the half of the
// volumes.
func TestAListThatBreaksOffIsNoList(t *testing.T) {
	t.Parallel()
	bubble(t, cloud, func(w *world, s *sweep.Sweeper) {
		w.breaks("ebs", api.Errorf(api.CodeUnavailable, "the agent went away in the middle"))
		after(24 * time.Hour)
		w.want("nothing is known")
		if n := len(w.questions()); n < 24 || n > 40 {
			t.Errorf("within a day it was asked %d times, want it to back off to once an hour", n)
		}
		if r := s.Reports(); len(r) != 1 || len(r[0].Problems) != 1 || r[0].Problems[0] != "the agent went away in the middle" {
			t.Errorf("the report: %+v", r)
		}
	})
}

// TestAPluginThatHangsDelaysNoOther.
func TestAPluginThatHangsDelaysNoOther(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString(cloud)
	for i := range 3 {
		fmt.Fprintf(&text, `instance {"plugin_id":"tape-%d","node_id":"n1","type":"monolith","healthy":true,"plugin_capabilities":["CONTROLLER_SERVICE"],"controller_capabilities":["LIST_VOLUMES"]}`+"\n", i)
	}
	bubble(t, text.String(), func(w *world, _ *sweep.Sweeper) {
		for i := range 3 {
			w.hangs(api.PluginID(fmt.Sprintf("tape-%d", i)))
		}
		after(20 * time.Minute)
		w.want("the one that answers", "vanished vol-1 = pg: the plugin has it no more: it was deleted at the provider, or is not in reach of any of its controllers")
	})
}

// TestAPluginThatListsNothingIsAskedOneByOne: it cannot tell of leaks, and can
// of what is lost.
func TestAPluginThatListsNothingIsAskedOneByOne(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString(strings.ReplaceAll(cloud, `"LIST_VOLUMES","LIST_VOLUMES_PUBLISHED_NODES"`, `"GET_VOLUME"`))
	for i := range 450 {
		fmt.Fprintf(&text, `volume {"id":"v%03d","spec":{"plugin_id":"ebs"},"status":{"state":"ready","external_id":"x-%03d"}}`+"\n", i, i)
	}
	bubble(t, text.String(), func(w *world, s *sweep.Sweeper) {
		w.put("ebs", external("vol-1"))
		for i := range 450 {
			if i != 440 {
				w.put("ebs", external(fmt.Sprintf("x-%03d", i)))
			}
		}
		if r, err := s.Sweep(context.Background(), ""); err != nil || len(w.questions()) != 200 || r[0].Volumes != 200 {
			t.Errorf("one sweep asks about %d: %+v, %v", len(w.questions()), r, err)
		}
		after(2 * time.Hour)
		w.want("the one that is lost", "vanished x-440 = v440: the plugin has it no more: it was deleted at the provider, or is not in reach of any of its controllers")
	})
}

// TestVolumesThatCannotBeToldOfHideNoOther, however many there are in a row.
func TestVolumesThatCannotBeToldOfHideNoOther(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString(strings.ReplaceAll(cloud, `"LIST_VOLUMES","LIST_VOLUMES_PUBLISHED_NODES"`, `"GET_VOLUME"`))
	for i := range 50 {
		fmt.Fprintf(&text, `volume {"id":"v%03d","spec":{"plugin_id":"ebs"},"status":{"state":"ready","external_id":"x-%03d"}}`+"\n", i, i)
	}
	bubble(t, text.String(), func(w *world, _ *sweep.Sweeper) {
		w.put("ebs", external("vol-1"))
		for i := range 50 {
			id := fmt.Sprintf("x-%03d", i)
			switch {
			case i < 12:
				w.breaks("ebs "+id, api.Errorf(api.CodeUnavailable, "%s does not answer", id))
			case i != 40:
				w.put("ebs", external(id))
			}
		}
		after(3 * time.Hour)
		w.want("the one that is lost", "vanished x-040 = v040: the plugin has it no more: it was deleted at the provider, or is not in reach of any of its controllers")
	})
}

// TestAListThatIsOldIsNotBelieved where the plugin can be asked for one.
func TestAListThatIsOldIsNotBelieved(t *testing.T) {
	t.Parallel()
	bubble(t, strings.ReplaceAll(cloud, `"LIST_VOLUMES",`, `"LIST_VOLUMES","GET_VOLUME",`), func(w *world, _ *sweep.Sweeper) {
		w.breaks("ebs vol-1", api.Errorf(api.CodeUnavailable, "it does not say"))
		after(time.Hour)
		w.want("the plugin does not say of the one")
		w.breaks("ebs vol-1", nil)
		after(time.Hour)
		w.want("it says that it has not", "vanished vol-1 = pg: the plugin has it no more: it was deleted at the provider, or is not in reach of any of its controllers")
	})
}

// TestAProviderThatLostEverything is one thing that is wrong, and no reason to
// fill the state.
func TestAProviderThatLostEverything(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString(cloud)
	for i := range 1500 {
		fmt.Fprintf(&text, `volume {"id":"v%04d","spec":{"plugin_id":"ebs"},"status":{"state":"ready","external_id":"x-%04d"}}`+"\n", i, i)
	}
	bubble(t, text.String(), func(w *world, s *sweep.Sweeper) {
		after(30 * time.Minute)
		r := s.Reports()
		if n := len(w.findings()); n != 1000 || len(r) != 1 || r[0].Findings != 1000 || len(r[0].Problems) != 1 {
			t.Errorf("%d findings, %+v", n, r)
		}
		if w.writes() != 5 {
			t.Errorf("they took %d entries", w.writes())
		}
	})
}

// TestARetainedVolumeIsNoLeak: its user said that it stays.
func TestARetainedVolumeIsNoLeak(t *testing.T) {
	t.Parallel()
	name := ours()
	bubble(t, cloud+`finding {"kind":"retained","plugin_id":"ebs","external_id":"disk/`+name+`","namespace":"default","volume_id":"old","message":"it was kept"}`, func(w *world, _ *sweep.Sweeper) {
		w.put("ebs", external("vol-1", "i-1"), external("disk/"+name))
		after(time.Hour)
		w.want("kept", "retained disk/"+name+" = old: it was kept")
		w.drop("ebs", "disk/"+name)
		after(time.Hour)
		w.want("deleted by hand")
	})
}

// TestARestoredStateIsNotCompared before an operator believes in it.
func TestARestoredStateIsNotCompared(t *testing.T) {
	t.Parallel()
	bubble(t, strings.ReplaceAll(cloud, `{"id":"CLUSTER"}`, `{"id":"CLUSTER","generation":{"number":2,"recovering":true}}`), func(w *world, s *sweep.Sweeper) {
		after(time.Hour)
		w.want("recovering")
		if r := s.Reports(); len(r) != 1 || len(r[0].Problems) != 1 || len(w.questions()) > 0 {
			t.Errorf("asked %v: %+v", w.questions(), r)
		}
	})
}

func TestSweepOnRequest(t *testing.T) {
	t.Parallel()
	bubble(t, cloud+`instance {"plugin_id":"nfs","node_id":"n1","type":"monolith","healthy":true,"plugin_capabilities":["CONTROLLER_SERVICE"]}`, func(w *world, s *sweep.Sweeper) {
		if _, err := s.Sweep(context.Background(), "nfs"); err == nil || err.Error() != "plugin nfs cannot be asked what it has: no controller instance of it has the capability LIST_VOLUMES or GET_VOLUME" {
			t.Errorf("a plugin that lists nothing: %v", err)
		}
		w.hangs("ebs")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if r, err := s.Sweep(ctx, "ebs"); err != nil || len(r[0].Problems) != 1 {
			t.Errorf("one that hangs: %+v, %v", r, err)
		}
	})
	s := sweep.New(sweep.Config{}, &world{t: t, store: statetest.Load(t, cloud)}, nil, nil, slog.New(slog.DiscardHandler))
	if _, err := s.Sweep(t.Context(), "ebs"); api.CodeOf(err) != api.CodeUnavailable {
		t.Errorf("one that does not run: %v", err)
	}
}
