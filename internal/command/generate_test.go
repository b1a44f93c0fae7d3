package command_test

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// The generator draws commands of all kinds that mostly fit the state that it
// is shown, so that long logs get deep, and that sometimes do not.

// Rapid's own choices favour what is small and comes first. That shrinks well
// and never gets deep, so choices are made of single bits.

func number(t *rapid.T, label string, below int) int {
	return rapid.Custom(func(t *rapid.T) int {
		n := 0
		for range 10 {
			n *= 2
			if rapid.Bool().Draw(t, "bit") {
				n++
			}
		}
		return n % below
	}).Draw(t, label)
}

func oneOf[T any](t *rapid.T, label string, of ...T) T { return of[number(t, label, len(of))] }

// seldom is true once in n times.
func seldom(t *rapid.T, n int) bool { return number(t, "seldom", n) == n-1 }

// row draws one of the rows, or nil if there is none.
func row[T any](t *rapid.T, rows func(func(*T) bool)) *T {
	all := slices.Collect(rows)
	if len(all) == 0 {
		return nil
	}
	return all[number(t, "row", len(all))]
}

// version is mostly the row's.
func version(t *rapid.T, m *api.Meta) uint64 {
	if seldom(t, 10) {
		return m.Version + 1
	}
	return m.Version
}

func volumeID(t *rapid.T) api.VolumeID {
	return oneOf[api.VolumeID](t, "volume", "pg", "shared", "media", "data[0]", "data[1]")
}
func nodeID(t *rapid.T) api.NodeID { return oneOf[api.NodeID](t, "node", "n1", "n2", "n3") }
func jobID(t *rapid.T) api.JobID   { return oneOf[api.JobID](t, "job", "db", "web") }

// weighted has each kind as often as it takes for logs to get deep: what leads
// from one state to the next comes more often than what makes and unmakes.
func weighted() []command.Kind {
	weights := map[command.Kind]int{
		"node.report": 12, "allocation.place": 12, "attachment.advance": 8, "operation.open": 8, "operation.assign": 8,
		"volume.apply": 3, "volume.forget": 2, "allocation.stop": 3, "allocation.retake": 3, "publication.forget": 3,
		"snapshot.create": 3, "snapshot.delete": 2, "snapshot.forget": 2, "volume.grow": 4,
		"node.register": 2, "node.state": 2, "node.undrain": 2, "node.eligibility": 3, "operation.cancel": 2, "job.apply": 2, "job.settle": 2, "collect": 2,
	}
	var all []command.Kind
	for _, kind := range command.Kinds() {
		for range max(1, weights[kind]) {
			all = append(all, kind)
		}
	}
	return all
}

