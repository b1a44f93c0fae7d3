package snapshotter

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/cron"
	"github.com/berth-dev/berth/internal/state"
)

// maxMoved bounds the schedules that one plan moves on.
const maxMoved = 64

// schedules moves on every schedule whose time has come. It reads those only,
// and the one that comes next.
func schedules(v state.View, now time.Time) (p controller.Plan) {
	moved, taken := 0, map[snapshotName]bool{}
	for vol := range v.ScheduledVolumes() {
		s := vol.Status.Schedule
		if s != nil && !s.Next.IsZero() && !s.Excess && now.Before(s.Next) {
			p.WakeAt(s.Next)
			return p
		}
		p.Add(move(v, now, vol, taken)...)
		if moved++; moved == maxMoved {
			return p
		}
	}
	return p
}

// snapshotName names a snapshot.
type snapshotName struct {
	ns api.NamespaceID
	id api.SnapshotID
}

// move deletes what need not stay, makes a snapshot if one is due, and plans the
// next. taken are the names that the plan gives.
func move(v state.View, now time.Time, vol *api.Volume, taken map[snapshotName]bool) (commands []command.Command) {
	for _, s := range command.Excess(v, vol) {
		if command.BeingMadeFrom(v, s) == nil {
			commands = append(commands, &command.DeleteSnapshot{Namespace: s.Namespace, ID: s.ID, Version: s.Version, Retention: true})
		}
	}
	next := &command.ScheduleSnapshots{Namespace: vol.Namespace, VolumeID: vol.ID, Version: vol.Version}
	times, err := cron.Parse(vol.Spec.SnapshotSchedule.Cron)
	if err != nil {
		// It was read when it was applied. A version that reads it otherwise must not
		// keep other schedules.
		next.Next, next.Missed, next.Reason = now.Add(24*time.Hour), 1, err.Error()
		return append(commands, next)
	}
	next.Next = times.Next(now)
	was := api.ScheduleStatus{}
	if vol.Status.Schedule != nil {
		was = *vol.Status.Schedule
	}
	if was.Next.IsZero() {
		return append(commands, next)
	}
	// Next itself counts, so it is counted from right before it.
	due, count := times.Due(was.Next.Add(-time.Nanosecond), now)
	if count == 0 {
		if was.Next.After(now) {
			next.Next = was.Next
		}
		return append(commands, next)
	}
	if open := beingMade(v, vol); open != nil {
		next.Missed = count
		next.Reason = fmt.Sprintf("snapshot %s, the one before, is still being made", open.ID)
		return append(commands, next)
	}
	id := name(v, vol, due, taken)
	next.Snapshot, next.Due, next.Missed = id, due, was.Skipped+count-1
	switch {
	case was.Skipped > 0:
		next.Reason = was.Reason
	case next.Missed > 0:
		next.Reason = "they passed while no server could make one; there is one snapshot for all of them"
	}
	return append(commands, &command.CreateSnapshot{
		Namespace: vol.Namespace, ID: id, UID: uid(vol, due), VolumeID: vol.ID, Owner: api.OwnerSchedule, Scheduled: due,
		Spec: api.SnapshotSpec{Parameters: vol.Spec.SnapshotSchedule.Parameters},
	}, next)
}

// beingMade is the schedule's snapshot that is not made yet, or nil.
func beingMade(v state.View, vol *api.Volume) *api.Snapshot {
	for s := range v.VolumeSnapshots(vol.Namespace, vol.ID) {
		if s.Owner == api.OwnerSchedule && s.VolumeUID == vol.UID && s.Status.State == api.SnapshotCreating {
			return s
		}
	}
	return nil
}

// maxStem leaves room for the time behind it in a name of 63 characters.
const maxStem = 44

// name is the id of a schedule's snapshot: the volume's, and the time. If it is
// taken, a number follows.
func name(v state.View, vol *api.Volume, due time.Time, taken map[snapshotName]bool) api.SnapshotID {
	stem := strings.NewReplacer("[", "-", "]", "").Replace(string(vol.ID))
	stem = stem[:min(len(stem), maxStem)] + "-" + due.UTC().Format("20060102-1504")
	id := api.SnapshotID(stem)
	for n := 2; taken[snapshotName{vol.Namespace, id}] || v.Snapshot(vol.Namespace, id) != nil; n++ {
		id = api.SnapshotID(fmt.Sprintf("%s-%d", stem, n))
	}
	taken[snapshotName{vol.Namespace, id}] = true
	return id
}

// uid is the same for the same volume and time, and no other.
func uid(vol *api.Volume, due time.Time) string {
	sum := sha256.Sum256([]byte(vol.UID + "/" + due.UTC().Format(time.RFC3339)))
	return hex.EncodeToString(sum[:16])
}
