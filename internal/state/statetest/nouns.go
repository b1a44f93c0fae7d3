package statetest

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

// noun is a kind of line.
type noun struct {
	name, table string
	// read makes a row of what a line says and the defaults for what it does not.
	read func(said []byte) (any, error)
}

// define makes a noun. defaults gets what the line says, and answers the row
// over which the line is read once more: so what is said stands, also a zero.
func define[T any](name, table string, defaults func(said *T) *T) noun {
	return noun{name, table, func(said []byte) (any, error) {
		probe := new(T)
		if err := strict(said, probe); err != nil {
			return nil, err
		}
		value := defaults(probe)
		if err := strict(said, value); err != nil {
			return nil, err
		}
		completeSpec(value)
		return value, nil
	}}
}

// nouns lists all nouns in the order in which they are printed, that of the
// tables.
func nouns() []noun {
	return []noun{
		define("log", "log", func(*state.Log) *state.Log { return &state.Log{Clock: Now()} }),
		define("index", "indexes", func(*state.Modified) *state.Modified { return &state.Modified{Index: firstIndex} }),
		define("cluster", "cluster", cluster),
		define("node", "nodes", node),
		define("identity", "identities", identity),
		define("assignment", "assignments", assignment),
		define("instance", "instances", instance),
		define("volume", "volumes", volume),
		define("publication", "publications", publication),
		define("attachment", "attachments", attachment),
		define("operation", "operations", operation),
		define("job", "jobs", job),
		define("revision", "revisions", revision),
		define("allocation", "allocations", allocation),
		define("serial", "serials", func(*state.Serial) *state.Serial { return &state.Serial{Series: "operations"} }),
		define("secrets", "secrets", func(said *api.VolumeSecrets) *api.VolumeSecrets {
			return &api.VolumeSecrets{Meta: meta(said.Meta), Namespace: api.DefaultNamespace}
		}),
		define("snapshot", "snapshots", snapshot),
		define("finding", "findings", finding),
		define("room", "rooms", room),
		define("variable", "variables", func(said *api.Variable) *api.Variable {
			return &api.Variable{Meta: meta(said.Meta), Namespace: api.DefaultNamespace, Keys: []string{"key"}}
		}),
		define("content", "contents", func(*state.VariableContent) *state.VariableContent {
			return &state.VariableContent{Namespace: api.DefaultNamespace, KeyID: "root", Box: []byte("sealed")}
		}),
	}
}

// finding has the id of what it is about.
func finding(said *api.Finding) *api.Finding {
	f := &api.Finding{Meta: meta(said.Meta), Observation: said.Observation}
	f.PluginID = cmp.Or(f.PluginID, plugin)
	f.ID = f.Observation.ID()
	return f
}

// room was told just now, and has the id of what it is about.
func room(said *api.Room) *api.Room {
	r := &api.Room{Meta: meta(said.Meta), PluginID: cmp.Or(said.PluginID, plugin), RoomFact: said.RoomFact, Told: Now()}
	r.ID = api.NewRoomID(r.Topology, r.Parameters)
	return r
}

func nounNamed(name string) (noun, bool) {
	for _, n := range nouns() {
		if n.name == name {
			return n, true
		}
	}
	return noun{}, false
}

// firstIndex is the log index at which a world was made.
const firstIndex = 1

// plugin is the plugin of whatever names none.
const plugin api.PluginID = "disk"

// hourAgo is when things happened of which a world does not say when.
func hourAgo() time.Time { return Now().Add(-time.Hour) }

func meta(said api.Meta) api.Meta {
	created := hourAgo()
	if m := said.ModifyTime; !m.IsZero() && m.Before(created) {
		created = m
	}
	return api.Meta{
		Version: 1, CreateIndex: firstIndex, ModifyIndex: firstIndex,
		CreateTime: created, ModifyTime: created,
	}
}

func cluster(said *api.Cluster) *api.Cluster {
	return &api.Cluster{
		Meta: meta(said.Meta), ID: "cluster", FeatureLevel: 1,
		Generation: api.Generation{Number: 1, Since: hourAgo()},
	}
}

func node(said *api.Node) *api.Node {
	return &api.Node{
		Meta: meta(said.Meta), Name: string(said.ID),
		Status: api.NodeStatus{
			State: api.NodeDown, Epoch: 1, BootID: "boot", Session: hourAgo(), Version: "1.0.0", Generation: 1,
		},
	}
}

// identity's secret is the node's id.
func identity(said *state.Identity) *state.Identity {
	secret := sha256.Sum256([]byte(said.NodeID))
	return &state.Identity{SecretHash: hex.EncodeToString(secret[:]), Session: "session", Epoch: 1}
}

func assignment(*state.AssignmentVersion) *state.AssignmentVersion {
	return &state.AssignmentVersion{Index: firstIndex, Count: 1}
}

func instance(said *api.Instance) *api.Instance {
	return &api.Instance{
		Meta: meta(said.Meta), PluginID: plugin,
		InstanceStatus: api.InstanceStatus{Type: api.InstanceMonolith, Driver: "disk.example"},
	}
}

