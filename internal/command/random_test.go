package command_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// start is where random logs begin: a cluster that is at work already, so that
// few of their commands are lost on getting there. Its volumes can be used in
// every mode.
const start = `
cluster {}
node {"id":"n1","status":{"state":"ready"}}
node {"id":"n2","status":{"state":"ready"}}
instance {"node_id":"n1","healthy":true,"node_capabilities":["SINGLE_NODE_MULTI_WRITER"]}
instance {"node_id":"n2","healthy":true,"node_capabilities":["EXPAND_VOLUME"]}
volume {"id":"pg","status":{"state":"ready"},"spec":{"capabilities":[` + everyMode + `]}}
volume {"id":"shared","status":{"state":"ready"},"spec":{"capabilities":[` + everyMode + `]}}
publication {"volume_id":"media","node_id":"n1"}
job {"id":"db","spec":{"groups":[{"count":2,"volumes":[{"source":"pg","access_mode":"multi-node-multi-writer"}]}]}}
job {"id":"web","revision":2,"spec":{"update":{"canary":1},"groups":[{"count":1}]},"status":{"serial":2}}
revision {"job_uid":"uid-web","revision":1,"spec":{"groups":[{"count":1}]}}
allocation {"id":"older","job_id":"web","node_id":"n1","revision":1,"replaced":true,"status":{"state":"running"}}
allocation {"id":"newer","job_id":"web","node_id":"n2","revision":2,"status":{"state":"running"}}
`

const everyMode = `
  {"access_mode":"single-node-writer","attachment_mode":"file-system"},
  {"access_mode":"single-node-reader-only","attachment_mode":"file-system"},
  {"access_mode":"single-node-single-writer","attachment_mode":"file-system"},
  {"access_mode":"single-node-multi-writer","attachment_mode":"file-system"},
  {"access_mode":"multi-node-reader-only","attachment_mode":"file-system"},
  {"access_mode":"multi-node-single-writer","attachment_mode":"file-system"},
  {"access_mode":"multi-node-multi-writer","attachment_mode":"file-system"}`

// TestRandomCommands applies random commands one by one and checks after each
// what must hold after any.
func TestRandomCommands(t *testing.T) {
	t.Parallel()
	applied := map[command.Kind]int{}
	check := func(t *rapid.T) {
		store := statetest.Load(t, start)
		now := statetest.Now()
		for index := range uint64(150) {
			now = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "later")) * time.Second)
			before := store.View()
			c := drawCommand(t, before, now)
			tx := store.Begin(index+2, now)
			err := c.Apply(tx)
			if err != nil {
				checkRefusal(t, tx, c, err)
				tx.Abort()
				continue
			}
			applied[c.Kind()]++
			tx.Commit()
			checkHeard(t, before, store.View(), c)
			checkVersions(t, before, store.View())
			checkHolds(t, store.View())
			checkRegistered(t, store.View())
			checkVariables(t, store.View())
			checkSnapshots(t, before, store.View(), c, now)
		}
	}
	missing := func() []command.Kind {
		return slices.DeleteFunc(command.Kinds(), func(k command.Kind) bool { return applied[k] > 0 || k == "cluster.init" })
	}
	// Some fit seldom, such as the end of a drain.
	for range 10 {
		if rapid.Check(t, check); t.Failed() || len(missing()) == 0 {
			break
		}
	}
	for _, kind := range missing() {
		t.Errorf("no %s was ever applied: the generator draws none that fits", kind)
	}
}

// checkVariables checks that every variable has something under its path, and
// nothing that is sealed is left without one.
func checkVariables(t *rapid.T, v state.View) {
	for _, path := range []api.VariablePath{"nomad/jobs", "nomad/jobs/db"} {
		if row, content := v.Variable("default", path), v.VariableContent("default", path); (row == nil) != (content == nil) {
			t.Fatalf("variable %s is %v, and holds %v", path, row, content)
		}
	}
}

