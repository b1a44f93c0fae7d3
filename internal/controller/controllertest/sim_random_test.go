package controllertest_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// TestWhateverHappensEverythingSettles lets users, nodes, plugins, agents and
// controllers act in any order. Every plan must apply to the state that it was
// made from, no hold may exclude another, and the provider must be asked in
// the order of the specification. When the trouble is over everything settles,
// and when nothing is wanted any more nothing is left.
func TestWhateverHappensEverythingSettles(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newSim(t)
		s.begin()
		for range 100 {
			s.anything()
			s.checkPlans()
		}
		s.heal()
		s.settle(patience)
		s.checkSettled()
		s.checkReplay()
		s.teardown()
	})
}

// begin makes a cluster that is at work already.
func (s *sim) begin() {
	for range 1 + number(s.t, "nodes", 3) {
		s.addNode()
	}
	for range 3 {
		s.user(s.drawVolume())
		s.user(s.drawJob())
	}
	s.provider.troubled = false
	s.settle(patience)
	s.provider.troubled = true
}

// patience is longer than any backoff, and shorter than it takes the collector
// to look again at what it could not collect.
const patience = 9 * time.Minute

// deeds has each deed as often as it takes for things to get somewhere.
func deeds() []string {
	var all []string
	for what, times := range map[string]int{
		"controller": 6, "agent": 4, "everybody": 14, "time": 6, "volume": 3, "job": 6, "stop": 2, "delete": 1, "node": 3, "snapshot": 4, "delete snapshot": 2,
	} {
		all = append(all, slices.Repeat([]string{what}, times)...)
	}
	slices.Sort(all)
	return all
}

// anything lets one of them act.
func (s *sim) anything() {
	what := oneOf(s.t, "what", deeds()...)
	switch what {
	case "controller":
		c := oneOf(s.t, "controller", s.controllers...)
		if keys := slices.Collect(c.Pending(s.store.View())); len(keys) > 0 {
			s.step(c, oneOf(s.t, "key", keys...))
		}
	case "agent":
		s.report(s.agent())
	case "everybody":
		s.everybody()
	case "time":
		s.now = s.now.Add(oneOf(s.t, "passes", time.Second, 10*time.Second, time.Minute, time.Minute, 6*time.Minute, 6*time.Minute, 6*time.Minute, 13*time.Hour))
	case "volume":
		s.user(s.drawVolume())
	case "job":
		s.user(s.drawJob())
	case "stop":
		s.user(&command.StopJob{Namespace: api.DefaultNamespace, ID: jobID(s.t)})
	case "delete":
		s.user(&command.DeleteVolume{Namespace: api.DefaultNamespace, ID: volumeID(s.t)})
	case "snapshot":
		s.user(s.drawSnapshot())
	case "delete snapshot":
		s.user(&command.DeleteSnapshot{Namespace: api.DefaultNamespace, ID: snapshotID(s.t)})
	case "node":
		s.trouble(s.agent())
	}
}

// user does what a user asks, which may be refused.
func (s *sim) user(c command.Command) {
	switch err := s.propose(command.Plan{c}); api.CodeOf(err) {
	case "", api.CodeConflict, api.CodeInUse, api.CodeNotFound, api.CodeInvalid:
	default:
		s.t.Fatalf("%s was refused with %v", c.Kind(), err)
	}
}

// trouble changes something about a node.
func (s *sim) trouble(a *agent) {
	id := s.store.View().Identity(a.node)
	switch oneOf(s.t, "trouble", "plugin", "well", "well", "down", "up", "up", "up", "restart", "memory") {
	case "plugin":
		a.healthy = false
	case "well":
		a.healthy = true
	case "down":
		s.user(&command.SetNodeState{NodeID: a.node, State: api.NodeDown, Session: id.Session})
	case "up":
		s.user(&command.SetNodeState{NodeID: a.node, State: api.NodeReady, Session: id.Session})
	case "restart":
		s.register(a)
	case "memory":
		a.forget()
		s.register(a)
	}
}

func (s *sim) addNode() {
	a := newAgent(api.NodeID(fmt.Sprintf("n%d", len(s.agents)+1)), fmt.Sprintf("r%d", len(s.agents)%2))
	s.agents[a.node] = a
	s.register(a)
}

func (s *sim) agent() *agent {
	return s.agents[oneOf(s.t, "node", slices.Sorted(maps.Keys(s.agents))...)]
}

func volumeID(t *rapid.T) api.VolumeID { return oneOf[api.VolumeID](t, "volume", "pg", "media") }
func jobID(t *rapid.T) api.JobID       { return oneOf[api.JobID](t, "job", "db", "web", "cron", "log") }

func (s *sim) drawVolume() command.Command {
	s.sequence++
	c := &command.ApplyVolume{Namespace: api.DefaultNamespace, ID: volumeID(s.t), UID: fmt.Sprintf("volume-%d", s.sequence)}
	c.Spec = api.VolumeSpec{PluginID: "disk", Name: oneOf(s.t, "name", "", "label")}
	if seldom(s.t, "schedule", 2) {
		c.Spec.SnapshotSchedule = &api.SnapshotSchedule{Cron: oneOf(s.t, "cron", "@hourly", "30 * * * *"), Keep: 1 + number(s.t, "keep", 2)}
	}
	if seldom(s.t, "restore", 4) {
		c.Spec.SnapshotID = string(snapshotID(s.t))
	}
	for _, mode := range api.AccessModes() {
		c.Spec.Capabilities = append(c.Spec.Capabilities, api.Capability{AccessMode: mode, AttachmentMode: api.FileSystem})
	}
	return c
}

