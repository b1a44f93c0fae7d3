package csitest

import (
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// told is what callers know of a thing from the answers that they had.
type told int

const (
	toldAbsent told = iota
	// toldNothing: a call was made, and no success was answered since.
	toldNothing
	toldPresent
)

// thing is one attachment, staging or publication. What is really there and
// what callers were told of it can differ, because calls fail half way and
// drivers lie. The provider answers by what is real; callers are judged by
// what they could know.
type thing struct {
	told told
	// asked is the request by which callers want it.
	asked proto.Message
	real  bool
	// made is the request by which it really came about.
	made proto.Message
}

// sure reports whether callers may rely on the thing: their last call for it
// was answered with success.
func (t *thing) sure() bool { return t.told == toldPresent }

// there reports whether callers must treat the thing as there: they were told
// so, or it is and they were not told otherwise.
func (t *thing) there() bool {
	return t.told == toldPresent || t.told == toldNothing && t.real
}

// attempt notes that a call sets its things up, or takes them down.
func (c *call) attempt() {
	for _, t := range c.things {
		if !c.undo && !t.there() {
			t.asked = c.message
		}
		// Setting up what is there, and taking down what is not, takes nothing
		// away if it fails.
		if t.told != c.goal() {
			t.told = toldNothing
		}
	}
}

// goal is what the caller knows if the call succeeds.
func (c *call) goal() told {
	if c.undo {
		return toldAbsent
	}
	return toldPresent
}

// settle notes what the caller was told. Whoever has given up was told nothing.
func (b *Backend) settle(c *call, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.Code = codeName(err)
	b.settleExpand(c)
	if v := b.volumes[c.Volume]; v != nil && c.Method == "CreateVolume" {
		v.refused = refuses(status.Code(err))
	}
	if err != nil || c.ctx.Err() != nil {
		return
	}
	for _, t := range c.things {
		t.told = c.goal()
	}
	if c.path != "" {
		b.forget(c)
	}
}

// forget drops what is gone at the call's path.
func (b *Backend) forget(c *call) {
	if n := b.nodes[c.Node]; n != nil {
		delete(n.paths, c.path)
	}
	v := b.volumes[c.Volume]
	if v == nil || v.on[c.Node] == nil {
		return
	}
	targets := v.on[c.Node].targets
	if t := targets[c.path]; t != nil && !t.real {
		delete(targets, c.path)
	}
}

// enter admits a call, unless another one for the same volume is under way.
// For a volume of several nodes that is one call a node (CSI spec,
// Concurrency, speaks of volumes only; but then no two nodes could stage).
func (b *Backend) enter(c *call) error {
	for hasEffect(c.Method) {
		other, abort := b.admit(c)
		switch {
		case other == nil:
			return nil
		case abort:
			return status.Errorf(codes.Aborted, "call %d, %s, is under way for the volume", other.Seq, other.Method)
		}
		select {
		case <-other.left:
		case <-c.ctx.Done():
			return status.FromContextError(c.ctx.Err()).Err()
		}
	}
	return nil
}

// admit lets the call in, or finds the one in its way. If the caller of that
// one has given up, it is about to leave and can be waited for.
func (b *Backend) admit(c *call) (other *call, abort bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.volumes[c.Volume]
	for _, other := range b.busy[c.subject()] {
		switch {
		case v != nil && v.multiNode() && c.Node != "" && other.Node != "" && c.Node != other.Node:
			continue
		case other.ctx.Err() != nil:
			return other, false
		case undoing(c.Method) && changing(other.Method), changing(c.Method) && undoing(other.Method):
			// What takes a volume away from a node waits for nobody: how long a call
			// that changes it takes, the caller cannot know.
		case changing(c.Method) && b.again(other), changing(other.Method) && b.again(c):
			// A node tries again what did not succeed, for as long as that takes. The
			// volume is not kept from being changed and copied by one that cannot
			// mount it, and nobody but the node knows when the next try is.
		case (b.forgotten(c, v) || b.forgotten(other, v)) && !sameNode(c, other):
			// A machine that was off was passed over, and takes down what it remembers,
			// while the others have gone on.
		case c.By == other.By && c.conn != other.conn:
			// A caller that died and came back cannot know of its old call,
			// and the driver may hear of the new one first.
		default:
			b.violate(c, "while call %d, %s, was under way for the volume", other.Seq, other.Method)
		}
		return other, true
	}
	b.busy[c.subject()] = append(b.busy[c.subject()], c)
	return nil, false
}

// subject is what there is one call at a time for: the volume, or a snapshot
// that is deleted.
func (c *call) subject() string {
	if c.Method == "DeleteSnapshot" {
		return "snapshot " + c.Name
	}
	return c.Volume
}

// undoing reports whether a call takes something of a volume away from a node.
func undoing(method string) bool {
	return method == "NodeUnpublishVolume" || method == "NodeUnstageVolume"
}

// changing reports whether a call changes or copies a volume that may be in use.
func changing(method string) bool {
	return method == "ControllerExpandVolume" || method == "ControllerModifyVolume" || method == "CreateSnapshot"
}

// forgotten reports whether a call takes down what a reboot has taken down already.
func (b *Backend) forgotten(c *call, v *volume) bool {
	if c.Method != "NodeUnpublishVolume" && c.Method != "NodeUnstageVolume" || v == nil {
		return false
	}
	p := v.presence(c.Node)
	if p.stage.real {
		return false
	}
	for _, t := range p.targets {
		if t.real {
			return false
		}
	}
	return true
}

// sameNode reports whether two calls are for the same node to serve.
func sameNode(a, b *call) bool {
	return strings.HasPrefix(a.Method, "Node") && strings.HasPrefix(b.Method, "Node") && a.Node == b.Node
}

// again reports whether a call that mounts is another try of one that failed.
func (b *Backend) again(c *call) bool {
	if c.Method != "NodeStageVolume" && c.Method != "NodePublishVolume" {
		return false
	}
	for _, r := range slices.Backward(b.calls) {
		if r.Seq < c.Seq && r.Method == c.Method && r.Volume == c.Volume && r.Node == c.Node {
			return r.Code != codeName(nil)
		}
	}
	return false
}

// leave ends a call that was admitted.
func (b *Backend) leave(c *call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rest := b.busy[c.subject()][:0]
	for _, other := range b.busy[c.subject()] {
		if other != c {
			rest = append(rest, other)
		}
	}
	b.busy[c.subject()] = rest
	if len(rest) == 0 {
		delete(b.busy, c.subject())
	}
	close(c.left)
}
