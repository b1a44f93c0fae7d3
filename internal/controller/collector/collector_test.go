package collector_test

import (
	"testing"

	"github.com/berth-dev/berth/internal/controller/collector"
	"github.com/berth-dev/berth/internal/controller/controllertest"
)

func TestReconcile(t *testing.T) {
	t.Parallel()
	controllertest.Run(t, collector.New(collector.DefaultKeep()))
}

func TestPendingIsEachKindOfHistoryThatThereIs(t *testing.T) {
	t.Parallel()
	const (
		operation  = `operation {"kind":"create","volume_id":"pg","status":{"state":"succeeded"}}` + "\n"
		allocation = `allocation {"id":"a1","job_id":"db","node_id":"n1","status":{"state":"failed"}}` + "\n"
		job        = `job {"id":"db","desired":"absent"}` + "\n"
		freed      = `attachment {"alloc_id":"a9","volume_id":"pg","node_id":"n1","status":{"state":"freed"}}` + "\n"
		failed     = `snapshot {"id":"s1","volume_id":"pg","status":{"state":"failed"}}` + "\n"
		away       = `node {"id":"n9","status":{"state":"down"}}` + "\n"
		alive      = `
node {"id":"n1","status":{"state":"ready"}}
snapshot {"id":"s2","volume_id":"pg","status":{"state":"failed","external_id":"snap-2"}}
operation {"kind":"delete","volume_id":"pg","status":{"state":"assigned"}}
allocation {"id":"a2","job_id":"db","node_id":"n1","status":{"state":"running"}}
job {"id":"web"}
`
	)
	c := collector.New(collector.DefaultKeep())
	controllertest.Pending(t, c, alive)
	controllertest.Pending(t, c, alive+operation, collector.Operations)
	controllertest.Pending(t, c, alive+allocation, collector.Allocations)
	controllertest.Pending(t, c, alive+job, collector.Jobs)
	controllertest.Pending(t, c, alive+freed, collector.Attachments)
	controllertest.Pending(t, c, alive+failed, collector.Snapshots)
	controllertest.Pending(t, c, alive+away, collector.Nodes)
	controllertest.Pending(t, c, alive+operation+allocation+freed+job+failed+away, collector.Keys()...)
}
