package assignment

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"

	"github.com/berth-dev/berth/api"
)

// Facts holds the level of everything that a node reports, and what of it the
// servers have not acknowledged. It is safe for concurrent use.
type Facts struct {
	mu      sync.Mutex // guards below
	levels  map[string]level
	dirty   map[string]bool
	last    uint64 // the newest level's version
	gone    func(api.InstanceFact)
	changed chan struct{} // capacity 1: something is dirty
}

// level is one fact; add puts it into a report.
type level struct {
	fact    any
	version uint64 // tells it from those before and after it
	add     func(*api.Facts)
	// once: the fact is about something that is over, and is forgotten when it
	// is acknowledged.
	once bool
	// heard is called when one that is said once was acknowledged; nil for nobody.
	heard func()
}

// NewFacts returns an empty set.
func NewFacts() *Facts {
	return &Facts{levels: map[string]level{}, dirty: map[string]bool{}, changed: make(chan struct{}, 1), gone: func(api.InstanceFact) {}}
}

// set takes a level. One that is as it was is not said again: everything that
// runs is looked at twice a minute, and each report is an entry of the log.
func (f *Facts) set(key string, l level) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old, known := f.levels[key]; known && reflect.DeepEqual(old.fact, l.fact) {
		return
	}
	f.last++
	l.version = f.last
	f.levels[key] = l
	f.dirty[key] = true
	f.nudge()
}

func (f *Facts) nudge() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// SetDrivers says how the task drivers are.
func (f *Facts) SetDrivers(drivers map[string]api.Driver) {
	f.set("drivers", level{fact: drivers, add: func(r *api.Facts) { r.Drivers = drivers }})
}

// Allocation is how an allocation was last said to be, or nil.
func (f *Facts) Allocation(id api.AllocID) *api.AllocStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	if said, ok := f.levels["allocation/"+string(id)].fact.(api.AllocFact); ok {
		return &said.Status
	}
	return nil
}

// Gone has somebody hear of every instance of which the servers know that it is
// gone. It is called before the first report.
func (f *Facts) Gone(heard func(api.InstanceFact)) { f.gone = heard }

// SetInstance says how a plugin instance is.
func (f *Facts) SetInstance(i api.InstanceFact) {
	f.set("instance/"+string(i.PluginID)+"/"+string(i.AllocID)+"/"+string(i.Type), level{fact: i, once: i.Gone, heard: func() { f.gone(i) }, add: func(r *api.Facts) {
		r.Instances = append(r.Instances, i)
	}})
}

// SetAllocation says how an allocation is.
func (f *Facts) SetAllocation(a api.AllocFact) {
	f.set("allocation/"+string(a.ID), level{fact: a, add: func(r *api.Facts) { r.Allocations = append(r.Allocations, a) }})
}

// SetAttachment says how far the node is with an attachment.
func (f *Facts) SetAttachment(a api.AttachmentFact) {
	f.set(attachmentKey(a.AllocID, a.Name), level{fact: a, add: func(r *api.Facts) { r.Attachments = append(r.Attachments, a) }})
}

// RepeatAttachment says how far the node is with an attachment of which the
// servers show that they do not know, although it may have been said: they may
// have been put back since.
func (f *Facts) RepeatAttachment(a api.AttachmentFact) {
	f.SetAttachment(a)
	f.again(versions{attachmentKey(a.AllocID, a.Name): 0})
}

// SetPublication says whether a volume is staged.
func (f *Facts) SetPublication(p api.PublicationFact) {
	f.set("publication/"+string(p.Namespace)+"/"+string(p.VolumeID), level{fact: p, once: !p.Staged, add: func(r *api.Facts) {
		r.Publications = append(r.Publications, p)
	}})
}

// SetOperation says what came of an attempt.
func (f *Facts) SetOperation(o api.OperationFact) {
	f.set(operationKey(o.ID, o.Attempt), level{fact: o, add: func(r *api.Facts) { r.Operations = append(r.Operations, o) }})
}

// SetCleared says that the node runs nothing that the servers of a generation do
// not know, and what it had for that.
func (f *Facts) SetCleared(generation uint64, left []api.LeftVolume) {
	f.set("cleared", level{fact: generation, add: func(r *api.Facts) { r.Cleared, r.Left = generation, left }})
}

// SetUndone says that nothing of the epochs before this one runs or is mounted.
func (f *Facts) SetUndone(epoch uint64) {
	f.set("undone", level{fact: epoch, add: func(r *api.Facts) { r.Undone = epoch }})
}

// SetRemains says what of the epochs before this one cannot be undone yet, and
// why; empty if nothing is known to be left.
func (f *Facts) SetRemains(what string) {
	f.set("remains", level{fact: what, add: func(r *api.Facts) { r.Remains = what }})
}

// ForgetOperation forgets an attempt that is not assigned any more.
func (f *Facts) ForgetOperation(id api.OperationID, attempt int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget(operationKey(id, attempt))
}

func operationKey(id api.OperationID, attempt int) string {
	return "operation/" + string(id) + "/" + strconv.Itoa(attempt)
}

// ForgetAllocation forgets an allocation that the servers no longer know.
func (f *Facts) ForgetAllocation(id api.AllocID, attachments []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget("allocation/" + string(id))
	for _, name := range attachments {
		f.forget(attachmentKey(id, name))
	}
}

func (f *Facts) forget(key string) {
	delete(f.levels, key)
	delete(f.dirty, key)
}

func attachmentKey(id api.AllocID, name string) string {
	return "attachment/" + string(id) + "/" + name
}

// maxFacts bounds a report.
const maxFacts = 500

// versions names the levels that a report carries.
type versions map[string]uint64

// take collects what is dirty, in a stable order, and marks it clean. Of what
// it took, the caller says acknowledge or again.
func (f *Facts) take(limit int) (api.Facts, versions) {
	f.mu.Lock()
	defer f.mu.Unlock()
	keys := slices.Sorted(maps.Keys(f.dirty))
	if len(keys) > limit {
		keys = keys[:limit]
		f.nudge()
	}
	var facts api.Facts
	taken := versions{}
	for _, k := range keys {
		l := f.levels[k]
		l.add(&facts)
		taken[k] = l.version
		delete(f.dirty, k)
	}
	return facts, taken
}

// acknowledge notes that the servers have what was taken. What was to be said
// once is forgotten, unless it has changed since.
func (f *Facts) acknowledge(taken versions) {
	for _, heard := range f.over(taken) {
		heard()
	}
}

// over forgets what was to be said once, and answers whom to tell.
func (f *Facts) over(taken versions) (heard []func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(taken)) {
		l := f.levels[k]
		if !l.once || l.version != taken[k] {
			continue
		}
		f.forget(k)
		if l.heard != nil {
			heard = append(heard, l.heard)
		}
	}
	return heard
}

// again marks what was taken dirty: it has not become a report.
func (f *Facts) again(taken versions) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k := range taken {
		if _, known := f.levels[k]; known {
			f.dirty[k] = true
			f.nudge()
		}
	}
}

// all marks every level dirty: the servers may know nothing of them.
func (f *Facts) all() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k := range f.levels {
		f.dirty[k] = true
	}
	if len(f.levels) > 0 {
		f.nudge()
	}
}