// drawCommand draws a command for the state.
func drawCommand(t *rapid.T, v state.View, now time.Time) command.Command {
	switch kind := oneOf(t, "kind", weighted()...); kind {
	case "cluster.init":
		return &command.InitCluster{ClusterID: "cluster", FeatureLevel: 1}
	case "generation.begin":
		return &command.BeginGeneration{Number: rapid.Uint64Range(1, 4).Draw(t, "number"), Reason: "restored"}
	case "generation.confirm":
		return &command.ConfirmGeneration{Number: rapid.Uint64Range(1, 4).Draw(t, "number"), Force: rapid.Bool().Draw(t, "force")}
	case "node.register":
		return drawRegistration(t, v)
	case "node.state":
		id := nodeID(t)
		c := &command.SetNodeState{NodeID: id, State: oneOf(t, "state", api.NodeReady, api.NodeDown), Session: "s1"}
		if known := v.Identity(id); known != nil {
			c.Session = known.Session
		}
		return c
	case "node.report":
		return drawReport(t, v)
	case "node.fence":
		return &command.FenceNode{NodeID: nodeID(t), Force: rapid.Bool().Draw(t, "force"), Evidence: api.Evidence{Kind: api.EvidenceOperator, Reason: "drawn"}}
	case "node.forget":
		return &command.ForgetNode{NodeID: nodeID(t)}
	case "node.drain":
		return &command.DrainNode{NodeID: nodeID(t), Within: api.Duration(number(t, "within", 3)), IgnoreSystem: ignoreSystem(t), KeepDeadline: rapid.Bool().Draw(t, "keep deadline")}
	case "node.undrain":
		return &command.StopDrain{NodeID: nodeID(t), KeepIneligible: seldom(t, 3)}
	case "node.drained":
		c := &command.FinishDrain{NodeID: nodeID(t)}
		if n := v.Node(c.NodeID); n != nil {
			c.Version = version(t, &n.Meta)
		}
		return c
	case "node.eligibility":
		return &command.SetEligibility{NodeID: nodeID(t), Eligible: !seldom(t, 3)}
	case "volume.apply":
		return drawVolume(t)
	case "volume.delete":
		return &command.DeleteVolume{Namespace: api.DefaultNamespace, ID: volumeID(t), Reclaim: oneOf(t, "reclaim", "", api.ReclaimDelete, api.ReclaimRetain)}
	case "volume.detach":
		c := &command.DetachVolume{Namespace: api.DefaultNamespace, ID: volumeID(t), Stop: rapid.Bool().Draw(t, "stop")}
		if vol := v.Volume(c.Namespace, c.ID); vol != nil {
			c.UID = vol.UID
		}
		if rapid.Bool().Draw(t, "one node") {
			c.From.NodeID = nodeID(t)
		}
		return c
	case "finding.record":
		return drawFindings(t, v)
	case "room.record":
		return drawRooms(t)
	case "variable.put", "variable.delete":
		return drawVariable(t, v, kind)
	case "volume.forget":
		c := &command.ForgetVolume{Namespace: api.DefaultNamespace, ID: volumeID(t)}
		if vol := v.Volume(c.Namespace, c.ID); vol != nil {
			c.Version = version(t, &vol.Meta)
		}
		return c
	case "volume.grow":
		c := &command.GrowVolume{Namespace: api.DefaultNamespace, ID: volumeID(t)}
		if vol := v.Volume(c.Namespace, c.ID); vol != nil {
			c.Version = version(t, &vol.Meta)
		}
		return c
	case "operation.open":
		return drawOperation(t, v)
	case "operation.assign":
		c := &command.AssignOperation{ID: "create/default/pg@1", Executor: nodeID(t), Limit: api.Duration(time.Minute)}
		if op := row(t, v.WaitingOperations()); op != nil {
			c.ID, c.Version = op.ID, version(t, &op.Meta)
		}
		return c
	case "operation.cancel":
		c := &command.CancelOperation{ID: "create/default/pg@1", Reason: "drawn"}
		if op := row(t, v.Operations()); op != nil {
			c.ID, c.Version = op.ID, version(t, &op.Meta)
		}
		return c
	case "snapshot.create", "snapshot.delete", "snapshot.forget", "snapshot.schedule":
		return drawSnapshot(t, v, now, kind)
	case "job.apply":
		return drawJob(t)
	case "job.stop":
		return &command.StopJob{Namespace: api.DefaultNamespace, ID: jobID(t)}
	case "job.settle":
		c := &command.SettleJob{Namespace: api.DefaultNamespace, ID: jobID(t)}
		if job := v.Job(c.Namespace, c.ID); job != nil {
			c.Version = version(t, &job.Meta)
		}
		return c
	case "job.stabilize":
		c := &command.StabilizeJob{Namespace: api.DefaultNamespace, ID: jobID(t)}
		if job := v.Job(c.Namespace, c.ID); job != nil {
			c.Version = version(t, &job.Meta)
		}
		return c
	case "job.revert":
		c := &command.RevertJob{Namespace: api.DefaultNamespace, ID: jobID(t), Reason: "drawn"}
		if job := v.Job(c.Namespace, c.ID); job != nil {
			c.Version = version(t, &job.Meta)
		}
		return c
	default:
		return drawLater(t, v, now, kind)
	}
}

