package controllertest_test

import (
	"encoding/json"
	"fmt"

	"pgregory.net/rapid"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// agent is what a node does with its assignments. What it mounts is at the
// provider, because it outlives the agent's memory.
type agent struct {
	node    api.NodeID
	rack    string
	session string
	starts  int
	// Sequence and epoch are those of its last report and registration.
	sequence, epoch uint64
	healthy         bool                       // of its plugin instance
	over            map[api.AllocID]bool       // ended by themselves, or being ended
	answers         map[attempt]answered       // calls that were made
	said            map[string]json.RawMessage // facts that the servers have taken
}

type attempt struct {
	id api.OperationID
	n  int
}

type answered struct {
	fact  api.OperationFact
	taken bool
}

func newAgent(node api.NodeID, rack string) *agent {
	a := &agent{node: node, rack: rack, healthy: true}
	a.forget()
	return a
}

// forget loses the agent's memory: its disk was replaced.
func (a *agent) forget() {
	a.session, a.sequence = "", 0
	a.restart()
	a.over = map[api.AllocID]bool{}
}

// restart loses what an agent has not written down: it makes again the calls
// whose answers the servers do not have, and says everything again.
func (a *agent) restart() {
	answers := map[attempt]answered{}
	for at, got := range a.answers {
		if got.taken {
			answers[at] = got
		}
	}
	a.answers, a.said = answers, map[string]json.RawMessage{}
}

// register begins a session.
func (a *agent) register() *command.RegisterNode {
	a.starts++
	c := &command.RegisterNode{
		NodeID: a.node, Name: string(a.node), SecretHash: fmt.Sprintf("%064s", a.node), BootID: "boot", Version: "1.0.0",
		Session: fmt.Sprintf("%s-%d", a.node, a.starts), Drivers: map[string]api.Driver{"exec": {Healthy: true, MountsVolumes: true}},
		Profile: api.Profile{Meta: map[string]string{"rack": a.rack}},
	}
	if a.session != "" {
		c.Known = []string{a.session}
	}
	return c
}

// act does some or all of what the node is to do, and says how things are.
func (a *agent) act(t *rapid.T, v state.View, p *provider) api.Facts {
	r := &round{t: t, v: v, agent: a, provider: p, facts: map[string]any{}}
	r.say("instance", api.InstanceFact{PluginID: "disk", InstanceStatus: p.status(a.healthy, a.node)})
	for op := range v.NodeOperations(a.node) {
		r.execute(op)
	}
	for alloc := range v.NodeAllocations(a.node) {
		if !p.troubled || !seldom(t, "leave for later", 4) {
			r.run(alloc)
		}
	}
	facts := r.unsaid()
	if n := v.Node(a.node); n.Status.Owes && undone(v, a.node) {
		facts.Undone = n.Status.Epoch
	}
	return facts
}

// undone reports whether the node has let go of all that it had mounted.
func undone(v state.View, node api.NodeID) bool {
	for alloc := range v.NodeAllocations(node) {
		for at := range v.AllocAttachments(alloc.ID) {
			if at.Status.State.Before(api.NodeDetached) {
				return false
			}
		}
	}
	return true
}

// round is one time that an agent acts.
type round struct {
	t        *rapid.T
	v        state.View
	agent    *agent
	provider *provider
	order    []string
	facts    map[string]any
}

func (r *round) say(key string, fact any) {
	if _, ok := r.facts[key]; !ok {
		r.order = append(r.order, key)
	}
	r.facts[key] = fact
}

// execute makes a call, once for each attempt unless the agent starts again.
func (r *round) execute(op *api.Operation) {
	at := attempt{op.ID, op.Status.Attempt}
	got, made := r.agent.answers[at]
	if !made {
		got = answered{fact: r.provider.call(op)}
		r.agent.answers[at] = got
	}
	if !got.taken {
		r.say("operation/"+string(op.ID), got.fact)
	}
}

// run brings an allocation up or down.
func (r *round) run(alloc *api.Allocation) {
	down := alloc.Terminal() || alloc.Desired == api.DesireStop || r.agent.over[alloc.ID]
	status := api.AllocStatus{State: api.AllocRunning}
	for at := range r.v.AllocAttachments(alloc.ID) {
		switch {
		case down:
			r.unmount(at)
		case !r.mount(at):
			status.State = api.AllocPending
		}
	}
	if status.State == api.AllocRunning && !down && r.provider.troubled && seldom(r.t, "ends", 8) {
		r.agent.over[alloc.ID] = true
	}
	if down {
		status.State = oneOf(r.t, "end", api.AllocComplete, api.AllocFailed)
	}
	if !alloc.Terminal() {
		r.say("allocation/"+string(alloc.ID), api.AllocFact{ID: alloc.ID, Status: status})
	}
}

// mount answers whether the attachment is mounted.
func (r *round) mount(at *api.Attachment) bool {
	if at.Status.State != api.ControllerPublished && at.Status.State != api.NodePublished {
		return false
	}
	vol := r.v.Volume(at.Namespace, at.VolumeID)
	r.provider.mount(vol.Status.ExternalID, user{at.AllocID, at.Name}, statetest.Hold{Node: r.agent.node, Mode: at.AccessMode, ReadOnly: at.ReadOnly, OneTarget: r.provider.oneTarget})
	r.say("publication/"+string(at.VolumeID), api.PublicationFact{Namespace: at.Namespace, VolumeID: at.VolumeID, Staged: true})
	r.say(attachmentKey(at), api.AttachmentFact{AllocID: at.AllocID, Name: at.Name, State: api.NodePublished, TargetPath: "/t"})
	return true
}

func (r *round) unmount(at *api.Attachment) {
	if !at.Status.State.Before(api.NodeDetached) {
		return
	}
	vol := r.v.Volume(at.Namespace, at.VolumeID)
	staged := r.provider.unmount(vol.Status.ExternalID, user{at.AllocID, at.Name}, r.agent.node)
	r.say("publication/"+string(at.VolumeID), api.PublicationFact{Namespace: at.Namespace, VolumeID: at.VolumeID, Staged: staged})
	r.say(attachmentKey(at), api.AttachmentFact{AllocID: at.AllocID, Name: at.Name, State: api.NodeDetached})
}

func attachmentKey(at *api.Attachment) string {
	return "attachment/" + string(at.AllocID) + "/" + at.Name
}

// unsaid are the facts that the servers have not taken yet.
func (r *round) unsaid() (f api.Facts) {
	for _, key := range r.order {
		said, err := json.Marshal(r.facts[key])
		if err != nil {
			r.t.Fatal(err)
		}
		if string(r.agent.said[key]) == string(said) {
			continue
		}
		switch fact := r.facts[key].(type) {
		case api.InstanceFact:
			f.Instances = append(f.Instances, fact)
		case api.OperationFact:
			f.Operations = append(f.Operations, fact)
		case api.PublicationFact:
			f.Publications = append(f.Publications, fact)
		case api.AttachmentFact:
			f.Attachments = append(f.Attachments, fact)
		case api.AllocFact:
			f.Allocations = append(f.Allocations, fact)
		}
	}
	return f
}

// taken notes what the servers have taken.
func (a *agent) taken(f *api.Facts) {
	note := func(key string, fact any) {
		b, err := json.Marshal(fact)
		if err != nil {
			panic(err)
		}
		a.said[key] = b
	}
	for _, x := range f.Instances {
		note("instance", x)
	}
	for _, x := range f.Operations {
		a.answers[attempt{x.ID, x.Attempt}] = answered{x, true}
	}
	for _, x := range f.Publications {
		note("publication/"+string(x.VolumeID), x)
	}
	for _, x := range f.Attachments {
		note("attachment/"+string(x.AllocID)+"/"+x.Name, x)
	}
	for _, x := range f.Allocations {
		note("allocation/"+string(x.ID), x)
	}
}
