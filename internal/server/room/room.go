// Package room asks plugins how much room they have, in each topology and for
// the parameters that are in use, while this server leads, and records what
// matters of it.
//
// It decides nothing. Invariants: what is answered with an error twice, or is old,
// is taken out; what a plugin says again, about the same, writes nothing; a plugin
// that hangs keeps no other from being asked.
package room

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/server/inquiry"
	"github.com/berth-dev/berth/internal/state"
)

// Log is what is needed of the consensus.
type Log interface {
	View() state.View
	// Now is the time that a command would be given.
	Now() time.Time
	Propose(ctx context.Context, commands ...command.Command) (uint64, error)
}

// Asker asks plugins.
type Asker interface {
	Capacity(ctx context.Context, p inquiry.Place, c api.CapacityQuestion) (api.AvailableCapacity, error)
}

const (
	// tick is how often it is looked which plugins are due. One that makes volumes
	// is asked each time.
	tick = 10 * time.Second
	// interval is the time between two rounds of a plugin that makes none.
	interval = time.Minute
	// limit is for how long a plugin is asked. What it has not answered by then is
	// not known.
	limit = time.Minute
	// parallel is how many questions a plugin gets at a time.
	parallel = 8
	// maxQuestions bounds what a plugin is asked in a round. The next begins where
	// it ended.
	maxQuestions = 1000
	// perCommand is how many rooms are recorded in one step.
	perCommand = 200
)

// Surveyor asks. Run is its only goroutine's.
type Surveyor struct {
	log Log
	ask Asker
	out *slog.Logger
}

// New returns a surveyor. It starts nothing.
func New(log Log, ask Asker, out *slog.Logger) *Surveyor { return &Surveyor{log, ask, out} }

// Run asks plugins when they are due, until ctx ends.
func (s *Surveyor) Run(ctx context.Context) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	next := map[api.PluginID]times{}
	busy := map[api.PluginID]bool{}
	rounds := map[api.PluginID]*round{} // each is its plugin's goroutine's while that is busy
	done := make(chan api.PluginID)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		v, now := s.log.View(), time.Now()
		var wanted parameters // filled once, and only read by who asks
		for _, id := range plugins(v) {
			if busy[id] || now.Before(next[id].soon) || now.Before(next[id].late) && !making(v, id, now) || v.Recovering() {
				continue
			}
			if wanted == nil {
				wanted = inUse(v)
			}
			sets := wanted[id]
			if rounds[id] == nil {
				rounds[id] = &round{failed: map[api.RoomID]bool{}}
			}
			r := rounds[id]
			busy[id], next[id] = true, times{now.Add(tick), now.Add(interval)}
			asking.Go(func() {
				s.one(ctx, id, r, questions(v, id, sets))
				select {
				case done <- id:
				case <-ctx.Done():
				}
			})
		}
		select {
		case <-ticker.C:
		case id := <-done:
			delete(busy, id)
		case <-ctx.Done():
			return nil
		}
	}
}

// round is what is remembered of the last round of a plugin.
type round struct {
	// next is the number of the question with which the next begins.
	next int
	// failed are the rooms of which its last answer was an error.
	failed map[api.RoomID]bool
}

// times are when a plugin is asked next: if it makes volumes, and if it does not.
type times struct{ soon, late time.Time }