// drawLater draws the commands that come late in the life of things.
func drawLater(t *rapid.T, v state.View, now time.Time, kind command.Kind) command.Command {
	switch kind {
	case "allocation.place":
		return drawPlacement(t, v)
	case "allocation.stop":
		c := &command.StopAllocation{ID: "none", Reason: "drawn"}
		if a := row(t, v.Allocations()); a != nil {
			c.ID, c.Version = a.ID, version(t, &a.Meta)
		}
		return c
	case "job.promote":
		c := &command.PromoteJob{Namespace: api.DefaultNamespace, ID: jobID(t), Revision: 1}
		if job := v.Job(c.Namespace, c.ID); job != nil {
			c.Revision = job.Revision
		}
		return c
	case "allocation.retake":
		c := &command.RetakePlace{ID: "none", From: "none", Revision: 1, Reason: "drawn"}
		for older := range v.Allocations() {
			for newer := range v.Allocations() {
				if !older.Replaced || older.Terminal() || newer.Replaced || newer.Index != older.Index || newer.JobUID != older.JobUID {
					continue
				}
				c.ID, c.Version, c.From, c.FromVersion = older.ID, version(t, &older.Meta), newer.ID, newer.Version
				if job := v.Job(older.Namespace, older.JobID); job != nil {
					c.Revision = job.Revision
				}
			}
		}
		return c
	case "allocation.revise":
		c := &command.ReviseAllocation{ID: "none", Revision: 1}
		if a := row(t, v.Allocations()); a != nil {
			c.ID, c.Version = a.ID, version(t, &a.Meta)
			if job := v.Job(a.Namespace, a.JobID); job != nil {
				c.Revision = job.Revision
			}
		}
		return c
	case "allocation.restart":
		c := &command.RestartAllocation{ID: "none", Task: oneOf(t, "task", api.AllTasks, "t"), Number: 1}
		if a := row(t, v.Allocations()); a != nil {
			c.ID, c.Number = a.ID, a.Asked[c.Task]+number(t, "number", 3)
		}
		return c
	case "attachment.advance":
		c := &command.AdvanceAttachment{AllocID: "none", Name: "a", To: oneOf(t, "to", api.AttachmentStates()...), Skipped: rapid.Bool().Draw(t, "skipped")}
		if a := row(t, v.AllocAttachments("")); a != nil {
			c.AllocID, c.Name, c.Version = a.AllocID, a.Name, version(t, &a.Meta)
			if next := a.Status.State.Rank() + 1; next < len(api.AttachmentStates()) && rapid.Bool().Draw(t, "next") {
				c.To = api.AttachmentStates()[next]
			}
		}
		return c
	case "publication.forget":
		c := &command.ForgetPublication{Namespace: api.DefaultNamespace, VolumeID: volumeID(t), NodeID: nodeID(t)}
		if p := v.Publication(c.Namespace, c.VolumeID, c.NodeID); p != nil {
			c.Version = version(t, &p.Meta)
		}
		return c
	case "collect":
		return drawCollection(t, v, now)
	case "volume.copy":
		c := &command.CopyVolume{Namespace: api.DefaultNamespace, ID: "data[1]", From: "data[0]"}
		if vol := v.Volume(c.Namespace, c.From); vol != nil {
			c.Version = version(t, &vol.Meta)
		}
		return c
	case "job.giveup":
		c := &command.GiveUpPlace{Namespace: api.DefaultNamespace, ID: jobID(t), Group: "g", Index: number(t, "index", 3), Reason: "drawn"}
		if job := v.Job(c.Namespace, c.ID); job != nil {
			c.Version = version(t, &job.Meta)
		}
		return c
	}
	t.Fatalf("kind %s is drawn by nobody", kind)
	return nil
}

func drawRegistration(t *rapid.T, v state.View) command.Command {
	c := &command.RegisterNode{
		NodeID: nodeID(t), Session: oneOf(t, "session", "s1", "s2", "s3"), BootID: oneOf(t, "boot", "b1", "b2"), Version: "1.0.0",
		SecretHash: secretHash, OtherLive: rapid.Bool().Draw(t, "other live"),
		Drivers: map[string]api.Driver{"exec": {Healthy: true, MountsVolumes: true}, "docker": {}},
	}
	c.Name = string(c.NodeID)
	if known := v.Identity(c.NodeID); known != nil && !seldom(t, 4) {
		c.Known = []string{known.Session}
	}
	if seldom(t, 10) {
		c.SecretHash = "another"
	}
	return c
}