// checkRegistered checks that no two volumes were registered as one.
func checkRegistered(t *rapid.T, v state.View) {
	seen := map[string]api.VolumeID{}
	for _, id := range []api.VolumeID{"pg", "shared", "media"} {
		if vol := v.Volume("default", id); vol == nil && v.VolumeSecrets("default", id) != nil {
			t.Fatalf("volume %s is gone, and its secrets are there", id)
		} else if vol != nil && (v.VolumeSecrets("default", id) != nil) != (len(vol.Secrets) > 0) {
			t.Fatalf("volume %s has the names %v of its secrets", id, vol.Secrets)
		}
	}
	for vol := range v.Volumes("") {
		if !vol.Spec.Registered() {
			continue
		}
		if first, again := seen[vol.Spec.ExternalID]; again {
			t.Fatalf("volumes %s and %s are both %s", first, vol.ID, vol.Spec.ExternalID)
		}
		seen[vol.Spec.ExternalID] = vol.ID
	}
}

// checkSnapshots checks that retention takes nothing that is to stay, that no
// row goes while the plugin may have the snapshot, and that a volume's slot is
// that of a call which an agent has.
func checkSnapshots(t *rapid.T, before, after state.View, c command.Command, now time.Time) {
	if d, ok := c.(*command.DeleteSnapshot); ok && d.Retention {
		was := before.Snapshot(d.Namespace, d.ID)
		if was.Desired == api.Present && !mayGo(before, was, now) {
			t.Fatalf("retention deletes %+v", was)
		}
	}
	for was := range before.Snapshots("") {
		if after.Snapshot(was.Namespace, was.ID) != nil {
			continue
		}
		if _, reported := c.(*command.ReportFacts); !reported && (was.Status.ExternalID != "" || was.Status.Operation != "") {
			t.Fatalf("%s forgets %+v", c.Kind(), was)
		}
	}
	for vol := range after.Volumes("") {
		if op := after.Operation(vol.Status.Operation); op != nil && op.Kind == api.OperationSnapshot && op.Status.State != api.OperationAssigned {
			t.Fatalf("volume %s waits for %s, which no agent has", vol.ID, op.ID)
		}
	}
}

// mayGo is the rule of retention, told in another way: the user's time is over,
// or as many newer ones of the schedule are ready as are to stay.
func mayGo(v state.View, s *api.Snapshot, now time.Time) bool {
	if s.Spec.Keep > 0 && !s.CreateTime.Add(time.Duration(s.Spec.Keep)).After(now) {
		return true
	}
	vol := v.Volume(s.Namespace, s.VolumeID)
	if s.Owner != api.OwnerSchedule || vol == nil || vol.UID != s.VolumeUID || vol.Spec.SnapshotSchedule == nil {
		return false
	}
	newer := 0
	for other := range v.Snapshots("") {
		if other.Owner == api.OwnerSchedule && other.VolumeUID == s.VolumeUID && other.Desired == api.Present &&
			other.Status.State == s.Status.State && other != s && !other.Scheduled.Before(s.Scheduled) {
			newer++
		}
	}
	switch s.Status.State {
	case api.SnapshotReady:
		return newer >= vol.Spec.SnapshotSchedule.Keep
	case api.SnapshotFailed:
		return newer >= 1
	case api.SnapshotCreating, api.SnapshotDeleting:
	}
	return false
}

// checkRefusal checks that a command that answered an error has written
// nothing, and that the error is one that a caller can tell apart.
func checkRefusal(t *rapid.T, tx *state.Tx, c command.Command, err error) {
	if tx.Writes() != 0 {
		t.Fatalf("%s answered %v and wrote %d rows", c.Kind(), err, tx.Writes())
	}
	var e *api.Error
	if !errors.As(err, &e) || e.Code == api.CodeInternal {
		t.Fatalf("%s answered %T %v, want an *api.Error", c.Kind(), err, err)
	}
}

