package state_test

import (
	"fmt"
	"iter"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

func TestNodesMatchAModel(t *testing.T) {
	t.Parallel()
	id := func(n *api.Node) string { return join(string(n.ID)) }
	checkTable(t, table[api.Node]{
		like: func(t *rapid.T) *api.Node { return &api.Node{ID: pick[api.NodeID](t, "id")} },
		key:  id,
		meta: (*api.Node).GetMeta,
		put:  (*state.Tx).PutNode,
		get:  func(v state.View, n *api.Node) *api.Node { return v.Node(n.ID) },
		queries: map[string]query[api.Node]{
			"Nodes": {func(v state.View, _ *api.Node) iter.Seq[*api.Node] { return v.Nodes() }, nil, id},
			"AwayNodes": {
				func(v state.View, _ *api.Node) iter.Seq[*api.Node] { return v.AwayNodes() },
				func(row, _ *api.Node) bool { return row.Status.State == api.NodeDown },
				func(n *api.Node) string { return stamp(n.ModifyTime) + id(n) },
			},
		},
	})
}

func TestIdentitiesMatchAModel(t *testing.T) {
	t.Parallel()
	checkTable(t, table[state.Identity]{
		like: func(t *rapid.T) *state.Identity { return &state.Identity{NodeID: pick[api.NodeID](t, "id")} },
		key:  func(i *state.Identity) string { return string(i.NodeID) },
		put:  (*state.Tx).PutIdentity,
		get:  func(v state.View, i *state.Identity) *state.Identity { return v.Identity(i.NodeID) },
	})
}

func TestInstancesMatchAModel(t *testing.T) {
	t.Parallel()
	id := func(i *api.Instance) string {
		return join(string(i.PluginID), string(i.NodeID), string(i.AllocID), string(i.Type))
	}
	byNode := func(i *api.Instance) string { return join(string(i.NodeID), string(i.PluginID)) + id(i) }
	checkTable(t, table[api.Instance]{
		like: func(t *rapid.T) *api.Instance {
			return &api.Instance{
				PluginID: pick[api.PluginID](t, "plugin"), NodeID: pick[api.NodeID](t, "node"),
				AllocID:        one[api.AllocID](t, "alloc", "", "a", "b"),
				InstanceStatus: api.InstanceStatus{Type: one(t, "type", api.InstanceNode, api.InstanceController)},
			}
		},
		key:    id,
		meta:   (*api.Instance).GetMeta,
		put:    (*state.Tx).PutInstance,
		remove: (*state.Tx).DeleteInstance,
		get: func(v state.View, i *api.Instance) *api.Instance {
			return v.Instance(i.NodeID, &api.InstanceFact{
				PluginID: i.PluginID, AllocID: i.AllocID, InstanceStatus: api.InstanceStatus{Type: i.Type},
			})
		},
		queries: map[string]query[api.Instance]{
			"Instances of all plugins": {
				func(v state.View, _ *api.Instance) iter.Seq[*api.Instance] { return v.Instances("") }, nil, id,
			},
			"Instances": {
				func(v state.View, i *api.Instance) iter.Seq[*api.Instance] { return v.Instances(i.PluginID) },
				func(row, like *api.Instance) bool { return row.PluginID == like.PluginID }, id,
			},
			"NodeInstances": {
				func(v state.View, i *api.Instance) iter.Seq[*api.Instance] { return v.NodeInstances(i.NodeID) },
				func(row, like *api.Instance) bool { return row.NodeID == like.NodeID }, byNode,
			},
			"NodePlugin": {
				func(v state.View, i *api.Instance) iter.Seq[*api.Instance] { return v.NodePlugin(i.NodeID, i.PluginID) },
				func(row, like *api.Instance) bool { return row.NodeID == like.NodeID && row.PluginID == like.PluginID }, byNode,
			},
		},
	})
}

func TestVolumesMatchAModel(t *testing.T) {
	t.Parallel()
	id := func(v *api.Volume) string { return join(string(v.Namespace), string(v.ID)) }
	checkTable(t, table[api.Volume]{
		like: func(t *rapid.T) *api.Volume {
			return &api.Volume{
				Namespace: pick[api.NamespaceID](t, "namespace"), ID: pick[api.VolumeID](t, "id"),
				Desired: one(t, "desired", api.Present, api.Absent),
				Status: api.VolumeStatus{
					State:     one(t, "state", api.VolumeCreating, api.VolumeReady, api.VolumeFailed, api.VolumeDeleting),
					Operation: one[api.OperationID](t, "operation", "", "create/a/b@1", "delete/a/b@2"),
				},
			}
		},
		key:    id,
		meta:   (*api.Volume).GetMeta,
		put:    (*state.Tx).PutVolume,
		remove: (*state.Tx).DeleteVolume,
		get:    func(v state.View, vol *api.Volume) *api.Volume { return v.Volume(vol.Namespace, vol.ID) },
		queries: map[string]query[api.Volume]{
			"Volumes of all namespaces": {
				func(v state.View, _ *api.Volume) iter.Seq[*api.Volume] { return v.Volumes("") }, nil, id,
			},
			"Volumes": {
				func(v state.View, like *api.Volume) iter.Seq[*api.Volume] { return v.Volumes(like.Namespace) },
				func(row, like *api.Volume) bool { return row.Namespace == like.Namespace }, id,
			},
			"UnsettledVolumes": {
				func(v state.View, _ *api.Volume) iter.Seq[*api.Volume] { return v.UnsettledVolumes() },
				func(row, _ *api.Volume) bool { return volumeUnsettled(row) }, id,
			},
		},
	})
}

func TestSnapshotsMatchAModel(t *testing.T) {
	t.Parallel()
	id := func(s *api.Snapshot) string { return join(string(s.Namespace), string(s.ID)) }
	checkTable(t, table[api.Snapshot]{
		like: func(t *rapid.T) *api.Snapshot {
			s := &api.Snapshot{
				Namespace: pick[api.NamespaceID](t, "namespace"), ID: pick[api.SnapshotID](t, "snapshot"), VolumeID: pick[api.VolumeID](t, "volume"),
				Desired: rapid.SampledFrom([]api.Presence{api.Present, api.Absent}).Draw(t, "desired"),
				Spec:    api.SnapshotSpec{Keep: api.Duration(rapid.IntRange(0, 3).Draw(t, "keep"))},
			}
			s.Status.State = rapid.SampledFrom([]api.SnapshotState{api.SnapshotCreating, api.SnapshotReady, api.SnapshotFailed}).Draw(t, "state")
			s.Status.Operation = rapid.SampledFrom([]api.OperationID{"", "snapshot/default/s@1", "delete-snapshot/default/s@1"}).Draw(t, "operation")
			return s
		},
		key:    id,
		meta:   (*api.Snapshot).GetMeta,
		put:    (*state.Tx).PutSnapshot,
		remove: (*state.Tx).DeleteSnapshot,
		get:    func(v state.View, s *api.Snapshot) *api.Snapshot { return v.Snapshot(s.Namespace, s.ID) },
		queries: map[string]query[api.Snapshot]{
			"Snapshots of all namespaces": {
				func(v state.View, _ *api.Snapshot) iter.Seq[*api.Snapshot] { return v.Snapshots("") }, nil, id,
			},
			"Snapshots": {
				func(v state.View, like *api.Snapshot) iter.Seq[*api.Snapshot] { return v.Snapshots(like.Namespace) },
				func(row, like *api.Snapshot) bool { return row.Namespace == like.Namespace }, id,
			},
			"VolumeSnapshots": {
				func(v state.View, like *api.Snapshot) iter.Seq[*api.Snapshot] {
					return v.VolumeSnapshots(like.Namespace, like.VolumeID)
				},
				func(row, like *api.Snapshot) bool {
					return row.Namespace == like.Namespace && row.VolumeID == like.VolumeID
				}, id,
			},
			"ExpiringSnapshots": {
				func(v state.View, _ *api.Snapshot) iter.Seq[*api.Snapshot] { return v.ExpiringSnapshots() },
				func(row, _ *api.Snapshot) bool { return row.Spec.Keep > 0 && row.Desired == api.Present },
				func(s *api.Snapshot) string { return fmt.Sprintf("%020d", s.Expires().UnixNano()) + id(s) },
			},
			"UnsettledSnapshots": {
				func(v state.View, _ *api.Snapshot) iter.Seq[*api.Snapshot] { return v.UnsettledSnapshots() },
				func(row, _ *api.Snapshot) bool {
					kind := row.Status.Operation.Kind()
					if row.Desired == api.Absent {
						return kind != api.OperationDeleteSnapshot
					}
					return kind == "" && row.Status.State == api.SnapshotCreating
				}, id,
			},
			"FailedSnapshots": {
				func(v state.View, _ *api.Snapshot) iter.Seq[*api.Snapshot] { return v.FailedSnapshots() },
				func(row, _ *api.Snapshot) bool {
					made := row.Status.ExternalID != "" || row.Status.Operation != ""
					return row.Desired == api.Present && row.Status.State == api.SnapshotFailed && !made
				},
				func(s *api.Snapshot) string { return stamp(s.ModifyTime) + id(s) },
			},
		},
	})
}

// volumeUnsettled says in other words what the index holds: volumes that the
// provisioner has something to do for, or something to wait for.
func volumeUnsettled(v *api.Volume) bool {
	kind := v.Status.Operation.Kind()
	if v.Desired == api.Absent {
		return kind != api.OperationDelete
	}
	return kind == "" && v.Status.State != api.VolumeReady && v.Status.State != api.VolumeFailed
}

func TestPublicationsMatchAModel(t *testing.T) {
	t.Parallel()
	id := func(p *api.Publication) string {
		return join(string(p.Namespace), string(p.VolumeID), string(p.NodeID))
	}
	checkTable(t, table[api.Publication]{
		like: func(t *rapid.T) *api.Publication {
			return &api.Publication{
				Namespace: pick[api.NamespaceID](t, "namespace"), VolumeID: pick[api.VolumeID](t, "volume"),
				NodeID: pick[api.NodeID](t, "node"), PluginID: pick[api.PluginID](t, "plugin"),
			}
		},
		key:    id,
		meta:   (*api.Publication).GetMeta,
		put:    (*state.Tx).PutPublication,
		remove: (*state.Tx).DeletePublication,
		get: func(v state.View, p *api.Publication) *api.Publication {
			return v.Publication(p.Namespace, p.VolumeID, p.NodeID)
		},
		queries: map[string]query[api.Publication]{
			"VolumePublications": {
				func(v state.View, p *api.Publication) iter.Seq[*api.Publication] {
					return v.VolumePublications(p.Namespace, p.VolumeID)
				},
				func(row, like *api.Publication) bool {
					return row.Namespace == like.Namespace && row.VolumeID == like.VolumeID
				}, id,
			},
			"NodePublications": {
				func(v state.View, p *api.Publication) iter.Seq[*api.Publication] {
					return v.NodePublications(p.NodeID, p.PluginID)
				},
				func(row, like *api.Publication) bool {
					return row.NodeID == like.NodeID && row.PluginID == like.PluginID
				}, id,
			},
		},
	})
}

func TestAttachmentsMatchAModel(t *testing.T) {
	t.Parallel()
	id := func(a *api.Attachment) string { return join(string(a.AllocID), a.Name) }
	place := func(a *api.Attachment) string {
		return join(string(a.Namespace), string(a.VolumeID), string(a.NodeID)) + id(a)
	}
	sameVolume := func(row, like *api.Attachment) bool {
		return row.Namespace == like.Namespace && row.VolumeID == like.VolumeID && row.Status.State != api.Freed
	}
	checkTable(t, table[api.Attachment]{
		like: func(t *rapid.T) *api.Attachment {
			return &api.Attachment{
				AllocID: pick[api.AllocID](t, "alloc"), Name: pick[string](t, "name"),
				Namespace: pick[api.NamespaceID](t, "namespace"), VolumeID: pick[api.VolumeID](t, "volume"),
				NodeID: pick[api.NodeID](t, "node"),
				Status: api.AttachmentStatus{State: one(t, "state", api.AttachmentStates()...)},
			}
		},
		key:    id,
		meta:   (*api.Attachment).GetMeta,
		put:    (*state.Tx).PutAttachment,
		remove: (*state.Tx).DeleteAttachment,
		get:    func(v state.View, a *api.Attachment) *api.Attachment { return v.Attachment(a.AllocID, a.Name) },
		queries: map[string]query[api.Attachment]{
			"AllocAttachments of all": {
				func(v state.View, _ *api.Attachment) iter.Seq[*api.Attachment] { return v.AllocAttachments("") }, nil, id,
			},
			"AllocAttachments": {
				func(v state.View, a *api.Attachment) iter.Seq[*api.Attachment] { return v.AllocAttachments(a.AllocID) },
				func(row, like *api.Attachment) bool { return row.AllocID == like.AllocID }, id,
			},
			"Holders": {
				func(v state.View, a *api.Attachment) iter.Seq[*api.Attachment] {
					return v.Holders(a.Namespace, a.VolumeID)
				},
				sameVolume, place,
			},
			"NodeHolders": {
				func(v state.View, a *api.Attachment) iter.Seq[*api.Attachment] {
					return v.NodeHolders(a.Namespace, a.VolumeID, a.NodeID)
				},
				func(row, like *api.Attachment) bool { return sameVolume(row, like) && row.NodeID == like.NodeID }, place,
			},
			"UnsettledAttachments": {
				func(v state.View, _ *api.Attachment) iter.Seq[*api.Attachment] { return v.UnsettledAttachments() },
				func(row, _ *api.Attachment) bool {
					s := row.Status.State
					return s == api.Claimed || s == api.NodeDetached || s == api.ControllerDetached
				}, place,
			},
			"FreedAttachments": {
				func(v state.View, _ *api.Attachment) iter.Seq[*api.Attachment] { return v.FreedAttachments() },
				func(row, _ *api.Attachment) bool { return row.Status.State == api.Freed },
				func(a *api.Attachment) string { return stamp(a.ModifyTime) + id(a) },
			},
		},
	})
}

func TestOperationsMatchAModel(t *testing.T) {
	t.Parallel()
	id := func(o *api.Operation) string { return join(string(o.ID)) }
	checkTable(t, table[api.Operation]{
		like: func(t *rapid.T) *api.Operation {
			// Names are unique while open, so each row has its own.
			name := pick[string](t, "id")
			return &api.Operation{
				ID: api.OperationID(name), Name: "name-" + name,
				Namespace: pick[api.NamespaceID](t, "namespace"), VolumeID: pick[api.VolumeID](t, "volume"),
				PluginID: pick[api.PluginID](t, "plugin"),
				Status: api.OperationStatus{
					Next:   one(t, "next", time.Time{}, soon(), soon().Add(time.Second)),
					Queued: one(t, "queued", time.Time{}, soon(), soon().Add(time.Second)),
					State: one(t, "state", api.OperationWaiting, api.OperationAssigned, api.OperationSucceeded,
						api.OperationFailed, api.OperationCancelled),
					Executor: pick[api.NodeID](t, "executor"),
				},
			}
		},
		key:    id,
		meta:   (*api.Operation).GetMeta,
		put:    (*state.Tx).PutOperation,
		remove: (*state.Tx).DeleteOperation,
		get:    func(v state.View, o *api.Operation) *api.Operation { return v.Operation(o.ID) },
		queries: map[string]query[api.Operation]{
			"Operations": {
				func(v state.View, _ *api.Operation) iter.Seq[*api.Operation] { return v.Operations() }, nil, id,
			},
			"OpenOperation": {
				func(v state.View, o *api.Operation) iter.Seq[*api.Operation] { return only(v.OpenOperation(o.Name)) },
				func(row, like *api.Operation) bool { return row.Name == like.Name && row.Open() }, id,
			},
			"VolumeOperations": {
				func(v state.View, o *api.Operation) iter.Seq[*api.Operation] {
					return v.VolumeOperations(o.Namespace, o.VolumeID)
				},
				func(row, like *api.Operation) bool {
					return row.Namespace == like.Namespace && row.VolumeID == like.VolumeID
				}, id,
			},
			"WaitingOperations": {
				func(v state.View, _ *api.Operation) iter.Seq[*api.Operation] { return v.WaitingOperations() },
				func(row, _ *api.Operation) bool { return row.Status.State == api.OperationWaiting },
				func(o *api.Operation) string { return join(string(o.PluginID), turn(o)) + id(o) },
			},
			"Queue": {
				func(v state.View, o *api.Operation) iter.Seq[*api.Operation] { return v.Queue(o.PluginID, soon()) },
				func(row, like *api.Operation) bool {
					return row.PluginID == like.PluginID && row.Status.State == api.OperationWaiting && !row.Status.Next.After(soon())
				},
				func(o *api.Operation) string {
					if o.Status.Next.IsZero() {
						return stamp(o.Place()) + "0" + id(o)
					}
					return stamp(o.Status.Next) + "1" + id(o)
				},
			},
			"Calls": {
				func(v state.View, o *api.Operation) iter.Seq[*api.Operation] { return v.Calls(o.PluginID) },
				func(row, like *api.Operation) bool {
					return row.PluginID == like.PluginID && row.Status.State == api.OperationAssigned
				}, id,
			},
			"OpenOperations": {
				func(v state.View, o *api.Operation) iter.Seq[*api.Operation] {
					return v.OpenOperations(o.Namespace, o.VolumeID)
				},
				func(row, like *api.Operation) bool {
					return row.Namespace == like.Namespace && row.VolumeID == like.VolumeID && row.Open()
				},
				func(o *api.Operation) string { return stamp(o.Place()) + id(o) },
			},
			"NodeOperations": {
				func(v state.View, o *api.Operation) iter.Seq[*api.Operation] {
					return v.NodeOperations(o.Status.Executor)
				},
				func(row, like *api.Operation) bool {
					return row.Status.State == api.OperationAssigned && row.Status.Executor == like.Status.Executor
				}, id,
			},
			"EndedOperations": {
				func(v state.View, _ *api.Operation) iter.Seq[*api.Operation] { return v.EndedOperations() },
				func(row, _ *api.Operation) bool { return !row.Open() },
				func(o *api.Operation) string { return stamp(o.ModifyTime) + id(o) },
			},
		},
	})
}

// soon is a time at which operations may be tried again.
func soon() time.Time { return time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC) }