func drawVolume(t *rapid.T) command.Command {
	c := &command.ApplyVolume{Namespace: api.DefaultNamespace, ID: volumeID(t), UID: oneOf(t, "uid", "u1", "u2")}
	c.Spec = api.VolumeSpec{
		PluginID: "disk", Name: oneOf(t, "label", "", "label"),
		Parameters:        oneOf(t, "parameters", nil, map[string]string{}, map[string]string{"b": "1", "a": "2"}),
		MutableParameters: oneOf(t, "mutable parameters", nil, map[string]string{"iops": "1"}, map[string]string{"iops": "2"}),
		CapacityMin:       int64(number(t, "capacity", 3)),
	}
	if seldom(t, 3) {
		c.Spec.ExternalID = oneOf(t, "external id", "ext-1", "ext-2")
	}
	if seldom(t, 3) {
		c.Secrets = oneOf(t, "secrets", &api.SealedSecrets{}, &api.SealedSecrets{Names: []string{"key"}, KeyID: "k", Box: []byte("box")})
	}
	if rapid.Bool().Draw(t, "schedule") {
		c.Spec.SnapshotSchedule = &api.SnapshotSchedule{Cron: "@hourly", Keep: 1 + number(t, "keep", 2)}
	}
	for _, mode := range api.AccessModes() {
		c.Spec.Capabilities = append(c.Spec.Capabilities, api.Capability{AccessMode: mode, AttachmentMode: api.FileSystem})
	}
	return c
}

func drawSnapshot(t *rapid.T, v state.View, now time.Time, kind command.Kind) command.Command {
	id := oneOf[api.SnapshotID](t, "snapshot", "s1", "s2", "s3", "s4")
	s := v.Snapshot(api.DefaultNamespace, id)
	if gone := row(t, v.UnsettledSnapshots()); gone != nil && kind == "snapshot.forget" {
		s = gone
	}
	var meta api.Meta
	if s != nil {
		id, meta = s.ID, s.Meta
	}
	switch kind {
	case "snapshot.delete":
		return &command.DeleteSnapshot{Namespace: api.DefaultNamespace, ID: id, Retention: rapid.Bool().Draw(t, "retention")}
	case "snapshot.forget":
		return &command.ForgetSnapshot{Namespace: api.DefaultNamespace, ID: id, Version: version(t, &meta)}
	case "snapshot.schedule":
		c := &command.ScheduleSnapshots{Namespace: api.DefaultNamespace, VolumeID: volumeID(t), Next: now.Add(time.Hour)}
		if vol := row(t, v.ScheduledVolumes()); vol != nil {
			c.VolumeID, c.Version = vol.ID, version(t, &vol.Meta)
		}
		return c
	}
	c := &command.CreateSnapshot{Namespace: api.DefaultNamespace, ID: id, UID: "uid", VolumeID: volumeID(t), Owner: api.OwnerUser}
	if rapid.Bool().Draw(t, "by a schedule") {
		c.Owner, c.Scheduled = api.OwnerSchedule, now
	} else {
		c.Spec.Keep = oneOf(t, "keep", 0, 0, api.Duration(time.Second))
	}
	return c
}

