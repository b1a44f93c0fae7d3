package csitest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/agent/mount"
	"github.com/berth-dev/berth/internal/agent/mount/mounttest"
)

func fields(s string) []string { return strings.Fields(s) }

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// patient is for a machine that may be busy.
func patient() csi.Config { return csi.Config{ConnectTimeout: time.Minute} }

func TestSequence_IsCompact(t *testing.T) {
	t.Parallel()
	w := newWorld(t, csitest.Options{Attach: true, Stage: true})
	w.backend.Script(csitest.Rule{Method: "NodeStageVolume", Times: 1, Do: csitest.Fail(csi.CodeInternal, "")})
	if _, err := w.clients["n1"].Info(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.walk("create attach:n2 stage:n2", map[string]string{"stage:n2": csi.CodeInternal})
	w.walk("stage:n2 publish:n2 unpublish:n2 unstage:n2 detach:n2 delete", nil)
	want := `CreateVolume pg OK
ControllerPublishVolume pg n2 OK
NodeStageVolume pg n2 INTERNAL
NodeStageVolume pg n2 OK
NodePublishVolume pg n2 OK
NodeUnpublishVolume pg n2 OK
NodeUnstageVolume pg n2 OK
ControllerUnpublishVolume pg n2 OK
DeleteVolume pg OK
`
	if diff := cmp.Diff(want, csitest.Sequence(w.backend.Calls())); diff != "" {
		t.Errorf("sequence (-want +got):\n%s", diff)
	}
}

func TestCalls_HoldTheRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, csitest.Options{Attach: true})
	w.walk("create attach:n2", nil)
	calls := w.backend.Calls()
	if len(calls) != 2 {
		t.Fatalf("calls = %+v, want two", calls)
	}
	id := w.volume.ExternalID
	want := csitest.Call{Seq: 2, By: "n1", Node: "n2", Method: "ControllerPublishVolume", Volume: id, Name: "pg", Code: "OK"}
	want.Request = fmt.Appendf(nil, `{"volume_id":%q,"node_id":"n2","volume_capability":`+
		`{"mount":{},"access_mode":{"mode":"SINGLE_NODE_WRITER"}},"volume_context":{"csitest/volume":%q}}`, id, id)
	if diff := cmp.Diff(string(want.Request), string(calls[1].Request)); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, calls[1]); diff != "" {
		t.Errorf("call (-want +got):\n%s", diff)
	}
}

func TestForget_KeepsNoCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t, csitest.Options{Forget: true})
	w.walk("create delete", nil)
	if calls := w.backend.Calls(); len(calls) > 0 {
		t.Errorf("calls = %+v", calls)
	}
}

func TestDriver_ComesBackWithItsState(t *testing.T) {
	t.Parallel()
	b := csitest.NewBackend(csitest.Options{})
	d := b.Node(csitest.Node{ID: "n1"})
	stop := d.Start(t)
	w := &world{t: t, backend: b, clients: map[string]*csi.Client{"n1": csi.New(d.Dialer(), patient(), discard())}, mode: api.SingleNodeWriter}
	defer func() { _ = w.clients["n1"].Close() }()
	w.walk("create publish", nil)
	stop()
	w.walk("unpublish", map[string]string{"unpublish": csi.CodeUnavailable})
	d.Start(t)
	w.walk("publish unpublish delete", nil)
	w.wantViolations()
}

func TestDialer_RefusedBeforeListen(t *testing.T) {
	t.Parallel()
	d := csitest.NewBackend(csitest.Options{}).Node(csitest.Node{ID: "n1"})
	if _, err := d.Dialer()(t.Context()); err == nil {
		t.Error("dialed a driver that does not listen")
	}
}

