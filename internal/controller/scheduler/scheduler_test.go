package scheduler_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/controller/controllertest"
	"github.com/berth-dev/berth/internal/controller/scheduler"
	"github.com/berth-dev/berth/internal/state/statetest"
)

func TestReconcile(t *testing.T) {
	t.Parallel()
	controllertest.Run(t, scheduler.Controller{})
}

func TestPendingIsWhatIsNotSettled(t *testing.T) {
	t.Parallel()
	const world = `
job {"id":"new"}
job {"id":"settled","status":{"settled":true}}
job {"namespace":"other","id":"stopped","desired":"absent"}
`
	controllertest.Pending(t, scheduler.Controller{}, world,
		scheduler.JobKey("default", "new"), scheduler.JobKey("other", "stopped"))
}

// A plan is made on a fork, where a spec is still as its user wrote it; from
// the log it comes without empty lists.
func TestEmptyListInASpecStopsNothing(t *testing.T) {
	t.Parallel()
	fork := statetest.Load(t, `
node {"id":"n1","status":{"state":"ready"}}
job {"id":"db","spec":{"groups":[{"count":1}]}}
allocation {"id":"a1","job_id":"db","node_id":"n1","status":{"state":"running"}}
`).Fork()
	fork.At(statetest.Now())
	changed := &command.ApplyJob{Namespace: "default", ID: "db", Spec: api.JobSpec{Type: api.JobService, Groups: []api.TaskGroup{
		{Name: "g", Count: 1, Volumes: []api.VolumeRequest{}}, {Name: "new"},
	}}}
	if err := changed.Apply(fork); err != nil {
		t.Fatal(err)
	}
	plan, err := scheduler.Controller{}.Reconcile(fork.View, statetest.Now(), scheduler.JobKey("default", "db"))
	if err != nil {
		t.Fatal(err)
	}
	want := `job.settle {"namespace":"default","id":"db","version":2}` + "\n"
	if diff := cmp.Diff(want, controllertest.Format(t, plan, nil)); diff != "" {
		t.Errorf("plan differs (-want +got):\n%s", diff)
	}
}
