// Package scheduler chooses nodes for allocations.
//
// It never starts or stops anything itself; it says what is wanted. Invariant:
// an allocation is placed together with all the holds that it needs, in one
// plan, or not at all; and no slot of a group has two allocations that are meant
// to run, but one that is being exchanged and holds nothing that is for one.
package scheduler

import (
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/state"
)

// Controller settles jobs.
type Controller struct{}

// Name implements controller.Controller.
func (Controller) Name() string { return "scheduler" }

const (
	jobKey    = "job/"
	healthKey = "health/"
	drainKey  = "drain/"
)

// JobKey is the key of a job.
func JobKey(ns api.NamespaceID, id api.JobID) controller.Key {
	return controller.Key(jobKey + string(ns) + "/" + string(id))
}

// HealthKey is the key of a job whose newest revision is being watched.
func HealthKey(ns api.NamespaceID, id api.JobID) controller.Key {
	return controller.Key(healthKey + string(ns) + "/" + string(id))
}

// Pending implements controller.Controller.
func (Controller) Pending(v state.View) iter.Seq[controller.Key] {
	return func(yield func(controller.Key) bool) {
		for job := range v.UnsettledJobs() {
			if !yield(JobKey(job.Namespace, job.ID)) {
				return
			}
		}
		for job := range v.UnstableJobs() {
			if !yield(HealthKey(job.Namespace, job.ID)) {
				return
			}
		}
		for key := range draining(v) {
			if !yield(key) {
				return
			}
		}
	}
}

// Reconcile implements controller.Controller.
func (Controller) Reconcile(v state.View, now time.Time, k controller.Key) (controller.Plan, error) {
	for prefix, reconcile := range map[string]func(state.View, time.Time, api.NamespaceID, api.JobID) controller.Plan{
		jobKey: reconcileJob, healthKey: reconcileHealth, drainKey: reconcileDrain,
	} {
		name, is := strings.CutPrefix(string(k), prefix)
		if ns, id, ok := strings.Cut(name, "/"); is && ok {
			return reconcile(v, now, api.NamespaceID(ns), api.JobID(id)), nil
		}
	}
	return controller.Plan{}, fmt.Errorf("key %q names no job", k)
}
