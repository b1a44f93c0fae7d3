package controllertest_test

import (
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
)

// shot is a snapshot at the provider.
type shot struct {
	name, source string
	// asked counts the calls that asked how far it is.
	asked int
}

// shotPrefix is how the provider's ids of snapshots begin.
const shotPrefix = "shot-"

func (p *provider) snapshot(r *api.SnapshotRequest) *api.SnapshotResult {
	id := shotPrefix + r.Name
	s := p.shots[id]
	switch {
	case s == nil && p.volumes[r.SourceID] == nil:
		p.t.Fatalf("a snapshot is made of volume %s, which is not there", r.SourceID)
	case s == nil:
		s = &shot{name: r.Name, source: r.SourceID}
		p.shots[id] = s
	case s.source != r.SourceID:
		p.t.Fatalf("snapshot %s is of volume %s, and asked for of %s", r.Name, s.source, r.SourceID)
	default:
		s.asked++
	}
	return &api.SnapshotResult{ExternalID: id, Size: 1 << 20, Ready: s.asked >= p.works}
}

// deleteSnapshot checks that nobody is making a volume from it.
func (p *provider) deleteSnapshot(r *api.DeleteSnapshotRequest) { delete(p.shots, r.ExternalID) }

// from checks the snapshot that a volume is to begin as.
func (p *provider) from(id string) {
	s := p.shots[id]
	if strings.HasPrefix(id, shotPrefix) && (s == nil || s.asked < p.works) {
		p.t.Fatalf("a volume is made from snapshot %s, which is not there or not ready", id)
	}
}

// keeps reports whether the provider refuses to delete a volume because of
// snapshots: some do, in bad times.
func (p *provider) keeps(op *api.Operation) bool {
	if !p.troubled || !p.depends || op.Kind != api.OperationDelete {
		return false
	}
	for _, s := range p.shots {
		if s.source == op.Request.Delete.ExternalID {
			return true
		}
	}
	return false
}

func snapshotID(t *rapid.T) api.SnapshotID {
	return oneOf[api.SnapshotID](t, "snapshot", "s1", "s2", "s3")
}

func (s *sim) drawSnapshot() command.Command {
	s.sequence++
	return &command.CreateSnapshot{
		Namespace: api.DefaultNamespace, ID: snapshotID(s.t), UID: fmt.Sprintf("snapshot-%d", s.sequence), VolumeID: volumeID(s.t), Owner: api.OwnerUser,
		Spec: api.SnapshotSpec{Keep: oneOf(s.t, "keep", 0, 0, api.Duration(time.Hour))},
	}
}

// checkSnapshots checks that a snapshot is made alone, that no schedule has two
// that are being made, and that everything of the provider's is known.
func (s *sim) checkSnapshots() {
	v := s.store.View()
	calls := map[api.VolumeID][]*api.Operation{}
	for op := range v.Operations() {
		if op.Status.State == api.OperationAssigned && op.Kind != api.OperationDeleteSnapshot {
			calls[op.VolumeID] = append(calls[op.VolumeID], op)
		}
	}
	for vol, ops := range calls {
		for _, op := range ops {
			if op.Kind == api.OperationSnapshot && len(ops) > 1 {
				s.t.Fatalf("volume %s has %d calls under way, one of which is %s", vol, len(ops), op.ID)
			}
		}
	}
	making, known := map[string]int{}, map[string]bool{}
	for snap := range v.Snapshots("") {
		known[shotPrefix+"berth-snap-"+snap.UID] = true
		if snap.Owner == api.OwnerSchedule && snap.Status.State == api.SnapshotCreating {
			making[snap.VolumeUID]++
		}
		if making[snap.VolumeUID] > 1 {
			s.t.Fatalf("the schedule of volume %s has several snapshots that are being made", snap.VolumeID)
		}
	}
	for id := range s.provider.shots {
		if !known[id] {
			s.t.Fatalf("the provider has snapshot %s, and nobody knows it", id)
		}
	}
}

// checkKept checks that every schedule has as many as are to stay, and that what
// a user made without a time is there, if the plugin made it.
func (s *sim) checkKept() {
	v := s.store.View()
	for vol := range v.ScheduledVolumes() {
		ready := 0
		for snap := range v.VolumeSnapshots(vol.Namespace, vol.ID) {
			if snap.Owner == api.OwnerSchedule && snap.VolumeUID == vol.UID && snap.Status.State == api.SnapshotReady && command.BeingMadeFrom(v, snap) == nil {
				ready++
			}
		}
		if ready > vol.Spec.SnapshotSchedule.Keep {
			s.t.Fatalf("the schedule of volume %s has %d snapshots that are ready, and keeps %d", vol.ID, ready, vol.Spec.SnapshotSchedule.Keep)
		}
	}
	for snap := range v.Snapshots("") {
		if snap.Status.State == api.SnapshotReady && s.provider.shots[snap.Status.ExternalID] == nil {
			s.t.Fatalf("snapshot %s is ready, and the provider has it not", snap.ID)
		}
	}
}
