package csitest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Rule says which calls go wrong, and how. The first rule that fits a call and
// fires is the one that counts.
type Rule struct {
	// Method, Volume and Node must equal the call's if they are set. Volume is
	// an id or a CSI name; Node is the one that the call is about.
	Method string
	Volume string
	Node   string
	// Nth lets only the nth call that fits go wrong, counted from 1, and Times
	// only that many. 0 means every one.
	Nth   int
	Times int
	// Probability lets that share of the calls go wrong, all of them if 0.
	Probability float64
	Do          Action
}

// Action is what becomes of a call.
type Action struct {
	kind    kind
	after   bool
	code    codes.Code
	message string
	delay   time.Duration
}

type kind int

const (
	fail kind = iota
	hang
	wait
	lie
	drop
)

// Fail answers with the code, by the specification's name, and does nothing.
func Fail(codeName, message string) Action {
	return Action{kind: fail, code: mustCode(codeName), message: message}
}

// FailAfter does what was asked, and answers with the code all the same.
func FailAfter(codeName, message string) Action {
	return Action{kind: fail, after: true, code: mustCode(codeName), message: message}
}

// Hang waits until the fault is released or the caller has given up; only when
// released does it do what was asked.
func Hang() Action { return Action{kind: hang} }

// HangAfter does what was asked, and then waits as Hang does.
func HangAfter() Action { return Action{kind: hang, after: true} }

// Delay waits so long before it does what was asked.
func Delay(d time.Duration) Action { return Action{kind: wait, delay: d} }

// Lie answers OK to a call with an effect, and does nothing.
func Lie() Action { return Action{kind: lie} }

// Drop cuts the connection that the call came on, and does nothing.
func Drop() Action { return Action{kind: drop} }

// DropAfter does what was asked, and cuts the connection before it answers.
func DropAfter() Action { return Action{kind: drop, after: true} }

func mustCode(name string) codes.Code {
	c, known := code.Code_value[name]
	if !known || c == int32(codes.OK) {
		panic(fmt.Sprintf("csitest: %q is not the name of an error code", name))
	}
	return codes.Code(c) //nolint:gosec // it is in the table of codes
}

// Fault is a rule at work.
type Fault struct {
	backend  *Backend
	rule     Rule
	released chan struct{}
	// Guarded by the backend's lock.
	matched int
	fired   int
	waiting int
}

// Script makes calls go wrong from now on.
func (b *Backend) Script(r Rule) *Fault {
	f := &Fault{backend: b, rule: r, released: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, f)
	return f
}

// Release ends the fault: no call goes wrong any more, and those that hang go
// on.
func (f *Fault) Release() {
	b := f.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.faults, f); i >= 0 {
		b.faults = slices.Delete(b.faults, i, i+1)
		close(f.released)
	}
}

// Fired is how many calls went wrong so far.
func (f *Fault) Fired() int {
	f.backend.mu.Lock()
	defer f.backend.mu.Unlock()
	return f.fired
}

// Waiting is how many calls hang or are delayed right now.
func (f *Fault) Waiting() int {
	f.backend.mu.Lock()
	defer f.backend.mu.Unlock()
	return f.waiting
}

// fault is the one that strikes the call, or nil.
func (b *Backend) fault(c *call) *Fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.faults {
		r := f.rule
		if r.Method != "" && r.Method != c.Method ||
			r.Volume != "" && r.Volume != c.Volume && r.Volume != c.Name ||
			r.Node != "" && r.Node != c.Node {
			continue
		}
		f.matched++
		if r.Nth > 0 && f.matched != r.Nth || r.Times > 0 && f.fired >= r.Times ||
			r.Probability > 0 && b.chance.Float64() >= r.Probability {
			continue
		}
		f.fired++
		return f
	}
	return nil
}

