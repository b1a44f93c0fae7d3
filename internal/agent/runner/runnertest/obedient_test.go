package runnertest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/localdb"
	"github.com/berth-dev/berth/internal/agent/runner"
	"github.com/berth-dev/berth/internal/agent/runner/runnertest"
)

// diary is a node that writes down what a runner does, in its order.
type diary struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

func (d *diary) PutAllocation(a *localdb.Allocation) error {
	d.note("record %s", a.Phase)
	return nil
}

func (d *diary) DeleteAllocation(id api.AllocID) error {
	d.note("forget %s", id)
	return nil
}
func (d *diary) SetAllocation(f api.AllocFact)      { d.note("allocation %s", f.Status.State) }
func (d *diary) SetAttachment(f api.AttachmentFact) { d.note("attachment %s %s", f.Name, f.State) }
func (d *diary) SetPublication(f api.PublicationFact) {
	d.note("publication %s %v", f.VolumeID, f.Staged)
}
func (d *diary) ForgetAllocation(id api.AllocID, _ []string) { d.note("nothing more of %s", id) }

// What a runner has to do, from its first assignment to its end: it records
// before it acts, waits until its volumes are attached, says that nothing is
// mounted before it says that it has ended, and is forgotten last.
func TestLife(t *testing.T) {
	t.Parallel()
	d := &diary{}
	node := runner.Node{Memory: d, Facts: d, Down: func(id api.AllocID) { d.note("down %s", id) }}
	assigned := func(desire api.AllocDesire, state api.AttachmentState) api.AllocAssignment {
		at := api.Attachment{AllocID: "a", Name: "data", VolumeID: "pg", PluginID: "disk", Status: api.AttachmentStatus{State: state}}
		return api.AllocAssignment{
			ID: "a", Allocation: &api.Allocation{ID: "a", Desired: desire},
			Attachments: []api.AttachmentAssignment{{Attachment: at}},
		}
	}
	r := runnertest.New(node, localdb.Allocation{Assignment: assigned(api.DesireRun, api.Claimed)})
	want := func(what string, lines ...string) {
		t.Helper()
		rests, err := r.Work(context.Background())
		if err != nil || rests == (what == "forgotten") {
			t.Errorf("%s: rests %v, error %v", what, rests, err)
		}
		if what != "at first" && !r.Addressed() || r.Addressed() {
			t.Errorf("%s: whether it was addressed is wrong", what)
		}
		if diff := cmp.Diff(lines, d.take()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	want("at first")
	r.Update(assigned(api.DesireRun, api.ControllerPublished))
	want("attached", "record up", "attachment data node-published", "publication pg true", "allocation running")
	if !r.Needs("disk") || r.Needs("other") || r.Phase() != localdb.PhaseUp || r.ID() != "a" {
		t.Error("it does not know itself")
	}
	down := []string{"record done", "attachment data node-detached", "publication pg false", "allocation complete", "down a"}
	r.Update(assigned(api.DesireStop, api.NodePublished))
	want("stopped", down...)
	r.Again()
	want("once more", down...)
	r.Stop()
	want("forgotten", append(down, "nothing more of a", "forget a")...)
}
