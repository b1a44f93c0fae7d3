// Package volumewatcher leads attachments through their lives, one step a
// pass: it has volumes published to nodes for who claims them, and detached
// and freed when the node is done with them.
//
// It never mounts and never decides that a node is done: the agent reports
// that. Invariant: the order of the CSI specification. A volume is detached
// from a node only when nothing there stages or mounts it, and an attachment
// is freed only when the volume is detached, or others on the node go on
// using it. Read-only and read-write attachments go the same way.
package volumewatcher

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// Controller settles publications, with all the attachments that use them.
type Controller struct{}

// Name implements controller.Controller.
func (Controller) Name() string { return "volumewatcher" }

// Key is the key of a volume's publication on a node.
func Key(ns api.NamespaceID, vol api.VolumeID, node api.NodeID) controller.Key {
	return controller.Key(strings.Join([]string{string(ns), string(vol), string(node)}, "/"))
}

// Pending implements controller.Controller.
func (Controller) Pending(v state.View) iter.Seq[controller.Key] {
	return func(yield func(controller.Key) bool) {
		last := controller.Key("")
		for a := range v.UnsettledAttachments() {
			k := Key(a.Namespace, a.VolumeID, a.NodeID)
			if k != last && !yield(k) {
				return
			}
			last = k
		}
		for pub := range v.LeftPublications() {
			if !yield(Key(pub.Namespace, pub.VolumeID, pub.NodeID)) {
				return
			}
		}
		for pub := range v.GrowingPublications() {
			if !yield(Key(pub.Namespace, pub.VolumeID, pub.NodeID)) {
				return
			}
		}
	}
}

// pass is one reconciliation of one publication.
type pass struct {
	v       state.View
	now     time.Time
	vol     *api.Volume
	pub     *api.Publication
	holders []*api.Attachment
	plan    controller.Plan
}

// Reconcile implements controller.Controller.
func (Controller) Reconcile(v state.View, now time.Time, k controller.Key) (controller.Plan, error) {
	parts := strings.Split(string(k), "/")
	if len(parts) != 3 {
		return controller.Plan{}, fmt.Errorf("key %q names no publication", k)
	}
	ns, id, node := api.NamespaceID(parts[0]), api.VolumeID(parts[1]), api.NodeID(parts[2])
	p := &pass{
		v:       v,
		now:     now,
		vol:     v.Volume(ns, id),
		pub:     v.Publication(ns, id, node),
		holders: slices.Collect(v.NodeHolders(ns, id, node)),
	}
	if len(p.holders) == 0 {
		p.left()
		return p.plan, nil
	}
	if p.pub == nil || p.vol == nil {
		return controller.Plan{}, fmt.Errorf("%s has attachments, and no volume or publication", k)
	}
	p.reconcile()
	return p.plan, nil
}

// reconcile frees first, then attaches: who leaves may be in the way.
func (p *pass) reconcile() {
	leaving := p.in(api.NodeDetached, api.ControllerDetached)
	claimed := p.in(api.Claimed)
	if len(leaving) > 0 && len(leaving) < len(p.holders) {
		// Others go on using the publication: the provider is not asked.
		for _, a := range leaving {
			p.advance(a, api.Freed, true)
		}
		return
	}
	if len(leaving) > 0 {
		p.release(leaving)
		return
	}
	if len(claimed) > 0 {
		p.attach(claimed)
	}
	if len(p.plan.Commands) == 0 {
		p.grow()
	}
}

// left detaches what a recovery found, and nobody of the restored state holds.
func (p *pass) left() {
	if p.pub == nil || p.vol == nil || !p.pub.Status.Left {
		return
	}
	p.release(nil)
	if len(p.plan.Commands) == 0 {
		next := p.pub.Status.Lingers
		if !next.After(p.now) {
			next = time.Time{} // it has passed, and nothing is to be seen again because of it
		}
		p.plan.Wait("volume "+string(p.vol.ID), fmt.Sprintf("is to be detached from node %s, which has it for nothing that the state knows", p.pub.NodeID), p.pub.ModifyTime, next)
	}
}

// in are the attachments in one of the states.
func (p *pass) in(states ...api.AttachmentState) []*api.Attachment {
	var found []*api.Attachment
	for _, a := range p.holders {
		if slices.Contains(states, a.Status.State) {
			found = append(found, a)
		}
	}
	return found
}

// advance moves an attachment.
func (p *pass) advance(a *api.Attachment, to api.AttachmentState, skipped bool) {
	p.plan.Add(&command.AdvanceAttachment{AllocID: a.AllocID, Name: a.Name, Version: a.Version, To: to, Skipped: skipped})
}

// wait notes for every one of the attachments what it waits for.
func (p *pass) wait(attachments []*api.Attachment, format string, args ...any) {
	p.waitUntil(time.Time{}, attachments, format, args...)
}

// waitUntil is wait, and looks again at some time.
func (p *pass) waitUntil(next time.Time, attachments []*api.Attachment, format string, args ...any) {
	for _, a := range attachments {
		p.plan.Wait(fmt.Sprintf("attachment %s/%s", a.AllocID.Short(), a.Name), fmt.Sprintf(format, args...), a.ModifyTime, next)
	}
}

// open opens an operation on the publication.
func (p *pass) open(kind api.OperationKind, req api.OperationRequest) {
	p.plan.Add(&command.OpenOperation{
		OperationKind: kind,
		Namespace:     p.pub.Namespace,
		VolumeID:      p.pub.VolumeID,
		PluginID:      p.pub.PluginID,
		NodeID:        p.pub.NodeID,
		Request:       req,
		Version:       p.pub.Version,
	})
}

func (p *pass) plugin() fit.Plugin {
	return fit.NewPlugin(p.pub.PluginID, slices.Collect(p.v.Instances(p.pub.PluginID)))
}
