package tracing

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

// wayOut makes spans of what went wrong with an attachment, and of its end, if
// its row that was written then says so.
func (t *Tracer) wayOut(ctx context.Context, v state.View, at *api.Attachment, now time.Time) {
	a := v.Allocation(at.AllocID)
	if a == nil || len(at.Status.Steps) == 0 {
		return
	}
	last := at.Status.Steps[len(at.Status.Steps)-1]
	switch {
	case !last.Time.Equal(now):
		t.failed(ctx, v, a, at, now)
	case last.State == api.Freed:
		t.unmount(ctx, v, a, at)
		if a.Running.IsZero() && lastFreed(v, at, now) {
			t.placed(ctx, v, a, span{ended: now, failure: neverRan(a)})
		}
	}
}

// lastFreed reports whether an attachment that was freed now was the last of its
// allocation.
func lastFreed(v state.View, at *api.Attachment, now time.Time) bool {
	for other := range v.AllocAttachments(at.AllocID) {
		freed := stepsOf(other)[api.Freed].Time
		if other.Holds() || freed.After(now) || freed.Equal(now) && other.Name > at.Name {
			return false
		}
	}
	return true
}

// neverRan is why an allocation came to its end before it ran.
func neverRan(a *api.Allocation) string {
	why := a.DesiredReason
	if a.Status.State.Terminal() && a.Status.Why() != "" {
		why = a.Status.Why()
	}
	return strings.TrimSuffix("it never ran: "+why, ": ")
}

// failed is a step that did not succeed on the node. What it is a part of is told
// when that has ended, with the ids that it is said to have here. What else a
// problem may be, such as a call that takes long, has a time of its own.
func (t *Tracer) failed(ctx context.Context, v state.View, a *api.Allocation, at *api.Attachment, now time.Time) {
	p := at.Status.Problem
	if p == nil || !p.Since.IsZero() {
		return
	}
	steps := stepsOf(at)
	s := span{object: string(at.AllocID), ended: now, failure: strings.TrimPrefix(p.Code+": "+p.Message, ": ")}
	switch {
	case at.Status.State.Before(api.NodePublished):
		ctx, _, _ = origin(ctx, v, a)
		ctx = under(under(ctx, s.object, allocationName), s.object, "volume "+at.Name)
		s.began = steps[at.Status.State].Time
	case strings.HasPrefix(p.Step, "NodeUn"):
		s.object = unmountOf(at)
		ctx = under(ctx, s.object, "unmount "+at.Name)
		s.began = leaves(a, steps, now)
	default: // it is mounted again, or about to leave
		s.object, s.began, s.after = unmountOf(at)+now.String(), now, lastCaller(ctx, v, a)
	}
	// The same may fail again, and another time in the meantime.
	s.name, s.unique = "volume "+at.Name+"/"+p.Step+" failed", now.UTC().Format(time.RFC3339Nano)
	t.emit(ctx, s.with("berth.volume", at.VolumeID, "berth.plugin", at.PluginID, "berth.node", at.NodeID))
}

// unmount is a trace of a volume's way from an allocation back to where it came
// from, as far as it had come.
func (t *Tracer) unmount(ctx context.Context, v state.View, a *api.Allocation, at *api.Attachment) {
	steps := stepsOf(at)
	mounted, detached, released, freed := steps[api.NodePublished], steps[api.NodeDetached], steps[api.ControllerDetached], steps[api.Freed]
	calls := t.calls(v, at, api.OperationUnpublish, detached.Time, freed.Time)
	if mounted.Skipped && len(calls) == 0 {
		return
	}
	id, began := unmountOf(at), leaves(a, steps, detached.Time)
	whole := span{object: id, name: "unmount " + at.Name, began: began, ended: freed.Time, after: lastCaller(ctx, v, a)}.with(
		"berth.namespace", at.Namespace, "berth.job", at.JobID, "berth.allocation", at.AllocID, "berth.node", at.NodeID, "berth.volume", at.VolumeID, "berth.plugin", at.PluginID)
	if detached.Evidence != nil {
		whole = whole.with("berth.evidence", detached.Evidence.Kind)
	}
	ctx = t.emit(ctx, whole)
	if !mounted.Skipped && !detached.Skipped {
		t.emit(ctx, span{object: id, name: "unpublish and unstage on the node", began: began, ended: detached.Time})
	}
	if len(calls) > 0 {
		t.operations(t.emit(ctx, span{object: id, name: "controller unpublish", began: detached.Time, ended: released.Time}), id, calls)
	}
}

// unmountOf is what the trace of an unmount is about.
func unmountOf(at *api.Attachment) string { return string(at.AllocID) + "/" + at.Name + "/unmount" }

// leaves is when an attachment was to be unmounted: when the servers said so, or
// else when the last task had ended that may have used it, which is the node's
// word, and is believed only as far as it fits.
func leaves(a *api.Allocation, steps map[api.AttachmentState]api.AttachmentStep, by time.Time) time.Time {
	if told := steps[api.Unpublishing]; !told.Time.IsZero() && !told.Skipped && !told.Time.After(by) {
		return told.Time
	}
	var last time.Time
	for _, task := range a.Status.Tasks {
		if task.Ended.After(last) && !task.Poststop {
			last = task.Ended
		}
	}
	if last.After(by) || last.Before(steps[api.NodePublished].Time) {
		return by
	}
	return last
}

// lastCaller is the span of who applied an allocation's job last.
func lastCaller(ctx context.Context, v state.View, a *api.Allocation) (none trace.SpanContext) {
	if job := v.Job(a.Namespace, a.JobID); job != nil && job.UID == a.JobUID {
		return caller(ctx, job)
	}
	return none
}

// under is below a span that is not made yet.
func under(ctx context.Context, object, name string) context.Context {
	id, above := hashes{}.NewIDs(context.WithValue(ctx, hashed{}, [2]string{object, name}))
	c := trace.SpanContextConfig{TraceID: id, SpanID: above, TraceFlags: trace.FlagsSampled}
	if parent := trace.SpanContextFromContext(ctx); parent.IsValid() {
		c.TraceID, c.TraceFlags = parent.TraceID(), parent.TraceFlags()
	}
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(c))
}
