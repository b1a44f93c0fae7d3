package csi

import (
	"context"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Info is who a driver is.
type Info struct {
	// Name tells the driver from all others; VendorVersion is opaque.
	Name          string
	VendorVersion string
}

// Info calls GetPluginInfo.
func (c *Client) Info(ctx context.Context) (Info, error) {
	var r csi.GetPluginInfoResponse
	if err := c.invoke(ctx, csi.Identity_GetPluginInfo_FullMethodName, &csi.GetPluginInfoRequest{}, &r); err != nil {
		return Info{}, err
	}
	const method = "GetPluginInfo"
	if r.GetName() == "" {
		return Info{}, broken(method, "the name is empty")
	}
	if err := checkString("name", r.GetName()); err != nil {
		return Info{}, broken(method, "%s", err)
	}
	if err := checkString("vendor_version", r.GetVendorVersion()); err != nil {
		return Info{}, broken(method, "%s", err)
	}
	return Info{Name: r.GetName(), VendorVersion: r.GetVendorVersion()}, nil
}

// Probe reports whether the driver is ready. One that is not is still starting
// and in good health; one that is not in good health answers with an error. A
// driver that does not say is ready (CSI spec, Probe).
func (c *Client) Probe(ctx context.Context) (ready bool, err error) {
	var r csi.ProbeResponse
	if err := c.invoke(ctx, csi.Identity_Probe_FullMethodName, &csi.ProbeRequest{}, &r); err != nil {
		return false, err
	}
	return r.GetReady() == nil || r.GetReady().GetValue(), nil
}

// PluginCapabilities calls GetPluginCapabilities. Services and the kinds of
// volume expansion (ONLINE, OFFLINE) are in one list. Like the other lists of
// capabilities it is sorted, carries the specification's names, and keeps what
// this version does not know as UNKNOWN(11).
func (c *Client) PluginCapabilities(ctx context.Context) ([]string, error) {
	var r csi.GetPluginCapabilitiesResponse
	err := c.invoke(ctx, csi.Identity_GetPluginCapabilities_FullMethodName, &csi.GetPluginCapabilitiesRequest{}, &r)
	if err != nil {
		return nil, err
	}
	return names(r.GetCapabilities(), func(c *csi.PluginCapability) string {
		if e := c.GetVolumeExpansion(); e != nil {
			return name(e.GetType(), csi.PluginCapability_VolumeExpansion_Type_name)
		}
		return name(c.GetService().GetType(), csi.PluginCapability_Service_Type_name)
	}), nil
}

// ControllerCapabilities calls ControllerGetCapabilities.
func (c *Client) ControllerCapabilities(ctx context.Context) ([]string, error) {
	var r csi.ControllerGetCapabilitiesResponse
	err := c.invoke(ctx, csi.Controller_ControllerGetCapabilities_FullMethodName, &csi.ControllerGetCapabilitiesRequest{}, &r)
	if err != nil {
		return nil, err
	}
	return names(r.GetCapabilities(), func(c *csi.ControllerServiceCapability) string {
		return name(c.GetRpc().GetType(), csi.ControllerServiceCapability_RPC_Type_name)
	}), nil
}

// NodeCapabilities calls NodeGetCapabilities.
func (c *Client) NodeCapabilities(ctx context.Context) ([]string, error) {
	var r csi.NodeGetCapabilitiesResponse
	err := c.invoke(ctx, csi.Node_NodeGetCapabilities_FullMethodName, &csi.NodeGetCapabilitiesRequest{}, &r)
	if err != nil {
		return nil, err
	}
	return names(r.GetCapabilities(), func(c *csi.NodeServiceCapability) string {
		return name(c.GetRpc().GetType(), csi.NodeServiceCapability_RPC_Type_name)
	}), nil
}

// names is sorted and without repetition, so that a driver that lists its
// capabilities in changing order does not look like one that changed.
func names[C any](capabilities []C, name func(C) string) []string {
	out := make([]string, len(capabilities))
	for i, c := range capabilities {
		out[i] = name(c)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func name[E ~int32](value E, known map[int32]string) string {
	if name, ok := known[int32(value)]; ok {
		return name
	}
	return fmt.Sprintf("UNKNOWN(%d)", value)
}