// strike does to the call what the rule says, before or after the call itself.
// It reports whether the call is answered by that.
func (f *Fault) strike(ctx context.Context, after bool) (answered bool, err error) {
	if f == nil || f.rule.Do.after != after {
		return false, nil
	}
	switch a := f.rule.Do; a.kind {
	case fail:
		return true, status.Error(a.code, a.message)
	case hang:
		err := pause(ctx, f, f.released)
		return err != nil, err
	case wait:
		timer := time.NewTimer(a.delay)
		defer timer.Stop()
		err := pause(ctx, f, timer.C)
		return err != nil, err
	case drop:
		cut(ctx)
		return true, status.Error(codes.Unavailable, "the connection was cut")
	case lie:
		return true, nil
	}
	return false, nil
}

// pause waits for end, or until the caller has given up.
func pause[T any](ctx context.Context, f *Fault, end <-chan T) error {
	f.count(1)
	defer f.count(-1)
	select {
	case <-end:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func (f *Fault) count(by int) {
	f.backend.mu.Lock()
	defer f.backend.mu.Unlock()
	f.waiting += by
}

// Deceived has the ids of the volumes about which callers were told that a
// controller call was done that was not, that one was refused that made them,
// or that they are not there. Of node calls callers can see themselves what was
// done.
func (b *Backend) Deceived() map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.deceived)
}

// untrue is the answer of a call that did nothing and says OK.
func (b *Backend) untrue(c *call) (any, error) {
	b.deceive(c)
	switch r := c.message.(type) {
	case *csi.CreateVolumeRequest:
		id := volumeID(r.GetName())
		return (&volume{id: id, capacity: defaultCapacity, context: volumeContext(id)}).answer(), nil
	case *csi.DeleteVolumeRequest:
		return &csi.DeleteVolumeResponse{}, nil
	case *csi.ControllerPublishVolumeRequest:
		b.mu.Lock()
		defer b.mu.Unlock()
		context := b.publishContext(r.GetNodeId())
		if v := b.volumes[r.GetVolumeId()]; v != nil {
			v.presence(r.GetNodeId()).context = context
		}
		return &csi.ControllerPublishVolumeResponse{PublishContext: context}, nil
	case *csi.ControllerUnpublishVolumeRequest:
		return &csi.ControllerUnpublishVolumeResponse{}, nil
	case *csi.NodeStageVolumeRequest:
		return &csi.NodeStageVolumeResponse{}, nil
	case *csi.NodeUnstageVolumeRequest:
		return &csi.NodeUnstageVolumeResponse{}, nil
	case *csi.NodePublishVolumeRequest:
		return &csi.NodePublishVolumeResponse{}, nil
	case *csi.NodeUnpublishVolumeRequest:
		return &csi.NodeUnpublishVolumeResponse{}, nil
	case *csi.ControllerExpandVolumeRequest:
		return &csi.ControllerExpandVolumeResponse{CapacityBytes: r.GetCapacityRange().GetRequiredBytes(), NodeExpansionRequired: b.options.NodeExpand}, nil
	case *csi.ControllerModifyVolumeRequest:
		return &csi.ControllerModifyVolumeResponse{}, nil
	case *csi.NodeExpandVolumeRequest:
		return &csi.NodeExpandVolumeResponse{CapacityBytes: r.GetCapacityRange().GetRequiredBytes()}, nil
	}
	return nil, fmt.Errorf("a lie about %s is not scripted", c.Method)
}

func (b *Backend) deceive(c *call) {
	switch c.Method {
	case "CreateVolume", "DeleteVolume", "ControllerPublishVolume", "ControllerUnpublishVolume":
		b.mu.Lock()
		defer b.mu.Unlock()
		b.deceived[c.Volume] = true
	}
}

// refuses reports whether a code says that a call was refused for good, and
// made nothing.
func refuses(c codes.Code) bool {
	switch c {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.ResourceExhausted,
		codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented, codes.Unauthenticated:
		return true
	case codes.OK, codes.Canceled, codes.Unknown, codes.DeadlineExceeded, codes.Aborted, codes.Internal, codes.Unavailable, codes.DataLoss:
	}
	return false
}