// turn orders the operations of one plugin that wait: untried ones first.
func turn(o *api.Operation) string {
	if o.Status.Next.IsZero() {
		return "0" + stamp(o.Place())
	}
	return "1" + stamp(o.Status.Next)
}

func only[T any](row *T) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		if row != nil {
			yield(row)
		}
	}
}

func TestJobsMatchAModel(t *testing.T) {
	t.Parallel()
	id := func(j *api.Job) string { return join(string(j.Namespace), string(j.ID)) }
	checkTable(t, table[api.Job]{
		like: func(t *rapid.T) *api.Job {
			return &api.Job{
				Namespace: pick[api.NamespaceID](t, "namespace"), ID: pick[api.JobID](t, "id"),
				Desired: one(t, "desired", api.Present, api.Absent),
				Status:  api.JobStatus{Settled: rapid.Bool().Draw(t, "settled")},
			}
		},
		key:    id,
		meta:   (*api.Job).GetMeta,
		put:    (*state.Tx).PutJob,
		remove: (*state.Tx).DeleteJob,
		get:    func(v state.View, j *api.Job) *api.Job { return v.Job(j.Namespace, j.ID) },
		queries: map[string]query[api.Job]{
			"Jobs of all namespaces": {func(v state.View, _ *api.Job) iter.Seq[*api.Job] { return v.Jobs("") }, nil, id},
			"Jobs": {
				func(v state.View, j *api.Job) iter.Seq[*api.Job] { return v.Jobs(j.Namespace) },
				func(row, like *api.Job) bool { return row.Namespace == like.Namespace }, id,
			},
			"UnsettledJobs": {
				func(v state.View, _ *api.Job) iter.Seq[*api.Job] { return v.UnsettledJobs() },
				func(row, _ *api.Job) bool { return !row.Status.Settled }, id,
			},
			"StoppedJobs": {
				func(v state.View, _ *api.Job) iter.Seq[*api.Job] { return v.StoppedJobs() },
				func(row, _ *api.Job) bool { return row.Desired == api.Absent },
				func(j *api.Job) string { return stamp(j.ModifyTime) + id(j) },
			},
		},
	})
}

