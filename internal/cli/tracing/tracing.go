// Package tracing tells an OpenTelemetry collector of one command of the command
// line, as the variables OTEL_* of its environment say, and names its span for
// the servers, which put below it what the command leads to.
//
// It does nothing unless it is configured. Invariant: a command neither fails nor
// waits longer than Patience because of its trace.
package tracing

import (
	"context"
	"errors"
	"fmt"
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
)

// Patience is how long the end of a command may wait for the collector.
const Patience = 2 * time.Second

// Span is that of one command.
type Span struct {
	caller   api.TraceContext
	provider *sdk.TracerProvider // nil where nobody is told
	span     trace.Span
	problem  error
}

// Begin begins the span of a command. The environment's TRACEPARENT is the span
// that it is below; where no collector is configured, it is handed on as it is.
func Begin(ctx context.Context, getenv func(string) string, version, command string) *Span {
	s := &Span{caller: api.ParseTraceContext(getenv("TRACEPARENT"))}
	if !configured(getenv) {
		return s
	}
	if s.problem = unknown(getenv); s.problem != nil {
		return s
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}), otlptracehttp.WithTimeout(Patience))
	if err != nil {
		s.problem = err
		return s
	}
	return s.begin(ctx, exporter, version, command)
}

// To is Begin for an exporter that is there already.
func To(ctx context.Context, exporter sdk.SpanExporter, caller api.TraceContext, version, command string) *Span {
	return (&Span{caller: caller}).begin(ctx, exporter, version, command)
}

func (s *Span) begin(ctx context.Context, exporter sdk.SpanExporter, version, command string) *Span {
	about, err := resource.Merge(
		resource.NewSchemaless(attribute.String("service.name", "berth"), attribute.String("service.version", version)),
		resource.Environment())
	if err != nil {
		s.problem = err
		return s
	}
	s.provider = sdk.NewTracerProvider(sdk.WithSyncer(kept{exporter, &s.problem}), sdk.WithResource(about))
	above := propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{api.HeaderTrace: string(s.caller)})
	below, span := s.provider.Tracer("github.com/berth-dev/berth/internal/cli").Start(above, command, trace.WithSpanKind(trace.SpanKindClient))
	named := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(below, named)
	s.caller, s.span = api.ParseTraceContext(named[api.HeaderTrace]), span
	return s
}

// Context is what requests of the command say of it; none if nobody asked.
func (s *Span) Context() api.TraceContext { return s.caller }

// End ends the span with how the command did, and sends it, for as long as ctx
// and Patience allow. An error says why nobody will see it.
func (s *Span) End(ctx context.Context, failure error) error {
	if s.provider == nil {
		return s.problem
	}
	if failure != nil {
		s.span.SetStatus(codes.Error, failure.Error())
	}
	bounded, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	s.span.End()
	return errors.Join(s.problem, s.provider.Shutdown(bounded))
}

// configured reports whether there is somebody to tell.
func configured(getenv func(string) string) bool {
	exporter := getenv("OTEL_TRACES_EXPORTER")
	endpoint := getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") + getenv("OTEL_EXPORTER_OTLP_ENDPOINT")
	return !strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") && exporter != "none" && (exporter != "" || endpoint != "")
}

// unknown refuses what would be sent in another way than it is asked for.
func unknown(getenv func(string) string) error {
	protocol := getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
	if protocol == "" {
		protocol = getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	switch exporter := getenv("OTEL_TRACES_EXPORTER"); {
	case exporter != "" && exporter != "otlp":
		return fmt.Errorf("OTEL_TRACES_EXPORTER is %q, and berth knows otlp and none", exporter)
	case protocol != "" && protocol != "http/protobuf":
		return fmt.Errorf("the protocol is %q, and berth speaks http/protobuf (OTEL_EXPORTER_OTLP_PROTOCOL)", protocol)
	}
	return nil
}

// kept keeps why a span was not sent: OpenTelemetry's own handler would print it.
type kept struct {
	sdk.SpanExporter
	problem *error
}

// ExportSpans implements sdk.SpanExporter.
func (k kept) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	bounded, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	*k.problem = k.SpanExporter.ExportSpans(bounded, spans)
	return nil
}