func drawJob(t *rapid.T) command.Command {
	c := &command.ApplyJob{Namespace: api.DefaultNamespace, ID: jobID(t), UID: oneOf(t, "uid", "j1", "j2")}
	c.UID += string(c.ID)
	group := api.TaskGroup{Name: "g", Count: number(t, "count", 4)}
	for _, name := range []string{"a", "b"}[:number(t, "requests", 3)] {
		mode := oneOf(t, "mode", api.AccessModes()...)
		source := volumeID(t)
		family, _, perAlloc := source.Family()
		if perAlloc = perAlloc && rapid.Bool().Draw(t, "per alloc"); perAlloc {
			source = family
		}
		if seldom(t, 5) {
			group.Volumes = append(group.Volumes, api.VolumeRequest{
				Name: name, Type: api.VolumeTypeCSI, AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem,
				Ephemeral: &api.EphemeralVolume{PluginID: "disk"},
			})
			continue
		}
		group.Volumes = append(group.Volumes, api.VolumeRequest{
			Name: name, Type: api.VolumeTypeCSI, Source: source, PerAlloc: perAlloc, AccessMode: mode, AttachmentMode: api.FileSystem,
			ReadOnly: mode == api.SingleNodeReaderOnly || mode == api.MultiNodeReaderOnly || seldom(t, 3),
		})
	}
	c.Spec = api.JobSpec{Type: oneOf(t, "type", api.JobService, api.JobBatch), Groups: []api.TaskGroup{group}}
	return c
}

func drawPlacement(t *rapid.T, v state.View) command.Command {
	c := &command.PlaceAllocation{
		Namespace: api.DefaultNamespace, JobID: jobID(t), NodeID: nodeID(t),
		Group: "g", Index: number(t, "index", 3),
	}
	if n := v.Node(c.NodeID); n != nil {
		c.NodeEpoch = n.Status.Epoch
	}
	job := v.Job(c.Namespace, c.JobID)
	if job == nil {
		return c
	}
	c.JobUID, c.Revision, c.Serial = job.UID, job.Revision, job.Status.Serial+1
	for a := range v.LiveAllocations(job.UID) {
		if a.Index == c.Index && !a.Replaced {
			c.Replaces, c.Beside = a.ID, !a.Terminal()
		}
	}
	return c
}

func drawOperation(t *rapid.T, v state.View) command.Command {
	kind := oneOf(t, "kind of operation", api.OperationCreate, api.OperationDelete, api.OperationPublish, api.OperationUnpublish,
		api.OperationExpand, api.OperationModify, api.OperationNodeExpand, api.OperationSnapshot, api.OperationDeleteSnapshot)
	c := &command.OpenOperation{OperationKind: kind, Namespace: api.DefaultNamespace, VolumeID: volumeID(t), PluginID: "disk"}
	switch kind {
	case api.OperationExpand, api.OperationModify:
		vol := v.Volume(c.Namespace, c.VolumeID)
		if vol == nil {
			vol = &api.Volume{}
		}
		c.Version = version(t, &vol.Meta)
		c.Request = api.OperationRequest{Expand: &api.ExpandRequest{ExternalID: "x", CapacityMin: vol.Spec.CapacityMin}}
		if kind == api.OperationModify {
			c.Request = api.OperationRequest{Modify: &api.ModifyRequest{ExternalID: "x", MutableParameters: vol.Spec.MutableParameters}}
		}
	case api.OperationCreate, api.OperationDelete:
		if vol := v.Volume(c.Namespace, c.VolumeID); vol != nil {
			c.Version = version(t, &vol.Meta)
		}
		c.Request = api.OperationRequest{Create: &api.CreateRequest{Name: "x"}}
		if kind == api.OperationDelete {
			c.Request = api.OperationRequest{Delete: &api.DeleteRequest{ExternalID: "x"}}
		}
	case api.OperationPublish, api.OperationUnpublish, api.OperationNodeExpand:
		c.NodeID = nodeID(t)
		if p := row(t, v.VolumePublications(c.Namespace, c.VolumeID)); p != nil {
			c.NodeID, c.Version = p.NodeID, version(t, &p.Meta)
		}
		c.Request = api.OperationRequest{Publish: &api.PublishRequest{ExternalID: "x", ExternalNodeID: "i-" + string(c.NodeID)}}
		if kind == api.OperationUnpublish {
			c.Request = api.OperationRequest{Unpublish: &api.UnpublishRequest{ExternalID: "x"}}
		}
		if kind == api.OperationNodeExpand {
			c.Request = api.OperationRequest{NodeExpand: &api.NodeExpandRequest{ExternalID: "x", CapacityMin: 1}}
		}
	case api.OperationSnapshot, api.OperationDeleteSnapshot:
		if s := row(t, v.Snapshots("")); s != nil {
			c.SnapshotID, c.VolumeID, c.Version = s.ID, s.VolumeID, version(t, &s.Meta)
		}
		c.Request = api.OperationRequest{Snapshot: &api.SnapshotRequest{Name: "x", SourceID: "x"}}
		if kind == api.OperationDeleteSnapshot {
			c.Request = api.OperationRequest{DeleteSnapshot: &api.DeleteSnapshotRequest{ExternalID: "x"}}
		}
	}
	return c
}