func (s *sim) drawJob() command.Command {
	s.sequence++
	c := &command.ApplyJob{Namespace: api.DefaultNamespace, ID: jobID(s.t), UID: fmt.Sprintf("job-%d", s.sequence)}
	group := api.TaskGroup{
		Name: "g", Count: number(s.t, "count", 4),
		Tasks: []api.Task{{Name: "t", Driver: "exec", User: oneOf(s.t, "user", "", "root")}},
	}
	for _, name := range []string{"a", "b"}[:number(s.t, "requests", 3)] {
		mode := oneOf(s.t, "mode", append(api.AccessModes(), s.favourite, s.favourite, s.favourite, s.favourite, s.favourite)...)
		readOnly := mode == api.SingleNodeReaderOnly || mode == api.MultiNodeReaderOnly || rapid.Bool().Draw(s.t, "read-only")
		group.Volumes = append(group.Volumes, api.VolumeRequest{
			Name: name, Type: api.VolumeTypeCSI, Source: volumeID(s.t), AccessMode: mode, AttachmentMode: api.FileSystem, ReadOnly: readOnly,
		})
	}
	c.Spec.Type = oneOf(s.t, "type", api.JobService, api.JobService, api.JobBatch, api.JobSystem, api.JobSysbatch)
	if c.Spec.Type.Everywhere() {
		group.Count = min(group.Count, 1)
	}
	if seldom(s.t, "constraint", 3) {
		group.Constraints = []api.Constraint{oneOf(s.t, "which",
			api.Constraint{Operator: api.DistinctHosts},
			api.Constraint{Attribute: "${meta.rack}", Operator: api.DistinctProperty, Value: "2"},
			api.Constraint{Attribute: "${meta.rack}", Value: "r1"},
		)}
	}
	if seldom(s.t, "ports", 4) {
		group.Ports = []api.Port{{Name: "fixed", Static: 5000}, {Name: "any"}}
	}
	if seldom(s.t, "update", 3) {
		group.Update = &api.Update{MaxParallel: 1 + number(s.t, "parallel", 2), AutoRevert: rapid.Bool().Draw(s.t, "revert")}
	}
	if seldom(s.t, "reschedule", 4) {
		group.Reschedule = &api.Reschedule{Attempts: 1, Interval: api.Duration(10 * time.Minute), DelayFunction: api.DelayConstant}
	}
	c.Spec.Priority = oneOf(s.t, "priority", 0, 0, 0, 60)
	c.Spec.Groups = []api.TaskGroup{group}
	return c
}

// heal ends all trouble.
func (s *sim) heal() {
	s.provider.troubled = false
	for _, node := range slices.Sorted(maps.Keys(s.agents)) {
		s.agents[node].healthy = true
		s.register(s.agents[node])
	}
}

// teardown stops and deletes everything, and checks that nothing is left.
func (s *sim) teardown() {
	v := s.store.View()
	for j := range v.Jobs("") {
		s.user(&command.StopJob{Namespace: j.Namespace, ID: j.ID})
	}
	s.settle(patience)
	s.checkSettled()
	if len(s.holds) > 0 {
		s.t.Fatalf("no job is wanted, and these hold volumes: %v", s.holds)
	}
	for vol := range s.store.View().Volumes("") {
		s.user(&command.DeleteVolume{Namespace: vol.Namespace, ID: vol.ID})
	}
	s.settle(patience)
	for id, vol := range s.provider.volumes {
		s.t.Fatalf("no volume is wanted, and the provider has %s, attached to %v", id, vol.attached)
	}
	// Snapshots have outlived their volumes.
	s.checkKept()
	for snap := range s.store.View().Snapshots("") {
		s.user(&command.DeleteSnapshot{Namespace: snap.Namespace, ID: snap.ID})
	}
	s.settle(patience)
	for id := range s.provider.shots {
		s.t.Fatalf("no snapshot is wanted, and the provider has %s", id)
	}
	s.now = s.now.Add(25 * time.Hour)
	s.settle(25 * time.Hour)
	v = s.store.View()
	for _, c := range s.controllers {
		for k := range c.Pending(v) {
			s.t.Fatalf("nothing is wanted, and %s is pending for the %s", k, c.Name())
		}
	}
	s.checkEmpty()
}

// checkEmpty checks that all that is left is the cluster and its nodes.
func (s *sim) checkEmpty() {
	want := statetest.Load(s.t, "cluster {}")
	v := want.View()
	if left := statetest.Diff(s.t, v, s.store.View()); left != "" {
		for line := range linesOf(left) {
			s.t.Fatalf("nothing is wanted, and this is left: %s", line)
		}
	}
}

// linesOf are the lines of a difference that are about neither nodes nor the log.
func linesOf(diff string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for line := range strings.Lines(diff) {
			word, _, _ := strings.Cut(strings.TrimPrefix(line, "+ "), " ")
			switch word {
			case "log", "node", "identity", "assignment", "instance", "serial":
				continue
			}
			if !yield(strings.TrimSpace(line)) {
				return
			}
		}
	}
}
