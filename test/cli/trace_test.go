package cli_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/cli"
	clitracing "github.com/berth-dev/berth/internal/cli/tracing"
	"github.com/berth-dev/berth/internal/server/tracing"
	"github.com/berth-dev/berth/test/cluster"
)

// collector takes spans as an OpenTelemetry collector does: OTLP over HTTP, in
// protobuf.
type collector struct {
	url   string
	mu    sync.Mutex // guards all below
	spans []received
	bytes []byte
}

// received is a span as it came, with what sent it.
type received struct {
	*tracepb.Span
	resource map[string]string
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.take(r); err != nil {
			t.Errorf("the collector got %s %s: %s", r.Method, r.URL, err)
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(server.Close)
	c.url = server.URL + "/v1/traces"
	return c
}

func (c *collector) take(r *http.Request) error {
	if kind := r.Header.Get("Content-Type"); r.URL.Path != "/v1/traces" || r.Method != http.MethodPost || kind != "application/x-protobuf" {
		return fmt.Errorf("the content is %q", kind)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	var request collectorpb.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &request); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes = append(c.bytes, body...)
	for _, of := range request.GetResourceSpans() {
		resource := map[string]string{}
		for _, a := range of.GetResource().GetAttributes() {
			resource[a.GetKey()] = a.GetValue().GetStringValue()
		}
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, received{s, resource})
			}
		}
	}
	return nil
}

// exporter sends to the collector.
func (c *collector) exporter(t *testing.T) sdk.SpanExporter {
	t.Helper()
	e, err := tracing.Collector(t.Context(), c.url)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (c *collector) all() []received {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

func (c *collector) named(name string) []received {
	return slices.DeleteFunc(c.all(), func(s received) bool { return s.GetName() != name })
}

// wait waits until there is a span of a name.
func (c *collector) wait(t *testing.T, name string) received {
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
			var names []string
			for _, s := range c.all() {
				names = append(names, s.GetName())
			}
			t.Fatalf("no span %q within %s; there are %q", name, limit, names)
		}
	}
}

const tracedSecret = "word-of-the-volume"

const tracedFiles = `
id          = "pg"
type        = "csi"
plugin_id   = "provider"
capacity_min = "1GiB"
capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}
secrets {
  password = "` + tracedSecret + `"
}
parameters {
  pool = "parameter-of-the-volume"
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
      env {
        PASSWORD = "word-of-the-environment"
      }
      volume_mount {
        volume      = "data"
        destination = "/data"
      }
    }
  }
}
`

// awaitProblem waits until the servers know that the mount of the volume fails.
func awaitProblem(t *testing.T, c *cluster.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		v, _, err := c.Client.Volume(ctx, api.DefaultNamespace, "pg", client.Query{})
		if err == nil && len(v.Attachments) == 1 && v.Attachments[0].Status.Problem != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Errorf("no problem of a mount within %s: %+v, %v", limit, v.Attachments, err)
			return
		}
	}
}

