// Package tracing tells an OpenTelemetry collector where the time of an apply
// went. It makes spans from the times that rows carry, when what they are about
// has come to its end: nothing is measured on the way, and nothing is lost with
// a leader.
//
// It never writes and never keeps anybody waiting. Invariant: the ids of a span
// are hashes of what it is about, so that any server makes the same ones.
package tracing

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/feed"
	"github.com/berth-dev/berth/internal/state"
)

// Tracer makes spans and sends them on.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	log      *slog.Logger
}

// Collector returns an exporter to the OTLP collector at a URL, over HTTP. It
// connects when there is something to send.
func Collector(ctx context.Context, url string) (sdk.SpanExporter, error) {
	return otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(url))
}

// New returns a tracer that sends to an exporter, in batches. What cannot be
// sent is dropped after a while.
func New(exporter sdk.SpanExporter, server, version string, log *slog.Logger) *Tracer {
	t := &Tracer{log: log, provider: sdk.NewTracerProvider(
		sdk.WithBatcher(failing{exporter, log}),
		sdk.WithIDGenerator(hashes{}),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "berth"), attribute.String("service.instance.id", server), attribute.String("service.version", version),
		)),
	)}
	t.tracer = t.provider.Tracer("github.com/berth-dev/berth")
	return t
}

// Follow makes traces of what the feed tells from now on, until ctx ends.
func (t *Tracer) Follow(ctx context.Context, f *feed.Feed, view func() state.View) error {
	after := f.Head()
	for ctx.Err() == nil {
		frames, upTo, err := f.Next(ctx, after, []api.Topic{api.TopicAllocation, api.TopicAttachment, api.TopicOperation})
		switch {
		case api.CodeOf(err) == api.CodeGone:
			t.log.Warn("some spans are missing: too much happened at once", "after", after)
			upTo = f.Head()
		case err != nil:
			return fmt.Errorf("follow what is committed: %w", err)
		}
		for _, frame := range frames {
			for row := range frame.Rows() {
				t.look(ctx, view(), row, frame.Time)
			}
		}
		after = upTo
	}
	return nil
}

// Close sends what is left, in the time that ctx leaves.
func (t *Tracer) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// look makes the trace of what ended with a row that was written then.
func (t *Tracer) look(ctx context.Context, v state.View, row state.Noun, at time.Time) {
	switch row := row.(type) {
	case *api.Allocation:
		if row.Running.Equal(at) && !again(row) {
			t.allocation(ctx, v, row)
		}
	case *api.Operation:
		if row.Status.Ended.Equal(at) && (row.Kind == api.OperationCreate || row.Kind == api.OperationDelete) {
			t.volume(ctx, v, row)
		}
	case *api.Attachment:
		t.wayOut(ctx, v, row, at)
	}
}

// again reports whether an allocation ran before.
func again(a *api.Allocation) bool {
	for _, t := range a.Status.Tasks {
		if t.Restarts > 0 || t.Asked > 0 {
			return true
		}
	}
	return false
}

// allocation is a trace from the apply of a job, or from the placement of a
// later allocation, to the moment at which the servers heard that it runs.
func (t *Tracer) allocation(ctx context.Context, v state.View, a *api.Allocation) {
	ctx, mounted := t.placed(ctx, v, a, span{ended: a.Running})
	t.emit(ctx, span{object: string(a.ID), name: "start tasks", began: mounted, ended: a.Running})
}

// placed is a trace of an allocation up to its mounts. It answers when the last
// of them was there.
func (t *Tracer) placed(ctx context.Context, v state.View, a *api.Allocation, whole span) (context.Context, time.Time) {
	ctx, began, after := origin(ctx, v, a)
	whole.object, whole.name, whole.began, whole.after = string(a.ID), allocationName, began, after
	ctx = t.emit(ctx, whole.with(
		"berth.namespace", a.Namespace, "berth.job", a.JobID, "berth.allocation", a.ID, "berth.node", a.NodeID, "berth.revision", a.Revision))
	if began.Before(a.CreateTime) {
		t.emit(ctx, span{object: string(a.ID), name: "place", began: began, ended: a.CreateTime})
	}
	mounted := a.CreateTime
	for at := range v.AllocAttachments(a.ID) {
		if last := t.attachment(ctx, v, at); last.After(mounted) {
			mounted = last
		}
	}
	return ctx, mounted
}