func drawCollection(t *rapid.T, v state.View, now time.Time) command.Command {
	c := &command.Collect{Before: now.Add(time.Duration(rapid.IntRange(-20, 1).Draw(t, "before")) * time.Second)}
	if op := row(t, v.Operations()); op != nil && rapid.Bool().Draw(t, "operations") {
		c.Operations = append(c.Operations, op.ID)
	}
	if a := row(t, v.Allocations()); a != nil && rapid.Bool().Draw(t, "allocations") {
		c.Allocations = append(c.Allocations, a.ID)
	}
	if at := row(t, v.FreedAttachments()); at != nil && rapid.Bool().Draw(t, "attachments") {
		c.Attachments = append(c.Attachments, command.AttachmentName{AllocID: at.AllocID, Name: at.Name})
	}
	if j := row(t, v.Jobs("")); j != nil && rapid.Bool().Draw(t, "jobs") {
		c.Jobs = append(c.Jobs, command.JobName{Namespace: j.Namespace, ID: j.ID})
	}
	return c
}

// oneTarget is the node whose plugin lacks SINGLE_NODE_MULTI_WRITER. Volumes can
// grow there.
const oneTarget api.NodeID = "n2"

func nodeCapabilities(node api.NodeID) []string {
	if node == oneTarget {
		return []string{api.CapStageUnstage, api.CapExpandVolume}
	}
	return []string{api.CapStageUnstage, api.CapSingleNodeMultiWrite}
}

func drawReport(t *rapid.T, v state.View) command.Command {
	r := api.Report{NodeID: nodeID(t), Session: "s1", Sequence: 1}
	if id := v.Identity(r.NodeID); id != nil {
		r.Session, r.Epoch = id.Session, id.Epoch
		r.Sequence = id.Sequence + oneOf[uint64](t, "sequence", 0, 1, 1, 1, 2)
	}
	if seldom(t, 10) {
		r.Epoch++
	}
	if seldom(t, 4) {
		r.Facts.Drivers = map[string]api.Driver{"exec": {Healthy: rapid.Bool().Draw(t, "healthy")}}
	}
	if seldom(t, 3) {
		r.Facts.Instances = []api.InstanceFact{{PluginID: "disk", Gone: seldom(t, 4), InstanceStatus: api.InstanceStatus{
			Type: api.InstanceMonolith, Healthy: rapid.Bool().Draw(t, "healthy"), NodeCapabilities: nodeCapabilities(r.NodeID), Driver: "disk.example", MaxVolumes: int64(rapid.IntRange(0, 2).Draw(t, "max")),
		}}}
	}
	for a := range v.NodeAllocations(r.NodeID) {
		if rapid.Bool().Draw(t, "tell") {
			r.Facts.Allocations = append(r.Facts.Allocations, api.AllocFact{ID: a.ID, Status: api.AllocStatus{
				State:   oneOf(t, "state", api.AllocPending, api.AllocRunning, api.AllocRunning, api.AllocComplete, api.AllocFailed),
				Problem: drawProblem(t),
			}})
		}
		for at := range v.AllocAttachments(a.ID) {
			r.Facts.Attachments = append(r.Facts.Attachments, api.AttachmentFact{
				AllocID: a.ID, Name: at.Name, Problem: drawProblem(t), TargetPath: "/t",
				State: oneOf(t, "state", "", api.NodePublished, api.NodePublished, api.NodeDetached, api.Freed),
			})
			r.Facts.Publications = append(r.Facts.Publications, api.PublicationFact{
				Namespace: at.Namespace, VolumeID: at.VolumeID, Staged: seldom(t, 3),
			})
		}
	}
	for op := range v.NodeOperations(r.NodeID) {
		r.Facts.Operations = append(r.Facts.Operations, api.OperationFact{
			ID: op.ID, Attempt: drawAttempt(t, op), NotSent: seldom(t, 6),
			Code: oneOf(t, "code", "OK", "OK", "OK", "NOT_FOUND", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "UNAVAILABLE"),
			Result: api.OperationResult{
				ExternalID: "x", PublishContext: map[string]string{"device": "sdb", "lun": "1"},
				Snapshot: &api.SnapshotResult{ExternalID: "s", Size: 1, Created: statetest.Now(), Ready: !seldom(t, 3)},
			},
		})
	}
	return &command.ReportFacts{Report: r}
}

