package controllertest_test

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/controller/collector"
	"github.com/berth-dev/berth/internal/controller/controllertest"
	"github.com/berth-dev/berth/internal/controller/dispatcher"
	"github.com/berth-dev/berth/internal/controller/provisioner"
	"github.com/berth-dev/berth/internal/controller/scheduler"
	"github.com/berth-dev/berth/internal/controller/snapshotter"
	"github.com/berth-dev/berth/internal/controller/volumewatcher"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// sim is a cluster in one goroutine: a state with its log, the controllers,
// the agents and a storage provider.
type sim struct {
	t           *rapid.T
	store       *state.Store
	codec       *command.Codec
	sequence    uint64
	last        state.EntryID
	now         time.Time
	controllers []controller.Controller
	agents      map[api.NodeID]*agent
	provider    *provider
	// favourite is the access mode that most jobs ask for, so that they meet.
	favourite api.AccessMode
	// holds is who holds which volume, told by the commands that were applied.
	holds map[user]held
}

type held struct {
	volume api.VolumeID
	statetest.Hold
}

func newSim(t *rapid.T) *sim {
	return &sim{
		t: t, store: statetest.Load(t, "cluster {}"), codec: command.NewCodec(), now: statetest.Now(),
		controllers: []controller.Controller{
			scheduler.Controller{}, dispatcher.Controller{}, provisioner.Controller{}, volumewatcher.Controller{},
			snapshotter.Controller{}, collector.New(collector.DefaultKeep()),
		},
		agents: map[api.NodeID]*agent{}, provider: newProvider(t),
		favourite: oneOf(t, "favourite", append(api.AccessModes(), api.SingleNodeMultiWriter, api.MultiNodeMultiWriter)...), holds: map[user]held{},
	}
}

// propose brings a plan through the log into the state, and answers its error.
func (s *sim) propose(p command.Plan) error {
	if err := p.Validate(); err != nil {
		return err
	}
	encoded, err := p.Encode()
	if err != nil {
		s.t.Fatal(err)
	}
	s.sequence++
	id := state.EntryID{Leadership: "sim", Sequence: s.sequence}
	b, err := command.EncodeEntry(id, s.last, s.now, []command.Encoded{encoded})
	if err != nil {
		s.t.Fatal(err)
	}
	e, err := s.codec.Decode(b)
	if err != nil {
		s.t.Fatal(err)
	}
	before := s.store.View()
	if err := e.Apply(s.store, before.Index()+1); err != nil {
		return err
	}
	s.last = id
	for _, c := range p {
		s.note(before, c)
	}
	return nil
}

// note keeps the model of holds, a plain map, and checks that nobody got a
// hold that another one excludes.
func (s *sim) note(before state.View, c command.Command) {
	switch c := c.(type) {
	case *command.PlaceAllocation:
		job := before.Job(c.Namespace, c.JobID)
		for _, r := range job.Spec.Group(c.Group).Volumes {
			h := held{r.Source, statetest.Hold{Node: c.NodeID, Mode: r.AccessMode, ReadOnly: r.ReadOnly, OneTarget: s.provider.oneTarget}}
			for who, other := range s.holds {
				if other.volume == h.volume && h.Excludes(other.Hold) {
					s.t.Fatalf("volume %s is held for %+v by %s, and now for %+v", h.volume, other.Hold, who.alloc.Short(), h.Hold)
				}
			}
			s.holds[user{api.NewAllocID(c.JobUID, c.Serial), r.Name}] = h
		}
	case *command.AdvanceAttachment:
		if c.To == api.Freed {
			delete(s.holds, user{c.AllocID, c.Name})
		}
	}
}

// checkPlans reconciles everything that is pending, twice, and applies each
// plan to a fork of the state that it was made from.
func (s *sim) checkPlans() {
	s.checkSnapshots()
	for _, c := range s.controllers {
		for k := range c.Pending(s.store.View()) {
			plan := s.reconcile(c, k)
			if again := s.reconcile(c, k); controllertest.Format(s.t, plan, nil) != controllertest.Format(s.t, again, nil) {
				s.t.Fatalf("%s plans for %s:\n%s, and then:\n%s", c.Name(), k, controllertest.Format(s.t, plan, nil), controllertest.Format(s.t, again, nil))
			}
			if len(plan.Commands) == 0 {
				continue
			}
			fork := s.store.Fork()
			fork.At(s.now)
			if err := plan.Commands.Apply(fork); err != nil {
				s.t.Fatalf("%s plans for %s what does not apply: %v\n%s", c.Name(), k, err, controllertest.Format(s.t, plan, nil))
			}
			if fork.Writes() == 0 {
				s.t.Fatalf("%s plans for %s what changes nothing:\n%s", c.Name(), k, controllertest.Format(s.t, plan, nil))
			}
		}
	}
}

