package scheduler

import (
	"fmt"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/fit"
)

// turn says who should have a volume first, or "": a job that has waited
// longer, or has a higher priority, would be kept from it by these attachments,
// and could be placed now.
func (p *pass) turn(attachments []*api.Attachment) string {
	if p.hypothetical {
		return ""
	}
	for _, a := range attachments {
		for other := range p.v.JobsFor(a.Namespace, a.VolumeID) {
			if other.UID != p.job.UID && before(other, p.job) && mayKeep(other, a) && p.keeps(other, a) {
				why := "has waited longer"
				if priority(other) != priority(p.job) {
					why = "has a higher priority"
				}
				return fmt.Sprintf("volume %s: it is the turn of job %s, which %s", a.VolumeID, other.ID, why)
			}
		}
	}
	return ""
}

// before is the order in which jobs get what several of them wait for.
func before(a, b *api.Job) bool {
	x, y := priority(a), priority(b)
	switch {
	case x != y:
		return x > y
	case !a.Status.Waiting.Equal(b.Status.Waiting):
		return a.Status.Waiting.Before(b.Status.Waiting)
	}
	return a.UID < b.UID
}

func priority(j *api.Job) int {
	if j.Spec.Priority == 0 {
		return api.DefaultPriority
	}
	return j.Spec.Priority
}

// mayKeep reports whether the hold could keep the other job from the volume,
// wherever it were placed.
func mayKeep(other *api.Job, mine *api.Attachment) bool {
	for i := range other.Spec.Groups {
		for _, r := range other.Spec.Groups[i].Volumes {
			want := &api.Attachment{
				VolumeID: mine.VolumeID, NodeID: "anywhere else", ReadOnly: r.ReadOnly, AccessMode: r.AccessMode, AttachmentMode: r.AttachmentMode,
			}
			if r.Source == mine.VolumeID && fit.Hold(want, []*api.Attachment{mine}) != "" {
				return true
			}
		}
	}
	return false
}

// keeps reports whether the hold would keep the other job from a placement
// that it would get now.
func (p *pass) keeps(other *api.Job, mine *api.Attachment) bool {
	theirs := newPass(p.v, p.now, other)
	theirs.hypothetical = true
	theirs.reconcile()
	for _, c := range theirs.plan.Commands {
		place, ok := c.(*command.PlaceAllocation)
		if !ok {
			continue
		}
		requests, _ := theirs.volumes(other.Spec.Group(place.Group))
		for _, want := range theirs.attachments(requests, place.NodeID, place.Serial) {
			if want.VolumeID == mine.VolumeID && fit.Hold(want, []*api.Attachment{mine}) != "" {
				return true
			}
		}
	}
	return false
}
