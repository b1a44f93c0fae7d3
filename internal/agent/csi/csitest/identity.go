package csitest

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

type identityServer struct {
	csi.UnimplementedIdentityServer
	driver *Driver
}

func (s identityServer) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	o := s.driver.backend.options
	return &csi.GetPluginInfoResponse{Name: o.Name, VendorVersion: o.VendorVersion}, nil
}

func (s identityServer) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	if s.driver.starting.Load() {
		return &csi.ProbeResponse{Ready: wrapperspb.Bool(false)}, nil
	}
	return &csi.ProbeResponse{}, nil
}

func (s identityServer) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	o := s.driver.backend.options
	r := &csi.GetPluginCapabilitiesResponse{}
	add := func(t csi.PluginCapability_Service_Type) {
		r.Capabilities = append(r.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: t}},
		})
	}
	if !o.NoController {
		add(csi.PluginCapability_Service_CONTROLLER_SERVICE)
	}
	if o.Topology {
		add(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	}
	if o.Expand {
		expansion := csi.PluginCapability_VolumeExpansion_ONLINE
		if o.Offline {
			expansion = csi.PluginCapability_VolumeExpansion_OFFLINE
		}
		r.Capabilities = append(r.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: expansion}},
		})
	}
	for _, value := range o.UnknownPlugin {
		add(csi.PluginCapability_Service_Type(value))
	}
	return r, nil
}

// controllerTypes are the controller's capabilities.
func (o *Options) controllerTypes() []csi.ControllerServiceCapability_RPC_Type {
	types := []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY,
	}
	if !o.NoList {
		types = append(types, csi.ControllerServiceCapability_RPC_LIST_VOLUMES)
	}
	if o.GetVolume {
		types = append(types, csi.ControllerServiceCapability_RPC_GET_VOLUME)
	}
	if o.Conditions {
		types = append(types, csi.ControllerServiceCapability_RPC_VOLUME_CONDITION)
	}
	if o.Attach {
		types = append(types, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
			csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES)
	}
	if o.PublishReadonly {
		types = append(types, csi.ControllerServiceCapability_RPC_PUBLISH_READONLY)
	}
	if o.MultiWriter {
		types = append(types, csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	}
	if o.Clone {
		types = append(types, csi.ControllerServiceCapability_RPC_CLONE_VOLUME)
	}
	if o.Snapshot || len(o.Snapshots) > 0 {
		types = append(types, csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT)
	}
	if o.ListSnapshots {
		types = append(types, csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS)
	}
	if o.Expand {
		types = append(types, csi.ControllerServiceCapability_RPC_EXPAND_VOLUME)
	}
	if o.Modify {
		types = append(types, csi.ControllerServiceCapability_RPC_MODIFY_VOLUME)
	}
	for _, value := range o.UnknownController {
		types = append(types, csi.ControllerServiceCapability_RPC_Type(value))
	}
	return types
}

// nodeTypes are the node's capabilities.
func (o *Options) nodeTypes() []csi.NodeServiceCapability_RPC_Type {
	types := []csi.NodeServiceCapability_RPC_Type{csi.NodeServiceCapability_RPC_GET_VOLUME_STATS}
	if o.Stage {
		types = append(types, csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
	}
	if o.MultiWriter {
		types = append(types, csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	}
	if o.MountGroup {
		types = append(types, csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)
	}
	if o.Conditions {
		types = append(types, csi.NodeServiceCapability_RPC_VOLUME_CONDITION)
	}
	if o.NodeExpand {
		types = append(types, csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
	}
	for _, value := range o.UnknownNode {
		types = append(types, csi.NodeServiceCapability_RPC_Type(value))
	}
	return types
}

// missing is the capability that the driver lacks for a method, or "".
func (b *Backend) missing(method string) string {
	switch method {
	case "ControllerPublishVolume", "ControllerUnpublishVolume":
		if !b.options.Attach {
			return "PUBLISH_UNPUBLISH_VOLUME"
		}
	case "ListVolumes":
		if b.options.NoList {
			return "LIST_VOLUMES"
		}
	case "ControllerGetVolume":
		if !b.options.GetVolume {
			return "GET_VOLUME"
		}
	case "ListSnapshots":
		return "LIST_SNAPSHOTS"
	case "ControllerExpandVolume":
		if !b.options.Expand {
			return "EXPAND_VOLUME"
		}
	case "NodeExpandVolume":
		if !b.options.NodeExpand {
			return "EXPAND_VOLUME"
		}
	case "ControllerModifyVolume":
		if !b.options.Modify {
			return "MODIFY_VOLUME"
		}
	case "NodeStageVolume", "NodeUnstageVolume":
		if !b.options.Stage {
			return "STAGE_UNSTAGE_VOLUME"
		}
	case "CreateSnapshot", "DeleteSnapshot":
		if !b.options.Snapshot {
			return "CREATE_DELETE_SNAPSHOT"
		}
	}
	return ""
}