func volume(said *api.Volume) *api.Volume {
	v := &api.Volume{
		Meta: meta(said.Meta), Namespace: api.DefaultNamespace, UID: "uid-" + string(said.ID), Desired: api.Present,
		Spec:   api.VolumeSpec{PluginID: plugin, Capabilities: []api.Capability{{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}}},
		Status: api.VolumeStatus{State: api.VolumeCreating},
	}
	switch {
	case said.Desired == api.Absent:
		v.Status.State = api.VolumeDeleting
	case said.Status.State == api.VolumeReady:
		v.Status.ExternalID = "ext-" + string(said.ID)
	}
	return v
}

func publication(said *api.Publication) *api.Publication {
	return &api.Publication{
		Meta: meta(said.Meta), Namespace: api.DefaultNamespace, PluginID: plugin,
		Status: api.PublicationStatus{Outcome: api.OutcomeNone, NodeEpoch: 1},
	}
}

func attachment(said *api.Attachment) *api.Attachment {
	return &api.Attachment{
		Meta: meta(said.Meta), Name: "data", Namespace: api.DefaultNamespace, PluginID: plugin, JobID: "job",
		AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem,
		Status: api.AttachmentStatus{State: api.Claimed},
	}
}

// operation is named for what it does, and has serial 1.
func operation(said *api.Operation) *api.Operation {
	o := &api.Operation{
		Meta: meta(said.Meta), Namespace: api.DefaultNamespace, PluginID: plugin,
		Status: api.OperationStatus{State: api.OperationWaiting},
	}
	subject := said.VolumeID
	if said.Kind.Subject() == api.SubjectSnapshot {
		subject = api.VolumeID(said.SnapshotID)
	}
	o.Name = api.OperationName(said.Kind, cmp.Or(said.Namespace, o.Namespace), subject, said.NodeID)
	o.ID = api.NewOperationID(cmp.Or(said.Name, o.Name), 1)
	switch said.Kind {
	case api.OperationCreate:
		o.Request.Create = &api.CreateRequest{}
	case api.OperationDelete:
		o.Request.Delete = &api.DeleteRequest{}
	case api.OperationPublish:
		o.Request.Publish = &api.PublishRequest{}
	case api.OperationUnpublish:
		o.Request.Unpublish = &api.UnpublishRequest{}
	case api.OperationExpand:
		o.Request.Expand = &api.ExpandRequest{}
	case api.OperationModify:
		o.Request.Modify = &api.ModifyRequest{}
	case api.OperationNodeExpand:
		o.Request.NodeExpand = &api.NodeExpandRequest{}
	case api.OperationSnapshot:
		o.Request.Snapshot = &api.SnapshotRequest{}
	case api.OperationDeleteSnapshot:
		o.Request.DeleteSnapshot = &api.DeleteSnapshotRequest{}
	}
	return o
}

// snapshot is a user's, of the volume that has its UID from its id.
func snapshot(said *api.Snapshot) *api.Snapshot {
	s := &api.Snapshot{
		Meta: meta(said.Meta), Namespace: api.DefaultNamespace, UID: "uid-" + string(said.ID), VolumeUID: "uid-" + string(said.VolumeID),
		PluginID: plugin, Owner: api.OwnerUser, Desired: api.Present, Status: api.SnapshotStatus{State: api.SnapshotCreating},
	}
	switch {
	case said.Desired == api.Absent:
		s.Status.State = api.SnapshotDeleting
	case said.Status.State == api.SnapshotReady:
		s.Status.ExternalID, s.Status.Ready = "ext-"+string(said.ID), true
	}
	return s
}

func revision(*state.Revision) *state.Revision {
	return &state.Revision{Revision: 1, Spec: api.JobSpec{Type: api.JobService}}
}

func job(said *api.Job) *api.Job {
	return &api.Job{
		Meta: meta(said.Meta), Namespace: api.DefaultNamespace, UID: "uid-" + string(said.ID),
		Desired: api.Present, Revision: 1, Spec: api.JobSpec{Type: api.JobService},
		Status: api.JobStatus{Stable: max(said.Revision, 1)},
	}
}

// completeSpec fills what the groups of a job leave empty: a group is called
// g, and a volume request is for a single writer and has its volume's name.
func completeSpec(value any) {
	var groups []api.TaskGroup
	switch v := value.(type) {
	case *api.Job:
		groups = v.Spec.Groups
	case *state.Revision:
		groups = v.Spec.Groups
	}
	for i := range groups {
		g := &groups[i]
		g.Name = cmp.Or(g.Name, "g")
		for j := range g.Volumes {
			r := &g.Volumes[j]
			r.Name = cmp.Or(r.Name, string(r.Source))
			r.Type = cmp.Or(r.Type, api.VolumeTypeCSI)
			r.AccessMode = cmp.Or(r.AccessMode, api.SingleNodeWriter)
			r.AttachmentMode = cmp.Or(r.AttachmentMode, api.FileSystem)
		}
	}
}

func allocation(said *api.Allocation) *api.Allocation {
	a := &api.Allocation{
		Meta: meta(said.Meta), Namespace: api.DefaultNamespace, JobUID: "uid-" + string(said.JobID),
		Revision: 1, Group: "g", Desired: api.DesireRun,
		Status: api.AllocStatus{State: api.AllocPending},
	}
	if said.Status.State == api.AllocRunning {
		a.Running = a.CreateTime
	}
	return a
}