// allocationName is what the span of an allocation is called.
const allocationName = "allocation"

// origin is where the trace of an allocation begins, and when: below the span of
// its job's caller, or, if it came later by itself, with a link to that one.
func origin(ctx context.Context, v state.View, a *api.Allocation) (_ context.Context, began time.Time, after trace.SpanContext) {
	job := v.Job(a.Namespace, a.JobID)
	switch {
	case job == nil || job.UID != a.JobUID || job.Revision != a.Revision:
		return ctx, a.CreateTime, after
	case firstOf(v, job, a):
		return below(ctx, job.Status.Trace), earlier(job.Status.Applied, a.CreateTime), after
	}
	return ctx, a.CreateTime, caller(ctx, job)
}

// caller is the span of who applied a job last.
func caller(ctx context.Context, job *api.Job) trace.SpanContext {
	return trace.SpanContextFromContext(below(ctx, job.Status.Trace))
}

// below puts what follows below the span of a caller.
func below(ctx context.Context, caller api.TraceContext) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{api.HeaderTrace: string(caller)})
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// firstOf reports whether an allocation is there because its job was applied, and
// not because one of the same revision ended or a node came.
func firstOf(v state.View, job *api.Job, a *api.Allocation) bool {
	for other := range v.EveryPlaceAllocation(a.JobUID, a.Group, a.Index) {
		if other.Revision == a.Revision && other.CreateTime.Before(a.CreateTime) {
			return false
		}
	}
	node := v.Node(a.NodeID)
	came := node != nil && node.CreateTime.After(job.Status.Applied) && job.Spec.Type.Everywhere()
	return a.Failures == 0 && !came
}

// attachment is a volume's way to an allocation. It answers when it was mounted.
func (t *Tracer) attachment(ctx context.Context, v state.View, at *api.Attachment) time.Time {
	steps := stepsOf(at)
	claimed, attached, mounted := steps[api.Claimed].Time, steps[api.ControllerPublished], steps[api.NodePublished]
	if mounted.Time.IsZero() || attached.Time.IsZero() {
		return time.Time{}
	}
	id, name, failed := string(at.AllocID), "volume "+at.Name, ""
	if mounted.Skipped {
		failed = "it was not mounted"
	}
	ctx = t.emit(ctx, span{object: id, name: name, began: claimed, ended: mounted.Time, failure: failed}.with("berth.volume", at.VolumeID, "berth.plugin", at.PluginID))
	calls := t.calls(v, at, api.OperationPublish, claimed, mounted.Time)
	if !attached.Skipped || len(calls) > 0 {
		publish := span{object: id, name: name + "/controller publish", began: claimed, ended: attached.Time}
		if attached.Skipped {
			publish.failure = "it was not attached"
		}
		t.operations(t.emit(ctx, publish), id, calls)
	}
	// What was passed over on the way out was not begun.
	if !mounted.Skipped || attached.Time.Before(mounted.Time) {
		t.emit(ctx, span{object: id, name: name + "/stage and publish on the node", began: attached.Time, ended: mounted.Time, failure: failed})
	}
	if mounted.Skipped {
		return time.Time{}
	}
	return mounted.Time
}

// stepsOf are the steps of an attachment by their states.
func stepsOf(at *api.Attachment) map[api.AttachmentState]api.AttachmentStep {
	steps := map[api.AttachmentState]api.AttachmentStep{}
	for _, s := range at.Status.Steps {
		steps[s.State] = s
	}
	return steps
}

// calls are the ended operations of a kind with an attachment's volume and node,
// of those that were recorded between two times.
func (t *Tracer) calls(v state.View, at *api.Attachment, kind api.OperationKind, after, before time.Time) (calls []*api.Operation) {
	for op := range v.VolumeOperations(at.Namespace, at.VolumeID) {
		if op.Kind == kind && op.NodeID == at.NodeID && !op.Status.Ended.IsZero() && !op.CreateTime.Before(after) && !op.CreateTime.After(before) {
			calls = append(calls, op)
		}
	}
	return calls
}

func (t *Tracer) operations(ctx context.Context, object string, calls []*api.Operation) {
	for _, op := range calls {
		t.operation(ctx, object, op)
	}
}

