package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
)

// lack is why a place stays empty: a reason, and the volume request that it is
// about, if it is about one.
type lack struct {
	request *api.VolumeRequest
	volume  api.VolumeID
	reason  string
}

// or is the lack with another reason, or a lack of no volume.
func (l *lack) or(reason string) *lack {
	if l == nil {
		return &lack{reason: reason}
	}
	return &lack{l.request, l.volume, reason}
}

// successor is what is known of who had a place before.
type successor struct {
	id       api.AllocID
	node     api.NodeID
	ended    time.Time
	failures int
	failing  time.Time
	beside   bool
}

// follow is the successor of an allocation that ended.
func follow(a *api.Allocation, failures int, failing time.Time) successor {
	return successor{id: a.ID, node: a.NodeID, ended: a.ModifyTime, failures: failures, failing: failing}
}

// held finds a volume that others hold, wherever the place were, or nil.
func (p *pass) held(requests []wanted, serial uint64) *lack {
	anywhere := p.attachments(requests, "", serial)
	for i, w := range requests {
		holders := slices.Concat(slices.Collect(p.v.Holders(w.volume.Namespace, w.volume.ID)), p.nodes().held(w.volume))
		if reason := holdReason(anywhere[i], holders, nil); reason != "" {
			return &lack{request: w.request, volume: w.volume.ID, reason: reason}
		}
	}
	return nil
}

// wait notes why a place stays empty. One that waits for a volume gives up
// when the time of its request is over; the wait is counted from the end of
// who had the place, or from when the job was applied.
func (p *pass) wait(at place, after successor, why *lack) {
	var next time.Time
	if why.request != nil && why.request.WaitTimeout > 0 {
		since := p.job.Status.Applied
		if after.ended.After(since) {
			since = after.ended
		}
		next = since.Add(time.Duration(why.request.WaitTimeout))
		if !p.now.Before(next) {
			p.giveUp(at, why, since)
			return
		}
	}
	p.plan.Wait(p.slot(at), why.reason, p.job.ModifyTime, next)
}

// giveUp has a place wait no more.
func (p *pass) giveUp(at place, why *lack, since time.Time) {
	p.plan.Add(&command.GiveUpPlace{
		Namespace: p.job.Namespace, ID: p.job.ID, Version: p.job.Version + uint64(len(p.placed)) + p.given,
		Group: at.group.Name, Index: at.index, Request: why.request.Name, VolumeID: why.volume,
		Reason: strings.TrimPrefix(why.reason, noNode), Since: since,
	})
	p.given++
}

// givenUp says of an empty place that it waits no more, and why, if it is so.
func (p *pass) givenUp(at place) bool {
	g := p.job.Status.GiveUpOf(at.group.Name, at.index)
	if g == nil {
		return false
	}
	p.plan.Wait(p.slot(at), fmt.Sprintf("gave up at %s, after %s without volume %s of request %s: %s; apply the job again to try again",
		g.Time.UTC().Format(time.RFC3339), g.Time.Sub(g.Since).Round(time.Second), g.VolumeID, g.Request, g.Reason), g.Time, time.Time{})
	return true
}

// member has a volume of a family made like the first of it, and says what it
// waits for.
func (p *pass) member(r *api.VolumeRequest, id api.VolumeID) string {
	first := r.VolumeFor(0)
	from := p.v.Volume(p.job.Namespace, first)
	switch {
	case id == first:
		return fmt.Sprintf("volume %s does not exist; apply it, and the others of the group are made like it", first)
	case from == nil:
		return fmt.Sprintf("volume %s does not exist, and neither does %s, like which it would be made", id, first)
	case from.Desired == api.Absent:
		return fmt.Sprintf("volume %s does not exist, and %s, like which it would be made, is being deleted", id, first)
	case from.Spec.Registered():
		return fmt.Sprintf("volume %s does not exist, and %s was registered with an external_id, so that no other is made like it; apply %s with its own",
			id, first, id)
	case from.Status.State == api.VolumeFailed:
		return fmt.Sprintf("volume %s does not exist, and %s, like which it would be made, could not be created: %s", id, first, from.Status.Reason)
	}
	if !slices.Contains(p.made, id) && len(p.made) < placementsAPlan {
		p.made = append(p.made, id)
		p.plan.Add(&command.CopyVolume{Namespace: p.job.Namespace, ID: id, From: first, Version: from.Version})
	}
	return fmt.Sprintf("volume %s is to be made like %s", id, first)
}