func TestRevisionsMatchAModel(t *testing.T) {
	t.Parallel()
	id := func(r *state.Revision) string { return join(r.JobUID) + fmt.Sprintf("%020d", r.Revision) }
	checkTable(t, table[state.Revision]{
		like: func(t *rapid.T) *state.Revision {
			return &state.Revision{JobUID: pick[string](t, "job"), Revision: one[uint64](t, "revision", 1, 2, 255, 256, 1<<40)}
		},
		key:    id,
		put:    (*state.Tx).PutRevision,
		remove: (*state.Tx).DeleteRevision,
		get:    func(v state.View, r *state.Revision) *state.Revision { return v.Revision(r.JobUID, r.Revision) },
		queries: map[string]query[state.Revision]{
			"Revisions": {
				func(v state.View, r *state.Revision) iter.Seq[*state.Revision] { return v.Revisions(r.JobUID) },
				func(row, like *state.Revision) bool { return row.JobUID == like.JobUID }, id,
			},
		},
	})
}

func TestSecretsMatchAModel(t *testing.T) {
	t.Parallel()
	checkTable(t, table[api.VolumeSecrets]{
		like: func(t *rapid.T) *api.VolumeSecrets {
			return &api.VolumeSecrets{Namespace: pick[api.NamespaceID](t, "namespace"), VolumeID: pick[api.VolumeID](t, "volume")}
		},
		key:    func(s *api.VolumeSecrets) string { return join(string(s.Namespace), string(s.VolumeID)) },
		put:    (*state.Tx).PutVolumeSecrets,
		remove: (*state.Tx).DeleteVolumeSecrets,
		get: func(v state.View, s *api.VolumeSecrets) *api.VolumeSecrets {
			return v.VolumeSecrets(s.Namespace, s.VolumeID)
		},
	})
}