// volume is a trace of a volume that was made, or deleted.
func (t *Tracer) volume(ctx context.Context, v state.View, op *api.Operation) {
	began, id := op.CreateTime, string(op.ID)
	if vol := v.Volume(op.Namespace, op.VolumeID); vol != nil && op.Kind == api.OperationCreate {
		began = vol.CreateTime
	}
	ctx = below(ctx, op.Trace)
	ctx = t.emit(ctx, span{object: id, name: "volume " + string(op.Kind), began: began, ended: op.Status.Ended, failure: failure(op)}.with(
		"berth.namespace", op.Namespace, "berth.volume", op.VolumeID))
	t.operation(ctx, id, op)
}

// operation is a recorded call, with its last attempt.
func (t *Tracer) operation(ctx context.Context, object string, op *api.Operation) {
	ended, failed := op.Status.Ended, failure(op)
	ctx = t.emit(ctx, span{object: object, name: "operation " + string(op.ID), began: op.CreateTime, ended: ended, failure: failed}.with(
		"berth.plugin", op.PluginID, "rpc.grpc.status", op.Status.Code, "berth.attempts", op.Status.Attempt))
	if !op.Status.Assigned.IsZero() {
		t.emit(ctx, span{object: object, name: "call of " + string(op.ID), began: op.Status.Assigned, ended: ended, failure: failed}.with(
			"berth.node", op.Status.Executor, "berth.took", time.Duration(op.Status.Duration)))
	}
}

// failure is what went wrong with a call, or "".
func failure(op *api.Operation) string {
	if op.Status.State == api.OperationSucceeded {
		return ""
	}
	return strings.TrimSuffix(op.Status.Code+": "+op.Status.Message, ": ")
}

// span is what is known of a span.
type span struct {
	// Object is what its trace is about, and name what it is called there: its
	// ids are hashes of both.
	object, name string
	// Unique tells apart spans of one name.
	unique       string
	began, ended time.Time
	failure      string
	// After is the span of a caller whose wish it follows, and is no part of.
	after trace.SpanContext
	about []attribute.KeyValue
}

// with adds attributes: names, each with its value.
func (s span) with(namesAndValues ...any) span {
	for i := 0; i+1 < len(namesAndValues); i += 2 {
		s.about = append(s.about, attribute.String(fmt.Sprint(namesAndValues[i]), fmt.Sprint(namesAndValues[i+1])))
	}
	return s
}

// emit makes a span, below the one that the context has, or as the first of a
// trace. Those below it get the context that it answers.
func (t *Tracer) emit(ctx context.Context, s span) context.Context {
	options := []trace.SpanStartOption{trace.WithTimestamp(s.began), trace.WithAttributes(s.about...)}
	if s.after.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: s.after}))
	}
	ctx, made := t.tracer.Start(context.WithValue(ctx, hashed{}, [2]string{s.object, s.name + s.unique}), s.name, options...)
	if s.failure != "" {
		made.SetStatus(codes.Error, s.failure)
	}
	made.End(trace.WithTimestamp(s.ended))
	return ctx
}

// hashed is the key of what a span's ids are made from.
type hashed struct{}

// hashes makes ids that are the same on every server.
type hashes struct{}

// NewIDs implements sdk.IDGenerator.
func (h hashes) NewIDs(ctx context.Context) (id trace.TraceID, span trace.SpanID) {
	names, _ := ctx.Value(hashed{}).([2]string)
	sum := sha256.Sum256([]byte("trace\x00" + names[0]))
	copy(id[:], sum[:])
	return id, h.NewSpanID(ctx, id)
}

// NewSpanID implements sdk.IDGenerator.
func (hashes) NewSpanID(ctx context.Context, _ trace.TraceID) (id trace.SpanID) {
	names, _ := ctx.Value(hashed{}).([2]string)
	sum := sha256.Sum256([]byte("span\x00" + names[0] + "\x00" + names[1]))
	copy(id[:], sum[:])
	return id
}

// failing logs what cannot be sent, instead of OpenTelemetry's global handler.
type failing struct {
	sdk.SpanExporter
	log *slog.Logger
}

// ExportSpans implements sdk.SpanExporter.
func (f failing) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if err := f.SpanExporter.ExportSpans(ctx, spans); err != nil {
		f.log.Warn("spans are lost: the collector does not take them", "spans", len(spans), "error", err)
	}
	return nil
}
