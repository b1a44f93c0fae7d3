// Package runnertest has a runner that does nothing and says at once that it is
// done, as with tasks that start and end at once and a driver that answers at
// once. It is the least that a runner has to do.
package runnertest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/localdb"
	"github.com/berth-dev/berth/internal/agent/runner"
)

// New is a runner.Factory.
func New(n runner.Node, record localdb.Allocation) runner.Runner {
	return &obedient{node: n, id: record.Assignment.ID, record: record, changed: make(chan struct{}, 1)}
}

type obedient struct {
	node    runner.Node
	id      api.AllocID
	changed chan struct{} // capacity 1

	mu     sync.Mutex // guards below
	record localdb.Allocation
	forget bool
}

func (o *obedient) ID() api.AllocID { return o.id }

// Work does what is wanted of the allocation now, and rests.
func (o *obedient) Work(context.Context) (rests bool, err error) {
	record, forget := o.now()
	return !forget, o.step(record, forget)
}

func (o *obedient) Addressed() bool {
	select {
	case <-o.changed:
		return true
	default:
		return false
	}
}

func (o *obedient) now() (localdb.Allocation, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.record, o.forget
}

func (o *obedient) step(record localdb.Allocation, forget bool) error {
	a := &record.Assignment
	wanted := !forget && a.Allocation != nil && a.Allocation.Desired == api.DesireRun && !a.Allocation.Terminal() && record.Phase != localdb.PhaseDone
	switch {
	case !wanted:
		if err := o.put(localdb.PhaseDone); err != nil {
			return err
		}
		Attachments(o.node.Facts, a, api.NodeDetached)
		o.node.Facts.SetAllocation(api.AllocFact{ID: o.id, Status: api.AllocStatus{State: api.AllocComplete}})
		if o.node.Down != nil {
			o.node.Down(o.id)
		}
	case Attached(a):
		if err := o.put(localdb.PhaseUp); err != nil {
			return err
		}
		Attachments(o.node.Facts, a, api.NodePublished)
		o.node.Facts.SetAllocation(api.AllocFact{ID: o.id, Status: api.AllocStatus{State: api.AllocRunning}})
	}
	if !forget {
		return nil
	}
	var names []string
	for _, at := range a.Attachments {
		names = append(names, at.Attachment.Name)
	}
	o.node.Facts.ForgetAllocation(o.id, names)
	return o.node.Memory.DeleteAllocation(o.id)
}

// put records the allocation before anything is said of it.
func (o *obedient) put(phase localdb.Phase) error {
	o.mu.Lock()
	o.record.Phase = phase
	record := o.record
	o.mu.Unlock()
	return o.node.Memory.PutAllocation(&record)
}

func (o *obedient) change(f func()) {
	o.mu.Lock()
	f()
	o.mu.Unlock()
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

func (o *obedient) Update(a api.AllocAssignment) { o.change(func() { o.record.Assignment = a }) }
func (o *obedient) Stop()                        { o.change(func() { o.forget = true }) }
func (o *obedient) Again()                       { o.change(func() {}) }
func (o *obedient) Retry()                       { o.change(func() {}) }

func (o *obedient) Phase() localdb.Phase {
	record, _ := o.now()
	return cmp.Or(record.Phase, localdb.PhaseUp)
}

func (*obedient) Note(string, string)        {}
func (*obedient) Running() map[*api.Task]int { return nil }
func (*obedient) Attached() []api.LeftVolume { return nil }
func (*obedient) Serves() []api.PluginID     { return nil }
func (*obedient) Dir() string                { return "/nonexistent" }
func (*obedient) Over(string) bool           { return true }

func (o *obedient) Needs(plugin api.PluginID) bool {
	record, _ := o.now()
	return slices.ContainsFunc(record.Assignment.Attachments, func(at api.AttachmentAssignment) bool { return at.Attachment.PluginID == plugin })
}

// Attached reports whether the node may mount all volumes of an allocation.
func Attached(a *api.AllocAssignment) bool {
	for _, at := range a.Attachments {
		if at.Attachment.Status.State.Before(api.ControllerPublished) {
			return false
		}
	}
	return true
}

// Attachments says that all attachments of an allocation are in a state, and
// what is staged with them.
func Attachments(facts runner.Facts, a *api.AllocAssignment, to api.AttachmentState) {
	for _, at := range a.Attachments {
		f := api.AttachmentFact{AllocID: a.ID, Name: at.Attachment.Name, State: to}
		if to == api.NodePublished {
			f.TargetPath = strings.Join([]string{"/csi", string(a.ID), f.Name}, "/")
		}
		facts.SetAttachment(f)
		facts.SetPublication(api.PublicationFact{
			Namespace: at.Attachment.Namespace, VolumeID: at.Attachment.VolumeID, Staged: to == api.NodePublished,
		})
	}
}
