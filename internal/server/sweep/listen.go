package sweep

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/server/inquiry"
	"github.com/berth-dev/berth/internal/state"
)

const (
	// placesAtOnce is how many places of a plugin are asked at a time.
	placesAtOnce = 8
	// maxVolumes bounds what is remembered of a plugin while it is compared.
	maxVolumes = 1_000_000
	// singles is how many volumes are asked about one by one in one sweep, of a
	// plugin that lists nothing, and confirmations how many are asked about
	// before they are said to have vanished.
	singles       = 200
	confirmations = 50
	// silence is how many volumes that a plugin does not answer for one after
	// another let the next sweep go on behind them.
	silence = 5
	// maxProblems bounds what a report says.
	maxProblems = 5
)

// listen asks a plugin for all that it has, or nil if it says nothing.
func (s *Sweeper) listen(ctx context.Context, v state.View, p *plugin, r *api.SweepReport) *seen {
	cluster := ""
	if c := v.Cluster(); c != nil {
		cluster = c.ID
	}
	told := &seen{plugin: r.PluginID, volumes: map[string]*told{}}
	instances := slices.Collect(v.Instances(r.PluginID))
	one := fit.NewPlugin(r.PluginID, instances)
	told.nodes = one.Can(api.CapListPublished)
	if !one.Can(api.CapListVolumes) {
		s.listenSingly(ctx, v, p, told, r)
		return told
	}
	places := inquiry.Places(v, r.PluginID, api.CapListVolumes)
	if len(places) == 0 {
		_, err := inquiry.Near(v, r.PluginID, api.CapListVolumes, nil)
		problem(r, err)
		return nil
	}
	var mu sync.Mutex // guards told and r
	slots := make(chan struct{}, placesAtOnce)
	var asking sync.WaitGroup
	for _, place := range places {
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			volumes, err := s.list(ctx, place, cluster)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				told.failed = append(told.failed, place)
				problem(r, err)
				return
			}
			told.asked = append(told.asked, place)
			for id, t := range volumes {
				told.add(id, t)
			}
		})
	}
	asking.Wait()
	if len(told.asked) == 0 {
		return nil
	}
	// Controllers of places whose instances are away cannot be asked at all.
	told.failed = append(told.failed, away(v, r.PluginID, places)...)
	return told
}

// away are the places of instances that would be asked, and are not healthy, or
// on nodes that are not ready.
func away(v state.View, id api.PluginID, places []inquiry.Place) []inquiry.Place {
	asked := map[string]bool{}
	for _, p := range places {
		asked[p.Key()] = true
	}
	var all []inquiry.Place
	for i := range v.Instances(id) {
		p := inquiry.Place{Plugin: id}
		if i.ServesNode() && len(i.Topology) > 0 {
			p.Topology = i.Topology
		}
		if i.ServesController() && !asked[p.Key()] {
			asked[p.Key()] = true
			all = append(all, p)
		}
	}
	return all
}

// list is what one place has.
func (s *Sweeper) list(ctx context.Context, place inquiry.Place, cluster string) (map[string]*told, error) {
	var volumes map[string]*told
	err := s.ask.Volumes(ctx, place, func() { volumes = map[string]*told{} }, func(v api.ExternalVolume) error {
		if len(volumes) >= maxVolumes {
			return api.Errorf(api.CodeInvalid, "the plugin has more than %d volumes", maxVolumes)
		}
		volumes[v.ExternalID] = tell(cluster, &v)
		return nil
	})
	return volumes, err
}

func tell(cluster string, v *api.ExternalVolume) *told {
	t := &told{nodes: v.Nodes, condition: v.Condition, capacity: v.Capacity}
	t.origin, t.name = fit.Origin(cluster, v)
	return t
}

// add takes in what one place says of a volume. What several say is added up.
func (s *seen) add(id string, t *told) {
	old := s.volumes[id]
	if old == nil {
		s.volumes[id] = t
		return
	}
	nodes := append(slices.Clone(old.nodes), t.nodes...)
	slices.Sort(nodes)
	merged := *old
	merged.nodes = slices.Compact(nodes)
	if merged.condition == nil || t.condition != nil && t.condition.Abnormal {
		merged.condition = t.condition
	}
	s.volumes[id] = &merged
}

// listenSingly asks about known volumes one by one, and goes on where it
// stopped the last time. A plugin that does not answer is left alone for now, but
// volumes that it cannot answer for keep none behind them from being asked about.
func (s *Sweeper) listenSingly(ctx context.Context, v state.View, p *plugin, told *seen, r *api.SweepReport) {
	told.single = map[string]bool{}
	p.answered = false
	failures := 0
	// ControllerGetVolume says where a volume is published as ListVolumes does.
	count, last := 0, ""
	for vol := range v.PluginVolumes(r.PluginID) {
		id := vol.Status.ExternalID
		if id <= p.cursor {
			continue
		}
		if count == singles || failures == silence || ctx.Err() != nil {
			break
		}
		count, last = count+1, id
		place, err := inquiry.Near(v, r.PluginID, api.CapGetVolume, vol.Status.AccessibleTopology)
		if err != nil {
			problem(r, err)
			continue
		}
		found, err := s.ask.Volume(ctx, place, id)
		switch {
		case err == nil:
			told.volumes[id] = tell("", &found)
			told.single[id] = true
		case api.CodeOf(err) == api.CodeNotFound:
			told.single[id] = true
		default:
			problem(r, err)
			failures++
			continue
		}
		failures, p.answered = 0, true
	}
	switch {
	case ctx.Err() != nil && count > 0, count == singles, failures == silence:
		p.cursor = last
	case ctx.Err() == nil:
		p.cursor = "" // they were all
	}
}

// confirm asks about volumes that a list does not have, where the plugin can be
// asked for one: a list may be older than what is in it.
func (s *Sweeper) confirm(ctx context.Context, v state.View, told *seen, found differences, r *api.SweepReport) {
	asked := 0
	for _, id := range sortedIDs(found) {
		o := found[id]
		vol := v.Volume(o.Namespace, o.VolumeID)
		if o.Kind != api.FindingVanished || told.single != nil || vol == nil || v.Finding(id) != nil {
			continue
		}
		place, err := inquiry.Near(v, r.PluginID, api.CapGetVolume, vol.Status.AccessibleTopology)
		if err != nil || asked == confirmations {
			return
		}
		asked++
		if _, err := s.ask.Volume(ctx, place, o.ExternalID); api.CodeOf(err) != api.CodeNotFound {
			delete(found, id)
		}
	}
}

func sortedIDs(d differences) []api.FindingID { return slices.Sorted(maps.Keys(d)) }

// problem notes what kept a sweep from being whole.
func problem(r *api.SweepReport, err error) {
	if text := err.Error(); len(r.Problems) < maxProblems && !slices.Contains(r.Problems, text) {
		r.Problems = append(r.Problems, text)
	}
}

// same reports whether two observations say the same. Conditions of drivers
// often name sizes or times, which change each time, and say nothing new.
func same(a, b *api.Observation) bool {
	x, y := *a, *b
	x.Message, y.Message = digitless(x.Message), digitless(y.Message)
	return fit.Same(x, y)
}

func digitless(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r == '.' || r == ':' {
			return -1
		}
		return r
	}, s)
}
