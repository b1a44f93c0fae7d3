// Package sweep compares what plugins say that they have with what the state
// knows: volumes, attachments and conditions, plugin by plugin, while this
// server leads. What differs twice, some time apart, is a finding.
//
// It never deletes, detaches or changes anything but findings. Invariants: only
// differences reach the log, so a sweep that finds what it found before writes
// nothing; what is being changed is no difference; a plugin that cannot be asked
// or does not answer delays no other, and nothing is said to be gone for it.
package sweep

import (
	"cmp"
	"context"
	"hash/fnv"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/server/inquiry"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/telemetry"
)

// Log is what the sweep needs of the consensus.
type Log interface {
	View() state.View
	Propose(ctx context.Context, commands ...command.Command) (uint64, error)
}

// Asker asks plugins.
type Asker interface {
	Volumes(ctx context.Context, p inquiry.Place, begin func(), each func(api.ExternalVolume) error) error
	Volume(ctx context.Context, p inquiry.Place, id string) (api.ExternalVolume, error)
}

// Config is how often plugins are asked.
type Config struct {
	// Interval is the time between two sweeps of a plugin; zero is 5 minutes.
	Interval time.Duration
	// Grace is how long a difference must last; zero is one minute. What was
	// seen once is looked at again after it.
	Grace time.Duration
}

const (
	defaultInterval = 5 * time.Minute
	defaultGrace    = time.Minute
	// parallel is how many plugins are swept at a time.
	parallel = 4
	// maxBackoff is the longest time between sweeps of a plugin that fails.
	maxBackoff = time.Hour
	// maxFindings is how many findings of a plugin are recorded. Where a
	// thousand volumes differ, it is one thing that is wrong.
	maxFindings = 1000
	// perCommand is how many findings are recorded in one step.
	perCommand = 200
)

// Sweeper sweeps. Its Run must be running for Sweep to answer.
type Sweeper struct {
	cfg  Config
	log  Log
	ask  Asker
	out  *slog.Logger
	took *telemetry.Durations

	mu       sync.Mutex // guards below
	interval time.Duration
	plugins  map[api.PluginID]*plugin
	running  bool
	changed  chan struct{} // capacity 1
}

// plugin is what is remembered of one plugin. It is lost with the leadership: a
// difference must then be seen twice again.
type plugin struct {
	turn     chan struct{} // capacity 1: who has put something in sweeps it
	first    map[api.FindingID]once
	failures int
	next     time.Time
	cursor   string // where single volumes are asked on
	answered bool   // the last sweep had an answer for a single volume
	report   api.SweepReport
}

// once is what was seen, and is no finding yet.
type once struct {
	since time.Time
	what  api.Finding
}

// New returns a sweeper. It starts nothing.
func New(cfg Config, log Log, ask Asker, metrics *telemetry.Registry, out *slog.Logger) *Sweeper {
	cfg.Grace = cmp.Or(cfg.Grace, defaultGrace)
	return &Sweeper{
		cfg: cfg, interval: cmp.Or(cfg.Interval, defaultInterval), log: log, ask: ask, out: out, plugins: map[api.PluginID]*plugin{}, changed: make(chan struct{}, 1),
		took: metrics.Durations("berth_sweep_seconds", "How long comparisons of a plugin with the state took, and whether they were whole", "plugin", "whole"),
	}
}

