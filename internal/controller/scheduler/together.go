package scheduler

import (
	"fmt"
	"slices"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
)

// A job takes the volumes of its empty places at once, or none of them. Two jobs
// that want the same volumes would else have one each and wait for the other for
// ever.
//
// A place that an allocation has had before is filled by itself: a database that
// fell over does not wait for what another group lacks. It does where that would
// close a circle: another job has what this one lacks, and lacks what the place
// would take.

// absence is a volume that a place of the job lacks because it is another
// job's, or will be.
type absence struct {
	at     place
	volume *api.Volume
	reason string
	// owners are the jobs that hold it; none where it is another job's turn.
	owners []api.JobID
}

// apart says what a place waits for with the rest of its job, or nil.
func (p *pass) apart(at place, after successor, requests []wanted) *lack {
	if !slices.ContainsFunc(requests, func(w wanted) bool { return w.request.Ephemeral == nil }) {
		return nil
	}
	for i := range p.absences() {
		missing := &p.absent[i]
		if missing.at == at {
			return nil // it says so itself
		}
	}
	for i := range p.absent {
		missing := &p.absent[i]
		if after.id == "" {
			return &lack{reason: fmt.Sprintf("the job takes its volumes at once, and %s lacks one: %s", p.slot(missing.at), missing.reason)}
		}
		for _, owner := range missing.owners {
			if p.circular(owner, requests, map[api.JobID]bool{p.job.ID: true}) {
				return &lack{reason: fmt.Sprintf("job %s, which has volume %s that %s lacks, waits for what this would take", owner, missing.volume.ID, p.slot(missing.at))}
			}
		}
	}
	return nil
}

// circular reports whether another job waits for what a place would take, or for
// what a third one has that does.
func (p *pass) circular(id api.JobID, requests []wanted, seen map[api.JobID]bool) bool {
	if seen[id] {
		return false
	}
	seen[id] = true
	other := p.v.Job(p.job.Namespace, id)
	if other == nil || other.Desired != api.Present || other.Status.Settled {
		return false
	}
	theirs := newPass(p.v, p.now, other)
	theirs.hypothetical, theirs.fleet = true, p.nodes().anew()
	for at := range theirs.empty() {
		if !theirs.possible(at.group) {
			continue // it waits for more than volumes, perhaps for ever
		}
		for _, r := range at.group.Attached() {
			for _, w := range requests {
				if r.Ephemeral == nil && w.request.Ephemeral == nil && r.VolumeFor(at.index) == w.volume.ID && p.collide(r, w) {
					return true
				}
			}
		}
	}
	for _, missing := range theirs.absences() {
		for _, owner := range missing.owners {
			if p.circular(owner, requests, seen) {
				return true
			}
		}
	}
	return false
}

// possible reports whether some node is one for the group.
func (p *pass) possible(group *api.TaskGroup) bool {
	return slices.ContainsFunc(p.nodes().nodes, func(n *api.Node) bool { return p.takes(n, group) && p.lasting(n, group) == "" })
}

// collide reports whether two requests cannot hold one volume together on any
// node.
func (p *pass) collide(r *api.VolumeRequest, w wanted) bool {
	var on *api.Instance
	if r.AccessMode == api.SingleNodeMultiWriter || w.request.AccessMode == api.SingleNodeMultiWriter {
		on = p.nodes().sharing(w.volume.Spec.PluginID)
	}
	return fit.Hold(anywhere(r), []*api.Attachment{anywhere(w.request)}, on) != ""
}

// anywhere is what a request would hold wherever it is placed: on the same node
// as all others.
func anywhere(r *api.VolumeRequest) *api.Attachment {
	return &api.Attachment{ReadOnly: r.ReadOnly, AccessMode: r.AccessMode, AttachmentMode: r.AttachmentMode}
}

// absences are what the job's empty places lack of other jobs, looked for once in
// a pass. A volume that is not there yet is nobody's.
func (p *pass) absences() []absence {
	if p.absent != nil || p.everywhere() {
		return p.absent
	}
	p.absent = []absence{}
	for at := range p.empty() {
		for _, r := range at.group.Attached() {
			if r.Ephemeral != nil {
				continue
			}
			vol := p.v.Volume(p.job.Namespace, r.VolumeFor(at.index))
			if vol == nil {
				continue
			}
			if missing := p.absence(at, r, vol); missing != nil {
				p.absent = append(p.absent, *missing)
			}
		}
	}
	return p.absent
}

// absence says of one request whose the volume is, or nil.
func (p *pass) absence(at place, r *api.VolumeRequest, vol *api.Volume) *absence {
	var owners []api.JobID
	reason := ""
	for h := range p.v.Holders(vol.Namespace, vol.ID) {
		if h.JobID == p.job.ID || p.moving[h.AllocID] {
			continue
		}
		want := anywhere(r)
		want.NodeID, want.PluginID = h.NodeID, vol.Spec.PluginID
		if why := fit.Hold(want, []*api.Attachment{h}, p.nodes().instance(want.PluginID, h.NodeID)); why != "" {
			if reason == "" {
				reason = fmt.Sprintf("volume %s: %s", vol.ID, why)
			}
			if !slices.Contains(owners, h.JobID) {
				owners = append(owners, h.JobID)
			}
		}
	}
	if reason == "" && r.AccessMode != api.SingleNodeMultiWriter {
		mine := anywhere(r)
		mine.Namespace, mine.VolumeID = vol.Namespace, vol.ID
		if lack := p.turn([]wanted{{r, vol}}, []*api.Attachment{mine}); lack != nil {
			reason = lack.reason
		}
	}
	if reason == "" {
		return nil
	}
	return &absence{at: at, volume: vol, reason: reason, owners: owners}
}

// empty yields the places of the job that are to be filled, now or after a
// delay. Those that gave up are not.
func (p *pass) empty() func(func(place) bool) {
	return func(yield func(place) bool) {
		if p.job.Desired != api.Present {
			return
		}
		for i := range p.job.Spec.Groups {
			group := &p.job.Spec.Groups[i]
			if len(group.Attached()) == 0 {
				continue
			}
			for at, a := range p.places(group) {
				taken := a != nil && (!a.Terminal() || p.finished(a, group))
				if taken || p.job.Status.GiveUpOf(group.Name, at.index) != nil {
					continue
				}
				if !yield(at) {
					return
				}
			}
		}
	}
}
