package csitest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
)

func TestMain(m *testing.M) {
	// Ginkgo, which runs csi-sanity, waits for interrupts as long as it lives.
	const ginkgo = "github.com/onsi/ginkgo/v2/internal/interrupt_handler.(*InterruptHandler).registerForInterrupts.func2"
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction(ginkgo))
}

// world is a backend with two nodes, and one volume that is asked for rightly.
type world struct {
	t       testing.TB
	backend *csitest.Backend
	clients map[string]*csi.Client
	mode    api.AccessMode
	volume  api.OperationResult
	context map[string]string
}

func newWorld(t testing.TB, o csitest.Options) *world {
	t.Helper()
	w := &world{
		t: t, backend: csitest.NewBackend(o), clients: make(map[string]*csi.Client),
		mode: api.SingleNodeWriter,
	}
	for _, id := range []string{"n1", "n2"} {
		w.clients[id] = client(t, w.backend.Node(csitest.Node{ID: id, MaxVolumes: 2, Topology: map[string]string{"zone": id}}), o)
	}
	return w
}

// client calls the driver, which is served until the test has ended.
func client(t testing.TB, d *csitest.Driver, o csitest.Options) *csi.Client {
	t.Helper()
	d.Start(t)
	c := csi.New(d.Dialer(), patient(), discard())
	if o.MultiWriter {
		multi := []string{api.CapSingleNodeMultiWrite}
		c = c.WithCapabilities(multi, multi)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (w *world) capability() api.Capability {
	return api.Capability{AccessMode: w.mode, AttachmentMode: api.FileSystem}
}

// step makes the call that its word names: create, delete, attach, detach,
// stage, unstage, publish or unpublish, and the node after a colon if it is not
// n1. What follows another colon changes an argument.
func (w *world) step(step string) error {
	verb, rest, _ := strings.Cut(step, ":")
	node, change, _ := strings.Cut(rest, ":")
	if node == "" {
		node = "n1"
	}
	return w.call(w.t.Context(), verb, node, change)
}

func (w *world) call(ctx context.Context, verb, node, change string) error {
	c, id := w.clients[node], w.volume.ExternalID
	staging, target := "/staging/"+node, "/target/"+node
	if change == "elsewhere" {
		staging, target = "/elsewhere", "/elsewhere"
	}
	volumeContext, publishContext := w.volume.Context, w.context
	if change == "no-context" {
		volumeContext, publishContext = nil, nil
	}
	switch verb {
	case "create":
		r := api.CreateRequest{Name: "pg", Capabilities: []api.Capability{w.capability()}, CapacityMin: 1 << 20}
		if change == "elsewhere" {
			r.Parameters = map[string]string{"other": "one"}
		}
		result, err := w.clients["n1"].CreateVolume(ctx, r)
		if err == nil {
			w.volume = result
		}
		return err
	case "delete":
		return c.DeleteVolume(ctx, api.DeleteRequest{ExternalID: id})
	case "attach":
		// Every controller call goes through n1, as it may.
		result, err := w.clients["n1"].ControllerPublish(ctx, api.PublishRequest{
			ExternalID: id, ExternalNodeID: node, Capability: w.capability(), Context: volumeContext,
			ReadOnly: change == "read-only",
		})
		if err == nil {
			w.context = result.PublishContext
		}
		return err
	case "detach":
		return w.clients["n1"].ControllerUnpublish(ctx, api.UnpublishRequest{ExternalID: id, ExternalNodeID: node})
	case "stage":
		return c.NodeStage(ctx, csi.StageRequest{
			ExternalID: id, StagingPath: staging, Capability: w.capability(),
			Context: volumeContext, PublishContext: publishContext,
		})
	case "unstage":
		return c.NodeUnstage(ctx, csi.UnstageRequest{ExternalID: id, StagingPath: staging})
	case "publish":
		return c.NodePublish(ctx, csi.PublishRequest{
			ExternalID: id, StagingPath: "/staging/" + node, TargetPath: target, Capability: w.capability(),
			Context: volumeContext, PublishContext: publishContext, ReadOnly: change == "read-only",
		})
	case "unpublish":
		return c.NodeUnpublish(ctx, csi.UnpublishRequest{ExternalID: id, TargetPath: target})
	}
	w.t.Fatalf("there is no step %q", verb)
	return nil
}

// walk takes the steps and compares the codes that are not OK.
func (w *world) walk(steps string, wantCodes map[string]string) {
	w.t.Helper()
	got := make(map[string]string)
	for step := range strings.FieldsSeq(steps) {
		if err := w.step(step); err != nil {
			got[step] = csi.CodeOf(err)
		}
	}
	if wantCodes == nil {
		wantCodes = map[string]string{}
	}
	if diff := cmp.Diff(wantCodes, got); diff != "" {
		w.t.Errorf("codes of the steps %s (-want +got):\n%s", steps, diff)
	}
}

func (w *world) mustStep(steps ...string) {
	w.t.Helper()
	for _, step := range steps {
		if err := w.step(step); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) wantViolations(want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.backend.Violations()); diff != "" {
		w.t.Errorf("violations (-want +got):\n%s", diff)
	}
}
