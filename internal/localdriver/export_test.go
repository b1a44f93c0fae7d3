package localdriver

import (
	"context"
	"os"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/berth-dev/berth/internal/localdriver/filesystem"
)

// Steps lists the moments at which a driver can be stopped.
func Steps() []string {
	var names []string
	for _, s := range steps() {
		names = append(names, string(s))
	}
	return names
}

// OnStep has f called at every step.
func (d *Driver) OnStep(f func(step string)) { d.passed = func(s step) { f(string(s)) } }

// SetTools replaces the programs that the driver runs.
func (d *Driver) SetTools(tools filesystem.Tools) { d.tools = tools }

// Direct returns what calls a method of a service as if the request had come by
// the driver's socket: its name, and what fills its request in. end ends it.
func (d *Driver) Direct() (call func(ctx context.Context, method string, fill func(request any) error) (any, error), end func(), err error) {
	if err := os.MkdirAll(d.cfg.Root, 0o700); err != nil {
		return nil, nil, err
	}
	vols, err := openVolumes(d.cfg.Root, d.cfg.NodeID, d.tools, d.log, d.passed)
	if err != nil {
		return nil, nil, err
	}
	services := map[*grpc.ServiceDesc]any{
		&csi.Controller_ServiceDesc: &controller{volumes: vols}, &csi.Node_ServiceDesc: &node{volumes: vols},
	}
	ctx, cancel := context.WithCancel(context.Background())
	var beside sync.WaitGroup
	beside.Go(func() { vols.copies.run(ctx) })
	call = func(ctx context.Context, method string, fill func(request any) error) (any, error) {
		for desc, service := range services {
			for _, m := range desc.Methods {
				if m.MethodName == method {
					return m.Handler(service, ctx, fill, d.intercept)
				}
			}
		}
		return nil, refuse(codes.Unimplemented, "there is no method %s", method)
	}
	return call, func() { cancel(); beside.Wait() }, nil
}

// Methods are the names of all methods of the driver's services.
func Methods() (names []string) {
	for _, desc := range []grpc.ServiceDesc{csi.Controller_ServiceDesc, csi.Node_ServiceDesc} {
		for _, m := range desc.Methods {
			names = append(names, m.MethodName)
		}
	}
	return names
}