// Run sweeps plugins when they are due, until ctx ends.
func (s *Sweeper) Run(ctx context.Context) error {
	s.mu.Lock()
	clear(s.plugins)
	s.running = true
	s.mu.Unlock()
	var sweeping sync.WaitGroup
	defer func() {
		s.mu.Lock()
		s.running = false
		s.mu.Unlock()
		sweeping.Wait()
	}()
	slots := make(chan struct{}, parallel)
	for {
		due, next := s.due()
		for _, id := range due {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
			sweeping.Go(func() {
				defer func() { <-slots }()
				s.one(ctx, id)
				s.nudge()
			})
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-timer.C:
		case <-s.changed:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// Every changes the time between two sweeps of a plugin; zero is 5 minutes. The
// next sweep of each is within the new time.
func (s *Sweeper) Every(interval time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interval = cmp.Or(interval, defaultInterval)
	for id, p := range s.plugins {
		if first := time.Now().Add(offset(id, s.interval)); p.next.After(first) {
			p.next = first
		}
	}
	s.nudge()
}

func (s *Sweeper) nudge() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// due are the plugins whose time has come, and when to look again. Plugins that
// are new are swept within an interval, not all at once.
func (s *Sweeper) due() (ids []api.PluginID, next time.Time) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	next = now.Add(min(s.interval, time.Minute))
	for _, id := range pluginsOf(s.log.View()) {
		p := s.at(id)
		if p.next.IsZero() {
			p.next = now.Add(offset(id, s.interval))
		}
		switch {
		case len(p.turn) > 0:
		case !p.next.After(now):
			p.next = now.Add(s.interval) // until the sweep itself says
			ids = append(ids, id)
		case p.next.Before(next):
			next = p.next
		}
	}
	return ids, next
}

// offset spreads plugins over an interval, each always in the same way.
func offset(id api.PluginID, interval time.Duration) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	return interval * time.Duration(h.Sum32()%1024) / 1024
}

// pluginsOf are the plugins that can be asked for volumes.
func pluginsOf(v state.View) []api.PluginID {
	var ids []api.PluginID
	for i := range v.Instances("") {
		asks := i.ServesController() && (i.Can(api.CapListVolumes) || i.Can(api.CapGetVolume))
		if asks && (len(ids) == 0 || ids[len(ids)-1] != i.PluginID) {
			ids = append(ids, i.PluginID)
		}
	}
	return ids
}

// at is what is remembered of a plugin; the caller holds mu.
func (s *Sweeper) at(id api.PluginID) *plugin {
	p := s.plugins[id]
	if p == nil {
		p = &plugin{turn: make(chan struct{}, 1), first: map[api.FindingID]once{}}
		s.plugins[id] = p
	}
	return p
}

// Sweep sweeps one plugin now, or all if id is empty, and answers how it went.
func (s *Sweeper) Sweep(ctx context.Context, id api.PluginID) ([]api.SweepReport, error) {
	all := pluginsOf(s.log.View())
	if id != "" {
		if !slices.Contains(all, id) {
			return nil, api.Errorf(api.CodeInvalid, "plugin %s cannot be asked what it has: no controller instance of it has the capability %s or %s",
				id, api.CapListVolumes, api.CapGetVolume)
		}
		all = []api.PluginID{id}
	}
	s.mu.Lock()
	running := s.running
	s.mu.Unlock()
	if !running {
		return nil, api.Errorf(api.CodeUnavailable, "this server is not ready to compare yet")
	}
	reports := make([]api.SweepReport, len(all))
	slots := make(chan struct{}, parallel)
	var sweeping sync.WaitGroup
	for i, id := range all {
		slots <- struct{}{}
		sweeping.Go(func() {
			defer func() { <-slots }()
			reports[i] = s.one(ctx, id)
		})
	}
	sweeping.Wait()
	s.nudge()
	return reports, nil
}

// Reports are how the last sweeps went.
func (s *Sweeper) Reports() []api.SweepReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []api.SweepReport{}
	for _, p := range s.plugins {
		if !p.report.Began.IsZero() {
			all = append(all, p.report)
		}
	}
	slices.SortFunc(all, func(a, b api.SweepReport) int { return strings.Compare(string(a.PluginID), string(b.PluginID)) })
	return all
}

// one sweeps a plugin when it has its turn.
func (s *Sweeper) one(ctx context.Context, id api.PluginID) api.SweepReport {
	s.mu.Lock()
	p := s.at(id)
	s.mu.Unlock()
	report := api.SweepReport{PluginID: id}
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		report.Problems = []string{"it is being compared already, and that takes long"}
		return report
	}
	defer func() { <-p.turn }()
	report.Began = time.Now().UTC()
	s.sweep(ctx, p, &report)
	took := time.Since(report.Began)
	report.Took = api.Duration(took)
	s.took.Observe(took, string(id), yes(len(report.Problems) == 0))
	if len(report.Problems) > 0 {
		s.out.Warn("sweep was not whole", "plugin", id, "problems", report.Problems)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := s.interval
	switch {
	case len(report.Problems) > 0 && !p.answered:
		wait = min(maxBackoff, wait<<min(p.failures, 10))
		p.failures++
	default:
		p.failures = 0
		if report.Waiting > 0 {
			wait = min(wait, s.cfg.Grace)
		}
	}
	p.next = time.Now().Add(wait)
	report.Next = p.next.UTC()
	p.report = report
	return report
}

