package cluster

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent/assignment"
	"github.com/berth-dev/berth/internal/agent/localdb"
	"github.com/berth-dev/berth/internal/agent/runner/runnertest"
)

// Fleet is agents without machines, for benchmarks of servers. Each of them
// registers, polls and reports over HTTP as the agent does, with the agent's own
// code, and says at once that whatever it is to do is done: as with a driver
// that answers at once, and tasks that start and end at once.
type Fleet struct {
	// Called counts the operations whose outcome the servers have.
	Called atomic.Int64

	stop   context.CancelFunc
	agents sync.WaitGroup
}

// StartFleet starts n such agents and waits until they are ready. They end with
// the test, or with Stop.
func (c *Cluster) StartFleet(n int) *Fleet {
	c.TB.Helper()
	ctx, stop := context.WithCancel(context.Background())
	f := &Fleet{stop: stop}
	c.TB.Cleanup(f.Stop)
	for i := range n {
		f.agents.Go(func() { f.agent(ctx, c, api.NodeID(fmt.Sprintf("fleet-%03d", i+1))) })
	}
	Await(c, "the fleet", time.Minute, func(ctx context.Context, q client.Query) (*api.Plugin, uint64, error) {
		return c.Client.Plugin(ctx, PluginID, q)
	}, func(p *api.Plugin, err error) bool { return err == nil && p.NodesHealthy == n })
	return f
}

// Stop ends the agents.
func (f *Fleet) Stop() {
	f.stop()
	f.agents.Wait()
}

// agent is one of them, until ctx ends.
func (f *Fleet) agent(ctx context.Context, c *Cluster, id api.NodeID) {
	cl := c.client(0)
	defer cl.Close()
	facts := assignment.NewFacts()
	facts.SetInstance(api.InstanceFact{PluginID: PluginID, InstanceStatus: api.InstanceStatus{
		Type: api.InstanceMonolith, Healthy: true, Driver: "fleet.berth.dev", VendorVersion: "1", ExternalNodeID: string(id),
		PluginCapabilities:     []string{api.CapControllerService},
		ControllerCapabilities: []string{api.CapCreateDeleteVolume, api.CapPublishUnpublish},
	}})
	link := assignment.New(assignment.Config{
		Node: localdb.Node{ID: id, Name: string(id), Secret: string(id)}, BootID: "boot", Version: "test", Lease: api.Lease,
		Drivers: func(context.Context) map[string]api.Driver {
			return map[string]api.Driver{DriverName: {Healthy: true, MountsVolumes: true}}
		},
		Consumer: &obedient{facts: facts, made: map[api.OperationID]int{}},
	}, counting{cl.Agent(id, string(id)), &f.Called}, &noDisk{}, facts, c.cfg.Log.With("node", string(id)))
	_ = link.Run(ctx) // no failure ends it
}

// counting counts the operations whose outcome the servers took.
type counting struct {
	assignment.Servers
	called *atomic.Int64
}

func (s counting) Report(ctx context.Context, r api.Report) (api.Reported, error) {
	answer, err := s.Servers.Report(ctx, r)
	if err == nil {
		s.called.Add(int64(len(r.Facts.Operations)))
	}
	return answer, err
}

// noDisk forgets with its process.
type noDisk struct{ report *api.Report }

func (*noDisk) PutNode(localdb.Node) error     { return nil }
func (d *noDisk) Report() (*api.Report, error) { return d.report, nil }
func (d *noDisk) PutReport(r *api.Report) error {
	d.report = r
	return nil
}

// obedient says of whatever is assigned that it is done.
type obedient struct {
	facts *assignment.Facts
	// made has the attempt of every operation that is assigned.
	made map[api.OperationID]int
}

// Assign implements assignment.Consumer.
func (o *obedient) Assign(a *api.Assignments) {
	assigned := map[api.OperationID]int{}
	for _, op := range a.Operations {
		assigned[op.ID] = op.Status.Attempt
		if o.made[op.ID] != op.Status.Attempt {
			o.facts.SetOperation(answered(op))
		}
	}
	for id, attempt := range o.made {
		if assigned[id] != attempt {
			o.facts.ForgetOperation(id, attempt)
		}
	}
	o.made = assigned
	for i := range a.Allocations {
		o.allocation(&a.Allocations[i])
	}
}

// answered is the outcome of a call that a driver answers at once.
func answered(op *api.Operation) api.OperationFact {
	f := api.OperationFact{ID: op.ID, Attempt: op.Status.Attempt, Code: "OK"}
	switch r := op.Request; {
	case r.Create != nil:
		f.Result = api.OperationResult{ExternalID: "ext-" + r.Create.Name, Capacity: r.Create.CapacityMin}
	case r.Publish != nil:
		f.Result = api.OperationResult{PublishContext: map[string]string{"device": "/dev/" + r.Publish.ExternalNodeID}}
	}
	return f
}

// allocation runs an allocation, or ends it.
func (o *obedient) allocation(a *api.AllocAssignment) {
	switch {
	case a.Allocation == nil: // it is as it was
	case a.Allocation.Desired == api.DesireStop && !a.Allocation.Terminal():
		runnertest.Attachments(o.facts, a, api.NodeDetached)
		o.facts.SetAllocation(api.AllocFact{ID: a.ID, Status: api.AllocStatus{State: api.AllocComplete}})
	case a.Allocation.Desired == api.DesireRun && runnertest.Attached(a):
		runnertest.Attachments(o.facts, a, api.NodePublished)
		o.facts.SetAllocation(api.AllocFact{ID: a.ID, Status: api.AllocStatus{State: api.AllocRunning}})
	}
}