// plugins are those that can be asked, and those that were.
func plugins(v state.View) []api.PluginID {
	all := map[api.PluginID]bool{}
	for i := range v.Instances("") {
		if i.ServesController() && i.Can(api.CapGetCapacity) && slices.Contains(i.PluginCapabilities, api.CapAccessibility) {
			all[i.PluginID] = true
		}
	}
	for r := range v.PluginRooms("") {
		all[r.PluginID] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// making reports whether volumes of a plugin are being made.
func making(v state.View, id api.PluginID, now time.Time) bool {
	for op := range v.Calls(id) {
		if op.Kind == api.OperationCreate {
			return true
		}
	}
	for op := range v.Queue(id, now) {
		if op.Kind == api.OperationCreate {
			return true
		}
	}
	return false
}

// parameters are the sets of parameters in use, by plugin and by the room that
// there would be for them nowhere.
type parameters map[api.PluginID]map[api.RoomID]map[string]string

func (p parameters) add(plugin api.PluginID, set map[string]string) {
	if p[plugin] == nil {
		p[plugin] = map[api.RoomID]map[string]string{}
	}
	p[plugin][api.NewRoomID(nil, set)] = set
}

// inUse are the parameters of volumes that are there or would be made by jobs.
func inUse(v state.View) parameters {
	p := parameters{}
	for vol := range v.Volumes("") {
		if !vol.Spec.Registered() && vol.Owner == "" {
			p.add(vol.Spec.PluginID, vol.Spec.Parameters)
		}
	}
	for j := range v.Jobs("") {
		if j.Desired != api.Present {
			continue
		}
		for i := range j.Spec.Groups {
			for _, r := range j.Spec.Groups[i].Attached() {
				if r.Ephemeral != nil {
					p.add(r.Ephemeral.PluginID, r.Ephemeral.Parameters)
				}
			}
		}
	}
	return p
}

// questions are what to ask a plugin: each topology for each set of parameters,
// so that a part of them has as much of each set.
func questions(v state.View, id api.PluginID, sets map[api.RoomID]map[string]string) (all []api.CapacityQuestion) {
	plugin := fit.NewPlugin(id, slices.Collect(v.Instances(id)))
	topologies := plugin.Topologies(func(n api.NodeID) bool {
		node := v.Node(n)
		return node != nil && node.Takes()
	})
	sorted := slices.Sorted(maps.Keys(sets))
	for _, t := range topologies {
		for _, set := range sorted {
			all = append(all, api.CapacityQuestion{Topology: t, Parameters: sets[set]})
		}
	}
	return all
}

// one asks a plugin, and records what is not known already. What was not asked in
// this round, as there is too much, is asked in one of the next, and stays until
// it is old; as does what was answered with an error once.
func (s *Surveyor) one(ctx context.Context, id api.PluginID, last *round, all []api.CapacityQuestion) {
	inUse := make(map[api.RoomID]bool, len(all))
	for _, q := range all {
		inUse[api.NewRoomID(q.Topology, q.Parameters)] = true
	}
	if len(all) > 0 {
		first := last.next % len(all)
		all = slices.Concat(all[first:], all[:first])
		last.next = first
	}
	asked, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answers, failed, problem := s.answers(asked, id, all[:min(len(all), maxQuestions)])
	if ctx.Err() != nil {
		return // nothing was learned by that this server does not lead any more
	}
	if problem != nil {
		s.out.Debug("room is not known everywhere", "plugin", id, "error", problem)
	}
	last.next += len(answers) + len(failed)
	twice := map[api.RoomID]bool{}
	for room := range failed {
		twice[room], last.failed[room] = last.failed[room], true
	}
	maps.DeleteFunc(last.failed, func(room api.RoomID, _ bool) bool {
		_, known := answers[room]
		return known || !inUse[room]
	})
	v, now := s.log.View(), s.log.Now()
	c := &command.RecordRooms{PluginID: id}
	record := func() bool {
		if len(c.Put)+len(c.Clear) == 0 {
			return true
		}
		if _, err := s.log.Propose(ctx, c); err != nil {
			s.out.Debug("room was not recorded", "plugin", id, "error", err)
			return false
		}
		c = &command.RecordRooms{PluginID: id}
		return true
	}
	for r := range v.PluginRooms(id) {
		f, known := answers[r.ID]
		switch {
		case !known && (!inUse[r.ID] || twice[r.ID] || !now.Before(fit.RoomUntil(r))):
			c.Clear = append(c.Clear, r.ID)
		case known && fit.SameRoom(r, f, now):
			delete(answers, r.ID)
		}
		if len(c.Clear) == perCommand && !record() {
			return
		}
	}
	for _, room := range slices.Sorted(maps.Keys(answers)) {
		c.Put = append(c.Put, fit.RoomFact(answers[room]))
		if len(c.Put)+len(c.Clear) >= perCommand && !record() {
			return
		}
	}
	record()
}

// answers asks all questions, some at a time, and answers what was answered,
// what was answered with an error, and one of these. What could not be asked in
// time is neither.
func (s *Surveyor) answers(ctx context.Context, id api.PluginID, all []api.CapacityQuestion) (map[api.RoomID]api.RoomFact, map[api.RoomID]bool, error) {
	places := newPlaces(s.log.View(), id)
	var mu sync.Mutex // guards below
	answers, failed, problem := map[api.RoomID]api.RoomFact{}, map[api.RoomID]bool{}, error(nil)
	var asking sync.WaitGroup
	next := make(chan api.CapacityQuestion)
	for range min(parallel, len(all)) {
		asking.Go(func() {
			for q := range next {
				if ctx.Err() != nil {
					continue
				}
				room, err := s.capacity(ctx, places, q)
				mu.Lock()
				if err != nil {
					problem = cmp.Or(problem, err)
					failed[api.NewRoomID(q.Topology, q.Parameters)] = true
				} else {
					answers[api.NewRoomID(q.Topology, q.Parameters)] = api.RoomFact{Topology: q.Topology, Parameters: q.Parameters, AvailableCapacity: room}
				}
				mu.Unlock()
			}
		})
	}
	for _, q := range all {
		next <- q
	}
	close(next)
	asking.Wait()
	return answers, failed, problem
}

// capacity asks a controller that is near.
func (s *Surveyor) capacity(ctx context.Context, all places, q api.CapacityQuestion) (api.AvailableCapacity, error) {
	place, ok := all.near(q.Topology)
	if !ok {
		return api.AvailableCapacity{}, api.Errorf(api.CodeUnavailable, "no controller instance that is near is healthy")
	}
	room, err := s.ask.Capacity(ctx, place, q)
	if err == nil && (room.Available < 0 || room.Maximum < 0 || room.Minimum < 0) {
		err = api.Errorf(api.CodeUnavailable, "plugin %s says that it has a negative number of bytes", place.Plugin)
	}
	return room, err
}

// places are where a plugin can be asked, and those that are machines or zones
// by their keys.
type places struct {
	all   []inquiry.Place
	byKey map[string]inquiry.Place
}

func newPlaces(v state.View, id api.PluginID) places {
	p := places{inquiry.Places(v, id, api.CapGetCapacity), map[string]inquiry.Place{}}
	for _, at := range p.all {
		p.byKey[at.Key()] = at
	}
	return p
}

// near is a place that speaks for a topology.
func (p places) near(t api.Topology) (inquiry.Place, bool) {
	if at, ok := p.byKey[inquiry.Place{Topology: t}.Key()]; ok {
		return at, true
	}
	i := slices.IndexFunc(p.all, func(at inquiry.Place) bool { return at.Sees([]api.Topology{t}) })
	if i < 0 {
		return inquiry.Place{}, false
	}
	return p.all[i], true
}