func TestFindingsMatchAModel(t *testing.T) {
	t.Parallel()
	id := func(f *api.Finding) string { return join(string(f.ID)) }
	byPlugin := func(f *api.Finding) string { return join(string(f.PluginID), f.ExternalID) + id(f) }
	checkTable(t, table[api.Finding]{
		like: func(t *rapid.T) *api.Finding {
			return &api.Finding{ID: pick[api.FindingID](t, "id"), Observation: api.Observation{
				Kind: one(t, "kind", api.FindingLeak, api.FindingVanished), PluginID: pick[api.PluginID](t, "plugin"), ExternalID: pick[string](t, "external"),
				Namespace: pick[api.NamespaceID](t, "namespace"), VolumeID: pick[api.VolumeID](t, "volume"),
			}}
		},
		key:    id,
		meta:   (*api.Finding).GetMeta,
		put:    (*state.Tx).PutFinding,
		remove: (*state.Tx).DeleteFinding,
		get:    func(v state.View, f *api.Finding) *api.Finding { return v.Finding(f.ID) },
		queries: map[string]query[api.Finding]{
			"PluginFindings": {
				func(v state.View, f *api.Finding) iter.Seq[*api.Finding] { return v.PluginFindings(f.PluginID) },
				func(row, like *api.Finding) bool { return row.PluginID == like.PluginID }, byPlugin,
			},
			"ExternalFindings": {
				func(v state.View, f *api.Finding) iter.Seq[*api.Finding] {
					return v.ExternalFindings(f.PluginID, f.ExternalID)
				},
				func(row, like *api.Finding) bool {
					return row.PluginID == like.PluginID && row.ExternalID == like.ExternalID
				}, byPlugin,
			},
			"VolumeFindings": {
				func(v state.View, f *api.Finding) iter.Seq[*api.Finding] {
					return v.VolumeFindings(f.Namespace, f.VolumeID)
				},
				func(row, like *api.Finding) bool {
					return row.Kind == api.FindingVanished && row.Namespace == like.Namespace && row.VolumeID == like.VolumeID
				}, func(f *api.Finding) string { return join(string(f.Namespace), string(f.VolumeID)) + id(f) },
			},
		},
	})
}