// TestOneTraceFromApplyToMount: what a person's command led to is below its span,
// which is below the one that called the command; what comes later by itself is
// only linked to it.
func TestOneTraceFromApplyToMount(t *testing.T) {
	t.Parallel()
	all := newCollector(t)
	server := tracing.New(all.exporter(t), "server", "test", slog.New(slog.DiscardHandler))
	t.Cleanup(func() { _ = server.Close(context.Background()) }) // nothing is left to send
	c, address := serveTraced(t, 1, provider(""), server)
	broken := c.Backend.Script(csitest.Rule{Method: "NodePublishVolume", Do: csitest.Fail("INTERNAL", "no mount with "+tracedSecret)})
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
				return clitracing.To(ctx, all.exporter(t), pipeline, "test", command)
			},
		})
		if status != cli.ExitDone {
			t.Fatalf("berth %s: exit status %d\n%s", strings.Join(args, " "), status, &said)
		}
	}
	// The mount fails until the servers have heard of it.
	var mends sync.WaitGroup
	mends.Go(func() {
		defer broken.Release()
		awaitProblem(t, c)
	})
	berth("apply", filepath.Join(dir, "volume.hcl"), filepath.Join(dir, "job.hcl"))
	mends.Wait()
	// The tracer's batches go out every few seconds.
	all.wait(t, "start tasks")
	all.wait(t, "volume create")
	all.wait(t, "volume data/NodePublishVolume failed")
	apply := all.named("berth apply")
	if len(apply) != 1 || hex.EncodeToString(apply[0].GetParentSpanId()) != "b7ad6b7169203331" {
		t.Fatalf("the command's spans are %+v", apply)
	}
	below := map[string]string{}
	ids := map[string]bool{}
	spans := all.all()
	for _, s := range spans {
		if id := hex.EncodeToString(s.GetTraceId()); id != "0af7651916cd43dd8448eb211c80319c" {
			t.Errorf("span %s is of trace %s", s.GetName(), id)
		}
		if id := string(s.GetSpanId()); ids[id] || len(id) != 8 {
			t.Errorf("the id of span %s is %x, which is not its own", s.GetName(), id)
		}
		ids[string(s.GetSpanId())] = true
		if s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() || s.GetStartTimeUnixNano() == 0 {
			t.Errorf("span %s is from %d to %d", s.GetName(), s.GetStartTimeUnixNano(), s.GetEndTimeUnixNano())
		}
		want := map[string]string{"service.name": "berth", "service.version": "test", "service.instance.id": "server"}
		if s.GetName() == "berth apply" {
			delete(want, "service.instance.id")
		}
		if diff := cmp.Diff(want, s.resource); diff != "" {
			t.Errorf("who sends span %s (-want +got):\n%s", s.GetName(), diff)
		}
		for _, above := range spans {
			if bytes.Equal(above.GetSpanId(), s.GetParentSpanId()) {
				below[s.GetName()] = above.GetName()
			}
		}
	}
	for name, above := range map[string]string{
		"allocation": "berth apply", "volume create": "berth apply", "place": "allocation", "volume data": "allocation", "start tasks": "allocation",
		"volume data/stage and publish on the node": "volume data", "volume data/controller publish": "volume data",
		"volume data/NodePublishVolume failed": "volume data",
	} {
		if below[name] != above {
			t.Errorf("span %q is below %q, want %q", name, below[name], above)
		}
	}

	berth("volume", "status", "pg")
	failed := all.named("volume data/NodePublishVolume failed")[0].GetStatus()
	if failed.GetCode() != tracepb.Status_STATUS_CODE_ERROR || !strings.HasPrefix(failed.GetMessage(), "INTERNAL: no mount with ") {
		t.Errorf("the status of the mount that failed is %s", failed)
	}
	if status := all.named("berth volume status"); len(status) != 1 {
		t.Errorf("%d spans of a command that only reads", len(status))
	}
	berth("job", "stop", "db")
	berth("volume", "delete", "pg")
	deleted := all.wait(t, "volume delete")
	if above := all.named("berth volume delete"); len(above) != 1 || !bytes.Equal(deleted.GetParentSpanId(), above[0].GetSpanId()) {
		t.Errorf("the deletion is below %x, and the command is %+v", deleted.GetParentSpanId(), above)
	}
	if unmount := all.wait(t, "unmount data"); len(unmount.GetLinks()) != 1 || !bytes.Equal(unmount.GetLinks()[0].GetSpanId(), apply[0].GetSpanId()) || len(unmount.GetParentSpanId()) > 0 {
		t.Errorf("the unmount is no trace with a link to who applied the job: %s", unmount)
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, secret := range []string{tracedSecret, "word-of-the-environment", "parameter-of-the-volume"} {
		if bytes.Contains(all.bytes, []byte(secret)) {
			t.Errorf("the collector was told %q", secret)
		}
	}
	job, err := c.Client.ApplyVolume(t.Context(), api.DefaultNamespace, "bare", api.VolumeSpec{
		PluginID: "provider", Capabilities: []api.Capability{{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}},
	}, 0)
	if err != nil || job.Status.Trace != "" {
		t.Errorf("who has no trace gets %q, error %v", job.Status.Trace, err)
	}
}
