package main_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// shape is what the mock says of itself, as far as flags change it.
type shape struct {
	Name, NodeID string
	Attaches     bool
	MaxVolumes   int64
	Constrained  bool
	Segments     map[string]string
}

func TestFlagsShapeTheDriver(t *testing.T) {
	t.Parallel()
	const name = "io.kubernetes.storage.mock"
	for title, c := range map[string]struct {
		args []string
		want shape
	}{
		"Defaults": {nil, shape{Name: name, NodeID: name, Attaches: true}},
		"Name":     {[]string{"-name", "mock.example"}, shape{Name: "mock.example", NodeID: "mock.example", Attaches: true}},
		"NoAttach": {[]string{"-disable-attach"}, shape{Name: name, NodeID: name}},
		"Limit":    {[]string{"-attach-limit", "2"}, shape{Name: name, NodeID: name, Attaches: true, MaxVolumes: 2}},
		"Topology": {[]string{"-topology"}, shape{
			Name: name, NodeID: name, Attaches: true, Constrained: true,
			Segments: map[string]string{name + "/node": "some-mock-node"},
		}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			equal(t, "shape", shapeOf(t, start(t, t.TempDir(), c.args...)), c.want)
		})
	}
}

func shapeOf(t *testing.T, d *driver) shape {
	t.Helper()
	ctx := t.Context()
	info := must(d.GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}))(t)
	node := must(d.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{}))(t)
	s := shape{
		Name: info.Name, NodeID: node.NodeId, MaxVolumes: node.MaxVolumesPerNode,
		Segments: node.AccessibleTopology.GetSegments(),
	}
	plugin := must(d.GetPluginCapabilities(ctx, &csi.GetPluginCapabilitiesRequest{}))(t)
	for _, c := range plugin.Capabilities {
		if c.GetService().GetType() == csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS {
			s.Constrained = true
		}
	}
	controller := must(
		d.ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{}))(t)
	for _, c := range controller.Capabilities {
		if c.GetRpc().GetType() == csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME {
			s.Attaches = true
		}
	}
	return s
}

func TestEndpointFromEnvironment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := startWith(t, dir, []string{"CSI_ENDPOINT=unix://" + dir + "/csi.sock"})
	must(d.GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{}))(t)
}

// TestBadFlags is answered with the flag, what is wrong, and exit status 2.
func TestBadFlags(t *testing.T) {
	t.Parallel()
	const endpoint = "-endpoint=unix:///nowhere/csi.sock"
	for title, c := range map[string]struct {
		args []string
		want []string
	}{
		"NoEndpoint":       {nil, []string{`-endpoint "": give unix:// and an absolute path`}},
		"OtherNetwork":     {[]string{"-endpoint", "tcp://:9000"}, []string{`-endpoint "tcp://:9000": give unix://`}},
		"RelativeEndpoint": {[]string{"-endpoint", "unix://csi.sock"}, []string{`-endpoint "unix://csi.sock": give unix://`}},
		"NegativeLimit":    {[]string{endpoint, "-attach-limit=-1"}, []string{"-attach-limit -1: give 0 or more"}},
		"StateForNothing":  {[]string{endpoint, "-state-dir=/nowhere"}, []string{`-state-dir "/nowhere": serves -real-mounts only`}},
		"ShortFault":       {[]string{endpoint, "-fault=CreateVolume:INTERNAL"}, []string{"want METHOD:CODE:N"}},
		"FaultOK":          {[]string{endpoint, "-fault=CreateVolume:OK:1"}, []string{`"OK" is no gRPC error code`}},
		"FaultCode":        {[]string{endpoint, "-fault=CreateVolume:Internal:1"}, []string{`"Internal" is no gRPC error code`}},
		"FaultCount":       {[]string{endpoint, "-fault=CreateVolume:INTERNAL:0"}, []string{`"0" is no number of calls`}},
		"SecretKeyOnly":    {[]string{endpoint, "-secret=key"}, []string{"want KEY=VALUE"}},
		"SecretValueOnly":  {[]string{endpoint, "-secret==value"}, []string{"want KEY=VALUE"}},
		"UnknownFlag":      {[]string{endpoint, "-no-such"}, []string{"-no-such"}},
		"Several": {[]string{endpoint, "-fault=MakeVolume:INTERNAL:1", "-die-in=NodeMount", "argument"}, []string{
			`-fault: the mock has no method "MakeVolume"`, `-die-in: the mock has no method "NodeMount"`, `arguments ["argument"]`,
		}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			out, err := program(c.args...).CombinedOutput()
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok || exit.ExitCode() != 2 {
				t.Errorf("ended with %v, want exit status 2", err)
			}
			for _, want := range c.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("no %q in:\n%s", want, out)
				}
			}
		})
	}
}

func TestHelpIsNoError(t *testing.T) {
	t.Parallel()
	if err := program("-help").Run(); err != nil {
		t.Error(err)
	}
}