// checkHeard checks that an agent whose work has changed is woken: that its
// assignment version has changed, too. What it reported itself it knows.
func checkHeard(t *rapid.T, before, after state.View, c command.Command) {
	for n := range after.Nodes() {
		var reported bool
		if r, ok := c.(*command.ReportFacts); ok {
			reported = r.Report.NodeID == n.ID
		}
		was, is := work(before, n.ID, reported), work(after, n.ID, reported)
		if was == is {
			continue
		}
		if old := before.AssignmentVersion(n.ID); old != nil && old.Count == after.AssignmentVersion(n.ID).Count {
			t.Fatalf("%s changed the work of node %s, and does not wake its agent:\nfrom %s\n  to %s", encodeCommand(t, c), n.ID, was, is)
		}
	}
}

// work is what an agent acts on of what it is assigned. It needs no word of an
// attachment that it is done with, nor that an ended allocation was replaced.
func work(v state.View, node api.NodeID, operationsOnly bool) string {
	type attachment struct {
		Name, Stage, ExternalID string
		Context, PublishContext map[string]string
	}
	type allocation struct {
		ID          api.AllocID
		Desired     api.AllocDesire
		Ended       bool
		Revision    uint64
		Attachments []attachment
	}
	var all struct {
		Cluster     *api.Generation
		Epoch       uint64
		Operations  []string
		Allocations []allocation
	}
	if c := v.Cluster(); c != nil {
		all.Cluster = &c.Generation
	}
	if id := v.Identity(node); id != nil {
		all.Epoch = id.Epoch
	}
	for op := range v.NodeOperations(node) {
		all.Operations = append(all.Operations, fmt.Sprintf("%s attempt %d", op.ID, op.Status.Attempt))
	}
	for a := range v.NodeAllocations(node) {
		if operationsOnly {
			break
		}
		as := allocation{ID: a.ID, Desired: a.Desired, Ended: a.Terminal(), Revision: a.Revision}
		for at := range v.AllocAttachments(a.ID) {
			shown := attachment{Name: at.Name, Stage: stage(at.Status.State)}
			if shown.Stage == "use" {
				vol, pub := v.Volume(at.Namespace, at.VolumeID), v.Publication(at.Namespace, at.VolumeID, node)
				shown.ExternalID, shown.Context, shown.PublishContext = vol.Status.ExternalID, vol.Status.Context, pub.Status.PublishContext
			}
			as.Attachments = append(as.Attachments, shown)
		}
		all.Allocations = append(all.Allocations, as)
	}
	b, _ := json.Marshal(all) // strings and numbers always encode
	return string(b)
}

// stage is what an agent makes of an attachment's state.
func stage(s api.AttachmentState) string {
	switch s {
	case api.Claimed:
		return "wait"
	case api.ControllerPublished, api.NodePublished:
		return "use"
	case api.Unpublishing:
		return "leave"
	case api.NodeDetached, api.ControllerDetached, api.Freed:
		return "done"
	}
	return string(s)
}

// checkVersions checks of some tables that a row that changed has a higher
// version, and one that did not the same.
func checkVersions(t *rapid.T, before, after state.View) {
	check := func(name string, was, is *api.Meta, same bool) {
		if same && was.Version != is.Version || !same && was.Version >= is.Version {
			t.Fatalf("%s went from version %d to %d, same row: %v", name, was.Version, is.Version, same)
		}
	}
	for is := range after.AllocAttachments("") {
		if was := before.Attachment(is.AllocID, is.Name); was != nil {
			check("attachment", &was.Meta, &is.Meta, was == is)
			if is.Status.State.Before(was.Status.State) {
				t.Fatalf("an attachment went back from %s to %s", was.Status.State, is.Status.State)
			}
		}
	}
	for is := range after.Allocations() {
		if was := before.Allocation(is.ID); was != nil {
			check("allocation", &was.Meta, &is.Meta, was == is)
			if was.Terminal() && was.Status.State != is.Status.State || was.Status.State == api.AllocRunning && is.Status.State == api.AllocPending {
				t.Fatalf("an allocation went back from %s to %s", was.Status.State, is.Status.State)
			}
		}
	}
	for _, path := range []api.VariablePath{"nomad/jobs", "nomad/jobs/db"} {
		if was, is := before.Variable("default", path), after.Variable("default", path); was != nil && is != nil {
			check("variable", &was.Meta, &is.Meta, was == is)
		}
	}
	for is := range after.Operations() {
		if was := before.Operation(is.ID); was != nil {
			check("operation", &was.Meta, &is.Meta, was == is)
			if !was.Open() && is.Open() {
				t.Fatalf("operation %s was opened again", is.ID)
			}
		}
	}
}