func (s *sim) reconcile(c controller.Controller, k controller.Key) controller.Plan {
	plan, err := c.Reconcile(s.store.View(), s.now, k)
	if err != nil {
		s.t.Fatalf("%s cannot reconcile %s: %v", c.Name(), k, err)
	}
	return plan
}

// step plans one key and takes the plan over. It answers whether there was
// anything to do, and when to look again.
func (s *sim) step(c controller.Controller, k controller.Key) (done bool, wake time.Time) {
	plan := s.reconcile(c, k)
	if len(plan.Commands) == 0 {
		return false, plan.Wake
	}
	if err := s.propose(plan.Commands); err != nil {
		s.t.Fatalf("%s planned for %s what was refused: %v\n%s", c.Name(), k, err, controllertest.Format(s.t, plan, nil))
	}
	return true, time.Time{}
}

// report has an agent act and say how things are. It answers whether there was
// anything to say.
func (s *sim) report(a *agent) bool {
	id := s.store.View().Identity(a.node)
	if id == nil || id.Session != a.session || id.Epoch != a.epoch {
		s.register(a)
		return true
	}
	facts := a.act(s.t, s.store.View(), s.provider)
	if facts.Empty() {
		return false
	}
	c := &command.ReportFacts{Report: api.Report{
		NodeID: a.node, Session: a.session, Epoch: a.epoch, Sequence: a.sequence + 1, Facts: facts,
	}}
	if s.provider.troubled && seldom(s.t, "report is lost", 8) {
		return true
	}
	times := 1
	if s.provider.troubled && seldom(s.t, "report comes twice", 8) {
		times = 2
	}
	for range times {
		if err := s.propose(command.Plan{c}); err != nil {
			s.t.Fatalf("a report of %s was refused: %v", a.node, err)
		}
	}
	a.sequence++
	a.taken(&facts)
	return true
}

func (s *sim) register(a *agent) {
	c := a.register()
	if err := s.propose(command.Plan{c}); err != nil {
		s.t.Fatalf("node %s cannot register: %v", a.node, err)
	}
	id := s.store.View().Identity(a.node)
	a.session, a.epoch, a.sequence = c.Session, id.Epoch, id.Sequence
	a.restart()
}

// everybody lets each controller plan for each of its keys, and each agent
// act. It answers whether anybody had anything to do, and when one will.
func (s *sim) everybody() (busy bool, next time.Time) {
	for _, c := range s.controllers {
		for _, k := range slices.Collect(c.Pending(s.store.View())) {
			done, wake := s.step(c, k)
			busy = busy || done
			if !wake.IsZero() && (next.IsZero() || wake.Before(next)) {
				next = wake
			}
		}
	}
	for _, node := range slices.Sorted(maps.Keys(s.agents)) {
		busy = s.report(s.agents[node]) || busy
	}
	return busy, next
}

// settle lets everybody act until nothing is left to do. Time passes when
// nobody has anything to do and somebody waits for it, at most for so long at
// once.
func (s *sim) settle(patience time.Duration) {
	for range 3000 {
		busy, next := s.everybody()
		switch {
		case busy:
		case !next.IsZero() && next.Sub(s.now) <= patience:
			s.now = next
		default:
			return
		}
	}
	s.t.Fatalf("the cluster does not settle:\n%s", statetest.Print(s.t, s.store.View()))
}

// checkSettled checks that whatever is pending says what it waits for, and that
// this is something that a healthy cluster has to wait for: a job for its
// turn, and somebody who wants to write for the readers on the node.
func (s *sim) checkSettled() {
	v := s.store.View()
	for _, c := range s.controllers {
		for k := range c.Pending(v) {
			plan := s.reconcile(c, k)
			if name, ok := strings.CutPrefix(string(k), "health/default/"); ok && len(plan.Commands) == 0 && !v.Job("default", api.JobID(name)).Status.Settled {
				continue // what keeps the job from settling is told there
			}
			if len(plan.Commands) > 0 || len(plan.Waits) == 0 && plan.Wake.IsZero() || !s.mayWait(v, c, k) {
				s.t.Fatalf("everything has settled, and %s is pending for the %s:\n%s", k, c.Name(), controllertest.Format(s.t, plan, nil))
			}
		}
	}
	s.checkJobs()
	s.checkKept()
}