func TestAllocationsMatchAModel(t *testing.T) {
	t.Parallel()
	id := func(a *api.Allocation) string { return join(string(a.ID)) }
	byJob := func(a *api.Allocation) string { return join(a.JobUID) + id(a) }
	checkTable(t, table[api.Allocation]{
		like: func(t *rapid.T) *api.Allocation {
			return &api.Allocation{
				ID: pick[api.AllocID](t, "id"), JobUID: pick[string](t, "job"), NodeID: pick[api.NodeID](t, "node"),
				Replaced: rapid.Bool().Draw(t, "replaced"),
				Status: api.AllocStatus{
					State: one(t, "state", api.AllocPending, api.AllocRunning, api.AllocComplete, api.AllocFailed),
				},
			}
		},
		key:    id,
		meta:   (*api.Allocation).GetMeta,
		put:    (*state.Tx).PutAllocation,
		remove: (*state.Tx).DeleteAllocation,
		get:    func(v state.View, a *api.Allocation) *api.Allocation { return v.Allocation(a.ID) },
		queries: map[string]query[api.Allocation]{
			"Allocations": {
				func(v state.View, _ *api.Allocation) iter.Seq[*api.Allocation] { return v.Allocations() }, nil, id,
			},
			"AllocationsWithPrefix": {
				func(v state.View, a *api.Allocation) iter.Seq[*api.Allocation] {
					return v.AllocationsWithPrefix(string(a.ID[:1]))
				},
				func(row, like *api.Allocation) bool { return row.ID[0] == like.ID[0] }, id,
			},
			"JobAllocations": {
				func(v state.View, a *api.Allocation) iter.Seq[*api.Allocation] { return v.JobAllocations(a.JobUID) },
				func(row, like *api.Allocation) bool { return row.JobUID == like.JobUID }, byJob,
			},
			"EveryPlaceAllocation": {
				func(v state.View, a *api.Allocation) iter.Seq[*api.Allocation] {
					return v.EveryPlaceAllocation(a.JobUID, a.Group, a.Index)
				},
				func(row, like *api.Allocation) bool {
					return row.JobUID == like.JobUID && row.Group == like.Group && row.Index == like.Index
				}, byJob,
			},
			"LiveAllocations": {
				func(v state.View, a *api.Allocation) iter.Seq[*api.Allocation] { return v.LiveAllocations(a.JobUID) },
				func(row, like *api.Allocation) bool {
					ended := row.Status.State == api.AllocComplete || row.Status.State == api.AllocFailed
					return row.JobUID == like.JobUID && (!ended || !row.Replaced)
				}, byJob,
			},
			"NodeAllocations": {
				func(v state.View, a *api.Allocation) iter.Seq[*api.Allocation] { return v.NodeAllocations(a.NodeID) },
				func(row, like *api.Allocation) bool { return row.NodeID == like.NodeID },
				func(a *api.Allocation) string { return join(string(a.NodeID)) + id(a) },
			},
			"EndedAllocations": {
				func(v state.View, _ *api.Allocation) iter.Seq[*api.Allocation] { return v.EndedAllocations() },
				func(row, _ *api.Allocation) bool {
					return row.Status.State == api.AllocComplete || row.Status.State == api.AllocFailed
				},
				func(a *api.Allocation) string { return stamp(a.ModifyTime) + id(a) },
			},
		},
	})
}