// holdOf is how an attachment holds its volume with the plugin of its node.
func holdOf(a *api.Attachment) statetest.Hold {
	h := statetest.HoldOf(a)
	h.OneTarget = a.NodeID == oneTarget
	return h
}

// checkHolds checks that no volume is held by two who exclude each other.
func checkHolds(t *rapid.T, v state.View) {
	for vol := range v.Volumes("") {
		var holders []*api.Attachment
		for h := range v.Holders(vol.Namespace, vol.ID) {
			for _, other := range holders {
				if holdOf(h).Excludes(holdOf(other)) {
					t.Fatalf("volume %s is held by %s on %s and by %s on %s", vol.ID,
						h.AccessMode, h.NodeID, other.AccessMode, other.NodeID)
				}
			}
			holders = append(holders, h)
		}
	}
}

// TestOneLogGivesEqualStates applies one random log, with entries that fail and
// chains that are void, to two stores. One of them is saved and loaded again on
// the way.
func TestOneLogGivesEqualStates(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		codec := command.NewCodec()
		one, two := statetest.Load(t, start), statetest.Load(t, start)
		now := statetest.Now()
		last := state.EntryID{}
		early := one.View()
		rows := text(t, early)
		for index := range uint64(25) {
			now = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "later")) * time.Second)
			e := &command.Entry{ID: entryID(index), After: last, Time: now}
			fork := one.Fork()
			fork.At(now)
			for range rapid.IntRange(1, 3).Draw(t, "plans") {
				e.Plans = append(e.Plans, drawPlan(t, fork, now))
			}
			last = e.ID
			encoded := encode(t, e)
			errs := [2]error{applyEncoded(t, codec, one, encoded, index+2), applyEncoded(t, codec, two, encoded, index+2)}
			if fmt.Sprint(errs[0]) != fmt.Sprint(errs[1]) {
				t.Fatalf("one store answered %v, and the other %v, to\n%s", errs[0], errs[1], encoded)
			}
			if errs[0] != nil && rapid.Bool().Draw(t, "notice") {
				last = one.View().Log().Last
			}
			if seldom(t, 20) {
				two = reload(t, two)
			}
		}
		if !bytes.Equal(save(t, one.View()), save(t, two.View())) {
			t.Fatalf("the states differ:\n%s", statetest.Diff(t, one.View(), two.View()))
		}
		if text(t, early) != rows {
			t.Fatal("the first view has changed: a command wrote into a row that was there")
		}
	})
}

// drawPlan draws commands that mostly apply together after what the fork holds.
func drawPlan(t *rapid.T, fork *state.Tx, now time.Time) command.Plan {
	var p command.Plan
	for range rapid.IntRange(1, 3).Draw(t, "commands") {
		c := drawCommand(t, fork.View, now)
		if err := c.Apply(fork); err == nil || seldom(t, 30) {
			p = append(p, c)
		}
	}
	return p
}

func applyEncoded(t *rapid.T, codec *command.Codec, store *state.Store, encoded []byte, index uint64) error {
	e, err := codec.Decode(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return e.Apply(store, index)
}

func reload(t *rapid.T, store *state.Store) *state.Store {
	loaded, err := state.Load(bytes.NewReader(save(t, store.View())))
	if err != nil {
		t.Fatal(err)
	}
	store.Restore(loaded)
	return store
}

func save(t *rapid.T, v state.View) []byte {
	var b bytes.Buffer
	if err := v.Save(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func text(t *rapid.T, v state.View) string {
	s, err := statetest.Text(v)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func encodeCommand(t *rapid.T, c command.Command) string {
	b, err := command.Plan{c}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSpace(b))
}