// checkJobs checks that jobs that have settled have what they want, and
// nothing else.
func (s *sim) checkJobs() {
	v := s.store.View()
	for job := range v.Jobs("") {
		if !job.Status.Settled {
			continue
		}
		running := 0
		for a := range v.LiveAllocations(job.UID) {
			switch {
			case !a.Terminal() && a.Desired == api.DesireRun && a.Status.State == api.AllocRunning:
				running++
			case a.Terminal() && job.Spec.Type.Ends() && (a.Status.State == api.AllocComplete || a.Failures >= job.Spec.RescheduleOf(&job.Spec.Groups[0]).Attempts):
				running++ // done, or given up
			case a.Desired == api.DesireRun && a.Status.State == api.AllocPending && s.waitsForReaders(v, a):
				running++ // placed, and its turn comes
			default:
				s.t.Fatalf("job %s has settled with an allocation that is %s and to %s", job.ID, a.Status.State, a.Desired)
			}
		}
		want := job.Spec.Groups[0].Count * s.places(job)
		if job.Desired == api.Absent {
			want = 0
		}
		if running != want {
			s.t.Fatalf("job %s (%s) has settled with %d allocations, and wants %d", job.ID, job.Spec.Type, running, want)
		}
	}
}

// places is on how many nodes a job runs that runs everywhere, and 1 for others.
func (s *sim) places(job *api.Job) int {
	if !job.Spec.Type.Everywhere() {
		return 1
	}
	n := 0
	for node := range s.store.View().Nodes() {
		fits := true
		for _, c := range job.Spec.Groups[0].Constraints {
			fits = fits && fit.Constraint(node, c) == ""
		}
		if fits {
			n++
		}
	}
	return n
}

func (s *sim) mayWait(v state.View, c controller.Controller, k controller.Key) bool {
	switch c.(type) {
	case scheduler.Controller:
		return strings.HasPrefix(string(k), "job/") || strings.HasPrefix(string(k), "health/")
	case volumewatcher.Controller:
		return s.anybody(v, k, api.NodePublished, reads)
	case collector.Controller:
		return true
	case snapshotter.Controller:
		return k == snapshotter.Schedules || k == snapshotter.Retention
	case provisioner.Controller:
		// A volume waits for its snapshot, which may have failed.
		ns, id, _ := strings.Cut(string(k), "/")
		vol := v.Volume(api.NamespaceID(ns), api.VolumeID(id))
		snap := v.Snapshot(vol.Namespace, api.SnapshotID(vol.Spec.SnapshotID))
		return vol.Desired == api.Present && snap != nil && snap.Status.State != api.SnapshotReady
	}
	return false
}

// waitsForReaders reports whether an allocation is to use a volume that its
// node has for readers, who must leave first because somebody is to write.
func (s *sim) waitsForReaders(v state.View, a *api.Allocation) bool {
	for at := range v.AllocAttachments(a.ID) {
		k := volumewatcher.Key(at.Namespace, at.VolumeID, at.NodeID)
		if at.Status.State == api.Claimed && s.anybody(v, k, api.NodePublished, reads) && s.anybody(v, k, api.Claimed, (*api.Attachment).Writes) {
			return true
		}
	}
	return false
}

// anybody reports whether an attachment of a publication in some state is like that.
func (s *sim) anybody(v state.View, publication controller.Key, in api.AttachmentState, like func(*api.Attachment) bool) bool {
	for at := range v.AllocAttachments("") {
		if volumewatcher.Key(at.Namespace, at.VolumeID, at.NodeID) == publication && at.Status.State == in && like(at) {
			return true
		}
	}
	return false
}

func reads(at *api.Attachment) bool { return !at.Writes() }

// checkReplay checks that a saved and loaded state is the same.
func (s *sim) checkReplay() {
	var saved, again bytes.Buffer
	if err := s.store.View().Save(&saved); err != nil {
		s.t.Fatal(err)
	}
	loaded, err := state.Load(bytes.NewReader(saved.Bytes()))
	if err != nil {
		s.t.Fatal(err)
	}
	if err := loaded.View().Save(&again); err != nil {
		s.t.Fatal(err)
	}
	if !bytes.Equal(saved.Bytes(), again.Bytes()) {
		s.t.Fatal("the state changes when it is saved and loaded")
	}
}