func TestServe_OnASocketUntilTold(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	lis, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	d := csitest.NewBackend(csitest.Options{Name: "named", VendorVersion: "2"}).Node(csitest.Node{ID: "n1"})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Serve(ctx, lis) }()
	c := csi.New(csi.SocketDialer(path), patient(), discard())
	defer func() { _ = c.Close() }()
	info, err := c.Info(t.Context())
	if diff := cmp.Diff(csi.Info{Name: "named", VendorVersion: "2"}, info); err != nil || diff != "" {
		t.Errorf("info: %v (-want +got):\n%s", err, diff)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestServe_BrokenListenerIsAnError(t *testing.T) {
	t.Parallel()
	d := csitest.NewBackend(csitest.Options{}).Node(csitest.Node{ID: "n1"})
	lis := d.Listen()
	if err := lis.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Serve(t.Context(), lis); err == nil {
		t.Error("served on a closed listener")
	}
}

func TestRoles(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options          csitest.Options
		role             csitest.Role
		controller, node string
		plugin           []string
	}{
		"Monolith":       {csitest.Options{}, csitest.Monolith, csi.CodeOK, csi.CodeOK, []string{"CONTROLLER_SERVICE"}},
		"ControllerOnly": {csitest.Options{}, csitest.ControllerOnly, csi.CodeOK, csi.CodeUnimplemented, []string{"CONTROLLER_SERVICE"}},
		"NodeOnly":       {csitest.Options{}, csitest.NodeOnly, csi.CodeUnimplemented, csi.CodeOK, []string{"CONTROLLER_SERVICE"}},
		"NoController":   {csitest.Options{NoController: true}, csitest.Monolith, csi.CodeUnimplemented, csi.CodeOK, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := csitest.NewBackend(test.options).Node(csitest.Node{ID: "n1", Role: test.role})
			c := client(t, d, csitest.Options{})
			_, controllerErr := c.ControllerCapabilities(t.Context())
			_, nodeErr := c.NodeCapabilities(t.Context())
			if got := [2]string{csi.CodeOf(controllerErr), csi.CodeOf(nodeErr)}; got != [2]string{test.controller, test.node} {
				t.Errorf("controller and node services: %v, want %s, %s", got, test.controller, test.node)
			}
			plugin, err := c.PluginCapabilities(t.Context())
			if diff := cmp.Diff(test.plugin, plugin); err != nil || diff != "" {
				t.Errorf("plugin capabilities: %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestSetStarting(t *testing.T) {
	t.Parallel()
	d := csitest.NewBackend(csitest.Options{}).Node(csitest.Node{ID: "n1"})
	c := client(t, d, csitest.Options{})
	for _, starting := range []bool{true, false} {
		d.SetStarting(starting)
		if ready, err := c.Probe(t.Context()); err != nil || ready == starting {
			t.Errorf("starting = %v: ready = %v, %v", starting, ready, err)
		}
	}
}

func TestTableMounts_MarkTheTable(t *testing.T) {
	t.Parallel()
	table := mounttest.New()
	options := csitest.Options{Stage: true}
	b := csitest.NewBackend(options)
	d := b.Node(csitest.Node{ID: "n1", Mounter: csitest.TableMounts(table)})
	w := &world{t: t, backend: b, clients: map[string]*csi.Client{"n1": client(t, d, options)}, mode: api.SingleNodeWriter}
	w.walk("create stage publish:n1:read-only", nil)
	if m, found, err := table.At("/target/n1"); err != nil || !found || !m.ReadOnly {
		t.Errorf("target = %+v, %v, %v; want it mounted read-only", m, found, err)
	}
	table.Hold("/target/n1", "postgres (pid 1)")
	w.walk("unpublish", map[string]string{"unpublish": csi.CodeInternal})
	table.Free("/target/n1")
	w.walk("unpublish unstage delete", nil)
	if left, err := table.Under("/target"); err != nil || len(left) > 0 {
		t.Errorf("left mounted: %v, %v", left, err)
	}
	w.wantViolations()
}

func TestKernelMounts_DataStaysWithTheVolume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := csitest.Options{Stage: true}
	b := csitest.NewBackend(options)
	d := b.Node(csitest.Node{ID: "n1", Mounter: csitest.KernelMounts(dir + "/data")})
	c := client(t, d, options)
	capability := api.Capability{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}
	v, err := c.CreateVolume(t.Context(), api.CreateRequest{Name: "pg", Capabilities: []api.Capability{capability}})
	if err := errors.Join(err, os.Mkdir(dir+"/staging", 0o755)); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"", "precious"} {
		target := fmt.Sprintf("%s/target-%d", dir, i)
		stage := csi.StageRequest{ExternalID: v.ExternalID, StagingPath: dir + "/staging", Capability: capability, Context: v.Context}
		publish := csi.PublishRequest{
			ExternalID: v.ExternalID, StagingPath: dir + "/staging", TargetPath: target, Capability: capability, Context: v.Context,
		}
		if err := errors.Join(c.NodeStage(t.Context(), stage), c.NodePublish(t.Context(), publish)); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(target + "/file"); string(got) != want {
			t.Errorf("file = %q, want %q", got, want)
		}
		if err := os.WriteFile(target+"/file", []byte("precious"), 0o600); err != nil {
			t.Error(err)
		}
		err := errors.Join(
			c.NodeUnpublish(t.Context(), csi.UnpublishRequest{ExternalID: v.ExternalID, TargetPath: target}),
			c.NodeUnstage(t.Context(), csi.UnstageRequest{ExternalID: v.ExternalID, StagingPath: dir + "/staging"}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(target); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the target is still there: %v", err)
		}
	}
	if left, err := (mount.Kernel{}).Under(dir); err != nil || len(left) > 0 {
		t.Errorf("left mounted: %v, %v", left, err)
	}
	if v := b.Violations(); len(v) > 0 {
		t.Error(v)
	}
}

func TestKernelMounts_BlockIsAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := csitest.NewBackend(csitest.Options{})
	c := client(t, b.Node(csitest.Node{ID: "n1", Mounter: csitest.KernelMounts(dir + "/data")}), csitest.Options{})
	capability := api.Capability{AccessMode: api.SingleNodeWriter, AttachmentMode: api.BlockDevice}
	v, err := c.CreateVolume(t.Context(), api.CreateRequest{Name: "raw", Capabilities: []api.Capability{capability}})
	if err != nil {
		t.Fatal(err)
	}
	publish := csi.PublishRequest{ExternalID: v.ExternalID, TargetPath: dir + "/device", Capability: capability, Context: v.Context}
	if err := c.NodePublish(t.Context(), publish); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir + "/device"); err != nil || !info.Mode().IsRegular() {
		t.Errorf("target = %v, %v; want a file", info, err)
	}
	if err := c.NodeUnpublish(t.Context(), csi.UnpublishRequest{ExternalID: v.ExternalID, TargetPath: dir + "/device"}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir + "/device"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the target is still there: %v", err)
	}
}

// BenchmarkLife is the eight calls of a volume's life, over a connection in
// memory.
func BenchmarkLife(b *testing.B) {
	w := newWorld(b, csitest.Options{Attach: true, Stage: true, Forget: true})
	for b.Loop() {
		w.mustStep(fields(setUp + takeDown)...)
	}
	w.wantViolations()
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(8*b.N), "µs/call")
}

// BenchmarkTenThousandVolumes is one more volume made and deleted beside ten
// thousand others.
func BenchmarkTenThousandVolumes(b *testing.B) {
	w := newWorld(b, csitest.Options{Forget: true})
	for i := range 10_000 {
		_, err := w.clients["n1"].CreateVolume(b.Context(), api.CreateRequest{
			Name: fmt.Sprint(i), Capabilities: []api.Capability{w.capability()},
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		w.mustStep("create", "delete")
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(2*b.N), "µs/call")
}