func drawProblem(t *rapid.T) *api.Problem {
	if !seldom(t, 4) {
		return nil
	}
	return &api.Problem{Step: "NodeStageVolume", Message: oneOf(t, "problem", "one", "two")}
}

// drawAttempt is mostly the current one.
func drawAttempt(t *rapid.T, op *api.Operation) int {
	if seldom(t, 8) {
		return op.Status.Attempt - 1
	}
	return op.Status.Attempt
}

func drawFindings(t *rapid.T, v state.View) command.Command {
	c := &command.RecordFindings{}
	o := api.Observation{Kind: oneOf(t, "kind", api.FindingKinds()...), PluginID: "disk", ExternalID: oneOf(t, "external", "x1", "x2"), Message: oneOf(t, "message", "a", "b")}
	if vol := row(t, v.Volumes("")); vol != nil && !o.Kind.Unclaimed() {
		o.Namespace, o.VolumeID, o.PluginID, o.ExternalID = vol.Namespace, vol.ID, vol.Spec.PluginID, "x"+vol.Status.ExternalID
		if vol.Status.ExternalID != "" {
			o.ExternalID = vol.Status.ExternalID
		}
	}
	put := command.PutFinding{Found: o}
	if f := v.Finding(o.ID()); f != nil {
		put.Version = version(t, &f.Meta)
	}
	if f := row(t, v.PluginFindings("disk")); f != nil && seldom(t, 2) {
		c.Clear = append(c.Clear, command.ClearFinding{ID: f.ID, Version: version(t, &f.Meta)})
		return c
	}
	c.Put = append(c.Put, put)
	return c
}

// ignoreSystem is what a drain says of system jobs, which may be nothing.
func ignoreSystem(t *rapid.T) *bool {
	return rapid.Ptr(rapid.Bool(), true).Draw(t, "ignore system")
}

func drawRooms(t *rapid.T) *command.RecordRooms {
	c := &command.RecordRooms{PluginID: "disk"}
	at := func() api.Topology { return api.Topology{"zone": oneOf(t, "zone", "a", "b", "c")} }
	for range rapid.IntRange(0, 2).Draw(t, "rooms") {
		c.Put = append(c.Put, api.RoomFact{Topology: at(), AvailableCapacity: api.AvailableCapacity{Available: int64(oneOf(t, "available", 0, 1<<30))}})
	}
	if rapid.Bool().Draw(t, "clear") {
		c.Clear = []api.RoomID{api.NewRoomID(at(), nil)}
	}
	return c
}

func drawVariable(t *rapid.T, v state.View, kind command.Kind) command.Command {
	path, at := oneOf[api.VariablePath](t, "path", "nomad/jobs", "nomad/jobs/db"), uint64(0)
	if old := v.Variable(api.DefaultNamespace, path); old != nil && rapid.Bool().Draw(t, "conditional") {
		at = version(t, &old.Meta)
	}
	if kind == "variable.delete" {
		return &command.DeleteVariable{Namespace: api.DefaultNamespace, Path: path, Version: at}
	}
	return &command.PutVariable{
		Namespace: api.DefaultNamespace, Path: path, Keys: []string{oneOf(t, "key", "a", "b")}, KeyID: "root", Box: []byte("sealed"),
		Version: at, IfAbsent: at == 0 && seldom(t, 5),
	}
}