func TestVariablesMatchAModel(t *testing.T) {
	t.Parallel()
	checkTable(t, table[api.Variable]{
		like: func(t *rapid.T) *api.Variable {
			return &api.Variable{Namespace: pick[api.NamespaceID](t, "namespace"), Path: pick[api.VariablePath](t, "path")}
		},
		key:    func(x *api.Variable) string { return join(string(x.Namespace), string(x.Path)) },
		meta:   (*api.Variable).GetMeta,
		put:    (*state.Tx).PutVariable,
		remove: (*state.Tx).DeleteVariable,
		get:    func(v state.View, x *api.Variable) *api.Variable { return v.Variable(x.Namespace, x.Path) },
	})
}

func TestVariableContentsMatchAModel(t *testing.T) {
	t.Parallel()
	checkTable(t, table[state.VariableContent]{
		like: func(t *rapid.T) *state.VariableContent {
			return &state.VariableContent{Namespace: pick[api.NamespaceID](t, "namespace"), Path: pick[api.VariablePath](t, "path")}
		},
		key:    func(c *state.VariableContent) string { return join(string(c.Namespace), string(c.Path)) },
		put:    (*state.Tx).PutVariableContent,
		remove: (*state.Tx).DeleteVariableContent,
		get: func(v state.View, c *state.VariableContent) *state.VariableContent {
			return v.VariableContent(c.Namespace, c.Path)
		},
	})
}

func TestRoomsMatchAModel(t *testing.T) {
	t.Parallel()
	id := func(r *api.Room) string { return join(string(r.PluginID), string(r.ID)) }
	checkTable(t, table[api.Room]{
		like: func(t *rapid.T) *api.Room {
			return &api.Room{PluginID: pick[api.PluginID](t, "plugin"), ID: pick[api.RoomID](t, "id")}
		},
		key:    id,
		meta:   (*api.Room).GetMeta,
		put:    (*state.Tx).PutRoom,
		remove: (*state.Tx).DeleteRoom,
		get:    func(v state.View, r *api.Room) *api.Room { return v.Room(r.PluginID, r.ID) },
		queries: map[string]query[api.Room]{
			"PluginRooms": {
				func(v state.View, r *api.Room) iter.Seq[*api.Room] { return v.PluginRooms(r.PluginID) },
				func(row, like *api.Room) bool { return row.PluginID == like.PluginID }, id,
			},
		},
	})
}
