package controllertest_test

import (
	"fmt"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/controller/collector"
	"github.com/berth-dev/berth/internal/controller/dispatcher"
	"github.com/berth-dev/berth/internal/controller/provisioner"
	"github.com/berth-dev/berth/internal/controller/scheduler"
	"github.com/berth-dev/berth/internal/controller/volumewatcher"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// unsettled is how many objects of each kind wait in a benchmarked fleet.
const unsettled = 16

// BenchmarkPending measures what it costs all controllers to look for work in
// a fleet of so many volumes, each with its job, allocation, publication and
// attachment, of which a few wait. It must not grow with the fleet.
func BenchmarkPending(b *testing.B) {
	controllers := []controller.Controller{
		scheduler.Controller{}, dispatcher.Controller{}, provisioner.Controller{}, volumewatcher.Controller{}, collector.New(collector.DefaultKeep()),
	}
	for _, objects := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("objects=%d", objects), func(b *testing.B) {
			v := fleet(b, objects).View()
			found := 0
			for b.Loop() {
				found = 0
				for _, c := range controllers {
					for range c.Pending(v) {
						found++
					}
				}
			}
			if found != 3*unsettled {
				b.Errorf("found %d keys, want %d", found, 3*unsettled)
			}
		})
	}
}

// fleet is a settled state of so many objects of each kind, beside a few that
// are not settled.
func fleet(b *testing.B, objects int) *state.Store {
	b.Helper()
	store, err := state.New()
	if err != nil {
		b.Fatal(err)
	}
	const perCommit = 1000
	for first := 0; first < objects; first += perCommit {
		tx := store.Begin(uint64(first/perCommit+1), statetest.Now())
		for n := first; n < min(first+perCommit, objects); n++ {
			putObjects(tx, n, n < unsettled)
		}
		tx.Commit()
	}
	return store
}

// putObjects writes a volume and all that uses it; waits leaves the volume, the
// job and the attachment with something to do.
func putObjects(tx *state.Tx, n int, waits bool) {
	vol, job := api.VolumeID(fmt.Sprintf("data-%06d", n)), api.JobID(fmt.Sprintf("db-%06d", n))
	node, alloc := api.NodeID(fmt.Sprintf("n%d", n%100)), api.AllocID(fmt.Sprintf("%032x", n))
	volumeState, attachment, outcome := api.VolumeReady, api.NodePublished, api.OutcomePublished
	if waits {
		volumeState, attachment, outcome = api.VolumeCreating, api.Claimed, api.OutcomeNone
	}
	tx.PutVolume(&api.Volume{
		Namespace: api.DefaultNamespace, ID: vol, Desired: api.Present, Status: api.VolumeStatus{State: volumeState},
	})
	tx.PutJob(&api.Job{
		Namespace: api.DefaultNamespace, ID: job, Desired: api.Present, Status: api.JobStatus{Settled: !waits},
	})
	tx.PutAllocation(&api.Allocation{
		ID: alloc, Namespace: api.DefaultNamespace, JobID: job, NodeID: node, Desired: api.DesireRun,
		Status: api.AllocStatus{State: api.AllocRunning},
	})
	tx.PutPublication(&api.Publication{
		Namespace: api.DefaultNamespace, VolumeID: vol, NodeID: node, Status: api.PublicationStatus{Outcome: outcome},
	})
	tx.PutAttachment(&api.Attachment{
		AllocID: alloc, Name: "data", Namespace: api.DefaultNamespace, VolumeID: vol, NodeID: node, JobID: job,
		Status: api.AttachmentStatus{State: attachment},
	})
}
