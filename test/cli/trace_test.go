package cli_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/cli"
	clitracing "github.com/berth-dev/berth/internal/cli/tracing"
	"github.com/berth-dev/berth/internal/server/tracing"
)

// collector is an exporter that keeps what it gets.
type collector struct {
	mu    sync.Mutex // guards spans
	spans tracetest.SpanStubs
}

// ExportSpans implements sdk.SpanExporter.
func (c *collector) ExportSpans(_ context.Context, spans []sdk.ReadOnlySpan) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans = append(c.spans, tracetest.SpanStubsFromReadOnlySpans(spans)...)
	return nil
}

// Shutdown implements sdk.SpanExporter.
func (*collector) Shutdown(context.Context) error { return nil }

func (c *collector) named(name string) []tracetest.SpanStub {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []tracetest.SpanStub
	for _, s := range c.spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// wait waits until there is a span of a name.
func (c *collector) wait(t *testing.T, name string) tracetest.SpanStub {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if found := c.named(name); len(found) > 0 {
			return found[0]
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("no span %q within %s", name, limit)
		}
	}
}

const tracedFiles = `
id          = "pg"
type        = "csi"
plugin_id   = "provider"
capacity_min = "1GiB"
capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}
`

const tracedJob = `
job "db" {
  group "main" {
    volume "data" {
      type            = "csi"
      source          = "pg"
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"
    }
    task "server" {
      driver = "test"
      volume_mount {
        volume      = "data"
        destination = "/data"
      }
    }
  }
}
`

// TestOneTraceFromApplyToMount: what a person's command led to is below its span,
// which is below the one that called the command; what comes later by itself is
// only linked to it.
func TestOneTraceFromApplyToMount(t *testing.T) {
	t.Parallel()
	var all collector
	server := tracing.New(&all, "server", "test", slog.New(slog.DiscardHandler))
	t.Cleanup(func() { _ = server.Close(context.Background()) }) // nothing is left to send
	c, address := serveTraced(t, 1, provider(""), server)
	dir := t.TempDir()
	for name, text := range map[string]string{"volume.hcl": tracedFiles, "job.hcl": tracedJob} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const pipeline = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	berth := func(args ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		var said bytes.Buffer
		status := cli.Main(ctx, cli.Env{
			Args: args, Stdin: strings.NewReader(""), Stdout: &said, Stderr: &said, Version: "test",
			Getenv: func(name string) string { return map[string]string{"BERTH_ADDRESS": address}[name] },
			Trace: func(command string) cli.Trace {
				return clitracing.To(ctx, &all, pipeline, "test", command)
			},
		})
		if status != cli.ExitDone {
			t.Fatalf("berth %s: exit status %d\n%s", strings.Join(args, " "), status, &said)
		}
	}
	berth("apply", filepath.Join(dir, "volume.hcl"), filepath.Join(dir, "job.hcl"))
	// The tracer's batches go out every few seconds.
	all.wait(t, "start tasks")
	all.wait(t, "volume create")
	apply := all.named("berth apply")
	if len(apply) != 1 || apply[0].Parent.SpanID().String() != "b7ad6b7169203331" {
		t.Fatalf("the command's spans are %+v", apply)
	}
	below := map[string]string{}
	all.mu.Lock()
	for _, s := range all.spans {
		if id := s.SpanContext.TraceID().String(); id != "0af7651916cd43dd8448eb211c80319c" {
			t.Errorf("span %s is of trace %s", s.Name, id)
		}
		for _, above := range all.spans {
			if above.SpanContext.SpanID() == s.Parent.SpanID() {
				below[s.Name] = above.Name
			}
		}
	}
	all.mu.Unlock()
	for name, above := range map[string]string{
		"allocation": "berth apply", "volume create": "berth apply", "place": "allocation", "volume data": "allocation", "start tasks": "allocation",
		"volume data/stage and publish on the node": "volume data", "volume data/controller publish": "volume data",
	} {
		if below[name] != above {
			t.Errorf("span %q is below %q, want %q", name, below[name], above)
		}
	}

	berth("volume", "status", "pg")
	if status := all.named("berth volume status"); len(status) != 1 {
		t.Errorf("%d spans of a command that only reads", len(status))
	}
	berth("job", "stop", "db")
	berth("volume", "delete", "pg")
	deleted := all.wait(t, "volume delete")
	if above := all.named("berth volume delete"); len(above) != 1 || deleted.Parent.SpanID() != above[0].SpanContext.SpanID() {
		t.Errorf("the deletion is below %s, and the command is %+v", deleted.Parent.SpanID(), above)
	}
	job, err := c.Client.ApplyVolume(t.Context(), api.DefaultNamespace, "bare", api.VolumeSpec{
		PluginID: "provider", Capabilities: []api.Capability{{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}},
	}, 0)
	if err != nil || job.Status.Trace != "" {
		t.Errorf("who has no trace gets %q, error %v", job.Status.Trace, err)
	}
}
