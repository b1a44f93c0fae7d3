package csimanager_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/dynamicplugins"
)

// odd is a driver that answers what the specification does not allow.
type odd struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	info csi.GetPluginInfoResponse
	node csi.NodeGetInfoResponse
}

func (o *odd) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (o *odd) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &o.info, nil
}

func (o *odd) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

func (o *odd) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

func (o *odd) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &o.node, nil
}

// serve serves the driver until the test has ended.
func (o *odd) serve(t *testing.T) dynamicplugins.Plugin {
	t.Helper()
	wire := bufconn.Listen(8 << 10)
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, o)
	csi.RegisterNodeServer(server, o)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(wire) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return dynamicplugins.Plugin{
		ID: plugin, Type: api.InstanceMonolith,
		Dial: func(ctx context.Context) (net.Conn, error) { return wire.DialContext(ctx) },
	}
}

func TestFingerprint_OddAnswers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		driver  *odd
		healthy bool
		reason  string
	}{
		// Drivers that were built without their linker flags have none.
		"NoVendorVersion": {&odd{
			info: csi.GetPluginInfoResponse{Name: "odd"}, node: csi.NodeGetInfoResponse{NodeId: "n1"},
		}, true, ""},
		"NoName":   {&odd{}, false, "the name is empty"},
		"NoNodeID": {&odd{info: csi.GetPluginInfoResponse{Name: "odd"}}, false, "node_id is empty"},
		"NegativeMostVolumes": {&odd{
			info: csi.GetPluginInfoResponse{Name: "odd"}, node: csi.NodeGetInfoResponse{NodeId: "n1", MaxVolumesPerNode: -1},
		}, false, "max_volumes_per_node is -1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := tc.driver.serve(t)
				f := newFleet(t)
				f.registry.Register(p)
				time.Sleep(time.Minute)
				if got := f.facts.last(t); got.Healthy != tc.healthy || !strings.Contains(got.Reason, tc.reason) {
					t.Errorf("said %+v, want healthy %t because of %q", got, tc.healthy, tc.reason)
				}
			})
		})
	}
}