func yes(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

// sweep asks, compares, and records what differs for the second time.
func (s *Sweeper) sweep(ctx context.Context, p *plugin, r *api.SweepReport) {
	before := s.log.View()
	if before.Recovering() {
		r.Problems = append(r.Problems, "the cluster is recovering: what it knows is not to be believed yet")
		return
	}
	told := s.listen(ctx, before, p, r)
	after := s.log.View()
	if told == nil || after.Recovering() || ctx.Err() != nil {
		return
	}
	known := 0
	for id := range told.volumes {
		for range after.VolumesByExternalID(r.PluginID, id) {
			known++
			break
		}
	}
	r.Volumes, r.Unknown = len(told.volumes), len(told.volumes)-known
	// What differs from the state before the list was made and not from that of
	// after, or the other way round, was on its way.
	found := compare(after, told)
	earlier := compare(before, told)
	for id := range found {
		if _, both := earlier[id]; !both {
			delete(found, id)
		}
	}
	s.confirm(ctx, after, told, found, r)
	plan := s.decide(after, p, told, found, r)
	s.record(ctx, plan, r)
}

// decide says what to record and to clear. What was not seen before waits.
func (s *Sweeper) decide(v state.View, p *plugin, told *seen, found differences, r *api.SweepReport) (plan []*command.RecordFindings) {
	now := time.Now().UTC()
	next := &command.RecordFindings{}
	step := func() {
		if len(next.Put)+len(next.Clear) >= perCommand {
			plan = append(plan, next)
			next = &command.RecordFindings{}
		}
	}
	for f := range v.PluginFindings(r.PluginID) {
		if _, still := found[f.ID]; !still && judged(v, told, f) {
			next.Clear = append(next.Clear, command.ClearFinding{ID: f.ID, Version: f.Version})
			step()
			continue
		}
		r.Findings++
	}
	for id, o := range p.first {
		if _, still := found[id]; !still && judged(v, told, &o.what) {
			delete(p.first, id)
		}
	}
	var more int
	for _, id := range sortedIDs(found) {
		o := found[id]
		old := v.Finding(id)
		switch first, before := p.first[id]; {
		case old != nil:
			if o.Since = old.Since; same(&old.Observation, &o) {
				continue
			}
			next.Put = append(next.Put, command.PutFinding{Version: old.Version, Found: o})
		case !before:
			p.first[id] = once{now, api.Finding{Observation: o}}
			r.Waiting++
			continue
		case now.Sub(first.since) < s.cfg.Grace:
			r.Waiting++
			continue
		case r.Findings >= maxFindings:
			more++
			continue
		default:
			o.Since = first.since
			next.Put = append(next.Put, command.PutFinding{Found: o})
			r.Findings++
		}
		step()
	}
	if more > 0 {
		r.Problems = append(r.Problems, "there are more than 1000 findings: the others are not recorded")
	}
	return append(plan, next)
}

// record proposes. What has changed meanwhile is looked at again.
func (s *Sweeper) record(ctx context.Context, plan []*command.RecordFindings, r *api.SweepReport) {
	for _, c := range plan {
		if len(c.Put)+len(c.Clear) == 0 {
			continue
		}
		_, err := s.log.Propose(ctx, c)
		switch {
		case err == nil:
			r.Changed += len(c.Put) + len(c.Clear)
		case api.CodeOf(err) == api.CodeConflict:
			r.Waiting += len(c.Put) + len(c.Clear)
		default:
			r.Problems = append(r.Problems, "record: "+err.Error())
			return
		}
	}
}
