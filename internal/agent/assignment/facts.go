package assignment

import (
	"maps"
	"slices"
	"sync"

	"github.com/berth-dev/berth/api"
)

// Facts holds the level of everything that a node reports, and what of it the
// servers have not acknowledged. It is safe for concurrent use.
type Facts struct {
	mu      sync.Mutex // guards below
	levels  map[string]level
	dirty   map[string]bool
	changed chan struct{} // capacity 1: something is dirty
}

// level is one fact; add puts it into a report.
type level struct {
	add func(*api.Facts)
	// once: the fact is about something that happened, and is forgotten when
	// it is acknowledged.
	once bool
}

// NewFacts returns an empty set.
func NewFacts() *Facts {
	return &Facts{levels: map[string]level{}, dirty: map[string]bool{}, changed: make(chan struct{}, 1)}
}

func (f *Facts) set(key string, l level) {
	f.mu.Lock()
	defer f.mu.Unlock()
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
	f.set("drivers", level{add: func(r *api.Facts) { r.Drivers = drivers }})
}

// SetInstance says how a plugin instance is.
func (f *Facts) SetInstance(i api.InstanceFact) {
	f.set("instance/"+string(i.PluginID)+"/"+string(i.AllocID), level{once: i.Gone, add: func(r *api.Facts) {
		r.Instances = append(r.Instances, i)
	}})
}

// SetAllocation says how an allocation is.
func (f *Facts) SetAllocation(a api.AllocFact) {
	f.set("allocation/"+string(a.ID), level{add: func(r *api.Facts) { r.Allocations = append(r.Allocations, a) }})
}

// SetAttachment says how far the node is with an attachment.
func (f *Facts) SetAttachment(a api.AttachmentFact) {
	f.set(attachmentKey(a.AllocID, a.Name), level{add: func(r *api.Facts) { r.Attachments = append(r.Attachments, a) }})
}

// SetPublication says whether a volume is staged.
func (f *Facts) SetPublication(p api.PublicationFact) {
	f.set("publication/"+string(p.Namespace)+"/"+string(p.VolumeID), level{once: !p.Staged, add: func(r *api.Facts) {
		r.Publications = append(r.Publications, p)
	}})
}

// AddOperation says what came of an attempt.
func (f *Facts) AddOperation(o api.OperationFact) {
	f.set("operation/"+string(o.ID), level{once: true, add: func(r *api.Facts) { r.Operations = append(r.Operations, o) }})
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

// take collects what is dirty, in a stable order, and marks it clean.
func (f *Facts) take() api.Facts {
	f.mu.Lock()
	defer f.mu.Unlock()
	keys := slices.Sorted(maps.Keys(f.dirty))
	if len(keys) > maxFacts {
		keys = keys[:maxFacts]
		f.nudge()
	}
	var facts api.Facts
	for _, k := range keys {
		l := f.levels[k]
		l.add(&facts)
		delete(f.dirty, k)
		if l.once {
			delete(f.levels, k)
		}
	}
	return facts
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
