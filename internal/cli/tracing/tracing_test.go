package tracing_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/berth-dev/berth/internal/cli/tracing"
)

const pipeline = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestNobodyIsToldUnlessConfigured(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		env     map[string]string
		context string
		problem string
	}{
		"Nothing":         {nil, "", ""},
		"CallerOnly":      {map[string]string{"TRACEPARENT": pipeline}, pipeline, ""},
		"BrokenCaller":    {map[string]string{"TRACEPARENT": "x"}, "", ""},
		"ExporterNone":    {map[string]string{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "TRACEPARENT": pipeline}, pipeline, ""},
		"Disabled":        {map[string]string{"OTEL_SDK_DISABLED": "True", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, "", ""},
		"MetricsOnly":     {map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:1"}, "", ""},
		"OtherExporter":   {map[string]string{"OTEL_TRACES_EXPORTER": "console"}, "", `OTEL_TRACES_EXPORTER is "console", and berth knows otlp and none`},
		"OtherProtocol":   {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "", `the protocol is "grpc", and berth speaks http/protobuf (OTEL_EXPORTER_OTLP_PROTOCOL)`},
		"NearerProtocol":  {map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "", `the protocol is "http/json", and berth speaks http/protobuf (OTEL_EXPORTER_OTLP_PROTOCOL)`},
		"ProblemAndTrace": {map[string]string{"OTEL_TRACES_EXPORTER": "zipkin", "TRACEPARENT": pipeline}, pipeline, `OTEL_TRACES_EXPORTER is "zipkin", and berth knows otlp and none`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := tracing.Begin(t.Context(), func(name string) string { return tc.env[name] }, "1", "berth status")
			problem := ""
			if err := s.End(t.Context(), nil); err != nil {
				problem = err.Error()
			}
			if string(s.Context()) != tc.context || problem != tc.problem {
				t.Errorf("context %q, problem %q", s.Context(), problem)
			}
		})
	}
}

// kept is an exporter that keeps spans when it is shut down, too.
type kept struct {
	spans tracetest.SpanStubs
	fails error
}

func (k *kept) ExportSpans(_ context.Context, spans []sdk.ReadOnlySpan) error {
	k.spans = append(k.spans, tracetest.SpanStubsFromReadOnlySpans(spans)...)
	return k.fails
}

func (*kept) Shutdown(context.Context) error { return nil }

func TestACommandIsASpan(t *testing.T) {
	t.Parallel()
	var k kept
	s := tracing.To(t.Context(), &k, pipeline, "1", "berth apply")
	if err := s.End(t.Context(), errors.New("no such plugin")); err != nil {
		t.Fatal(err)
	}
	if len(k.spans) != 1 {
		t.Fatalf("%d spans", len(k.spans))
	}
	got := k.spans[0]
	if got.Name != "berth apply" || got.Parent.SpanID().String() != "b7ad6b7169203331" || got.Status.Description != "no such plugin" {
		t.Errorf("%+v", got)
	}
	if want := "00-0af7651916cd43dd8448eb211c80319c-" + got.SpanContext.SpanID().String() + "-01"; string(s.Context()) != want {
		t.Errorf("requests say %q, want %q", s.Context(), want)
	}
}

func TestALostSpanIsSaid(t *testing.T) {
	t.Parallel()
	s := tracing.To(t.Context(), &kept{fails: errors.New("connection refused")}, "", "1", "berth apply")
	if err := s.End(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("error %v", err)
	}
	if s.Context() == "" {
		t.Error("requests say nothing of a span that is there")
	}
}

// The exporter reads the process's environment by itself.
func TestTheEnvironmentNamesTheCollector(t *testing.T) {
	got := make(chan string, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- r.URL.Path + " " + string(body)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_SERVICE_NAME", "pipeline-7")
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL, "OTEL_SERVICE_NAME": "pipeline-7"}
	s := tracing.Begin(t.Context(), func(name string) string { return env[name] }, "1", "berth apply")
	if err := s.End(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if said := <-got; !strings.HasPrefix(said, "/v1/traces ") || !strings.Contains(said, "berth apply") || !strings.Contains(said, "pipeline-7") {
		t.Errorf("the collector got %q", said)
	}
}
