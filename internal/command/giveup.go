package command

import (
	"slices"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

// GiveUpPlace notes that a place in a group has waited for a volume for as long
// as its job allows. It stays empty until the job is applied again.
type GiveUpPlace struct {
	Namespace api.NamespaceID `json:"namespace"`
	ID        api.JobID       `json:"id"`
	Version   uint64          `json:"version"`
	Group     string          `json:"group"`
	Index     int             `json:"index"`
	Request   string          `json:"request"`
	VolumeID  api.VolumeID    `json:"volume_id"`
	Reason    string          `json:"reason"`
	Since     time.Time       `json:"since"`
}

// Kind implements Command.
func (*GiveUpPlace) Kind() Kind { return "job.giveup" }

// Validate implements Command.
func (c *GiveUpPlace) Validate() error {
	var p api.Problems
	if c.Index < 0 {
		p.Add("index", "is negative", "count from 0")
	}
	if c.Reason == "" {
		p.Add("reason", "is empty", "say why")
	}
	return p.Err("the end of the wait")
}

// Apply implements Command.
func (c *GiveUpPlace) Apply(tx *state.Tx) error {
	job := tx.Job(c.Namespace, c.ID)
	if job == nil || job.Version != c.Version || job.Desired == api.Absent {
		return conflict("job %s has changed", c.ID)
	}
	group := job.Spec.Group(c.Group)
	if group == nil || c.Index >= group.Count && !job.Spec.Type.Everywhere() {
		return conflict("job %s has no %s[%d]", c.ID, c.Group, c.Index)
	}
	for a := range tx.PlaceAllocations(job.UID, c.Group, c.Index) {
		if !a.Terminal() && !a.Replaced {
			return conflict("%s is there: allocation %s", a.Name(), a.ID.Short())
		}
	}
	if job.Status.GiveUpOf(c.Group, c.Index) != nil {
		return conflict("%s[%d] of job %s has given up already", c.Group, c.Index, c.ID)
	}
	next := *job
	next.Status.GaveUp = append(slices.Clip(job.Status.GaveUp), api.GiveUp{
		Group: c.Group, Index: c.Index, Request: c.Request, VolumeID: c.VolumeID, Reason: c.Reason, Since: c.Since, Time: tx.Now(),
	})
	tx.PutJob(&next)
	return nil
}
