package scheduler

import (
	"fmt"
	"iter"
	"slices"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// rivals is how many of those who are before a job are asked what they would
// get. Who waits longest is asked first, and nearly always could be placed. The
// others wait for something else as well, and the volume goes on without them.
const rivals = 8

// turn says who should have a volume first, or nil: a job that has waited
// longer, or has a higher priority, would be kept from it by these attachments,
// and could be placed now. A place that gave up is not placed, so nobody
// yields to it.
func (p *pass) turn(requests []wanted, attachments []*api.Attachment) *lack {
	if p.hypothetical {
		return nil
	}
	for i, a := range attachments {
		for _, other := range p.before(a) {
			if p.keeps(other, a) {
				return &lack{request: requests[i].request, volume: a.VolumeID, reason: p.yield(other, a)}
			}
		}
	}
	return nil
}

// before are the jobs that are before this one in the order, and that a hold
// may keep from the volume: the first of them, in that order.
func (p *pass) before(mine *api.Attachment) []*api.Job {
	var first []*api.Job
	for other := range p.v.JobsFor(mine.Namespace, mine.VolumeID) {
		if other.UID == p.job.UID || !before(other, p.job) || !mayKeep(other, mine) {
			continue
		}
		i, _ := slices.BinarySearchFunc(first, other, func(a, b *api.Job) int {
			if before(a, b) {
				return -1
			}
			return 1
		})
		if i < rivals {
			first = slices.Insert(first[:min(len(first), rivals-1)], i, other)
		}
	}
	return first
}

// Queue are the jobs with empty places that want a volume, in the order in which
// they get it, and what those places are called.
func Queue(v state.View, vol *api.Volume) (jobs []*api.Job, places map[string][]string) {
	places = map[string][]string{}
	for job := range v.JobsFor(vol.Namespace, vol.ID) {
		for slot, id := range Empty(v, job) {
			if id == vol.ID {
				places[job.UID] = append(places[job.UID], slot)
			}
		}
		if len(places[job.UID]) > 0 {
			jobs = append(jobs, job)
		}
	}
	slices.SortFunc(jobs, func(a, b *api.Job) int {
		if before(a, b) {
			return -1
		}
		return 1
	})
	return jobs, places
}

// Empty yields the volumes that a job wants for its places where nobody is to
// stay, by what waits call those. Of a job that runs everywhere the places are
// the nodes; it has none here.
func Empty(v state.View, job *api.Job) iter.Seq2[string, api.VolumeID] {
	return func(yield func(string, api.VolumeID) bool) {
		if job.Desired != api.Present || job.Spec.Type.Everywhere() {
			return
		}
		p := &pass{job: job}
		for i := range job.Spec.Groups {
			g := &job.Spec.Groups[i]
			requests := slices.DeleteFunc(g.Attached(), func(r *api.VolumeRequest) bool { return r.Ephemeral != nil })
			for index := 0; len(requests) > 0 && index < g.Count; index++ {
				at := place{group: g, index: index}
				if filled(v, job, at) {
					continue
				}
				for _, r := range requests {
					if !yield(p.slot(at), r.VolumeFor(index)) {
						return
					}
				}
			}
		}
	}
}

// filled reports whether somebody is at a place, and is to stay; of what ends
// there may be several besides. Who has done what a batch was for stays too.
func filled(v state.View, job *api.Job, at place) bool {
	for a := range v.PlaceAllocations(job.UID, at.group.Name, at.index) {
		if a.Desired == api.DesireRun && (!a.Terminal() || job.Spec.Type.Ends() && a.Status.State == api.AllocComplete) {
			return true
		}
	}
	return false
}

// yield says whose turn it is.
func (p *pass) yield(other *api.Job, a *api.Attachment) string {
	why := "has waited longer"
	if priority(other) != priority(p.job) {
		why = "has a higher priority"
	}
	return fmt.Sprintf("volume %s: it is the turn of job %s, which %s", a.VolumeID, other.ID, why)
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
	family, _, _ := mine.VolumeID.Family()
	for i := range other.Spec.Groups {
		for _, r := range other.Spec.Groups[i].Attached() {
			if r.PerAlloc && r.Source != family || !r.PerAlloc && r.Source != mine.VolumeID {
				continue
			}
			want := &api.Attachment{
				VolumeID: mine.VolumeID, NodeID: "anywhere else", ReadOnly: r.ReadOnly, AccessMode: r.AccessMode, AttachmentMode: r.AttachmentMode,
			}
			if fit.Hold(want, []*api.Attachment{mine}, nil) != "" {
				return true
			}
		}
	}
	return false
}

// keeps reports whether the hold would keep the other job from a placement
// that it would get now.
func (p *pass) keeps(other *api.Job, mine *api.Attachment) bool {
	for _, want := range p.would(other) {
		if want.VolumeID != mine.VolumeID || want.Namespace != mine.Namespace {
			continue
		}
		if fit.Hold(want, []*api.Attachment{mine}, p.fleet.instance(want.PluginID, want.NodeID)) != "" {
			return true
		}
	}
	return false
}

// would are the holds that another job would get now if it had the first word.
// It is asked once in a pass.
func (p *pass) would(other *api.Job) []*api.Attachment {
	theirs := p.theirs[other.UID]
	if theirs == nil {
		theirs = newPass(p.v, p.now, other)
		theirs.hypothetical = true
		theirs.fleet = p.nodes().anew()
		theirs.reconcile()
		if p.theirs == nil {
			p.theirs = map[string]*pass{}
		}
		p.theirs[other.UID] = theirs
	}
	return theirs.fleet.planned
}
