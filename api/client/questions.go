package client

import (
	"context"

	"github.com/berth-dev/berth/api"
)

// PluginVolumes lists the volumes that a plugin has, as it says now. With a page
// it is read a page at a time, of which some may be empty before the last.
func (c *Client) PluginVolumes(ctx context.Context, id api.PluginID, page *Page) ([]api.ListedVolume, error) {
	all, _, err := get[[]api.ListedVolume](ctx, c, Query{Page: page}, "plugin", string(id), "volumes")
	return all, err
}

// PluginCapacity reads how much room a plugin has, in each of its topologies.
func (c *Client) PluginCapacity(ctx context.Context, id api.PluginID) ([]api.PlaceCapacity, error) {
	all, _, err := get[[]api.PlaceCapacity](ctx, c, Query{}, "plugin", string(id), "capacity")
	return all, err
}

// VolumeUsage reads how full a volume is, as each node that has it mounted says.
func (c *Client) VolumeUsage(ctx context.Context, ns api.NamespaceID, id api.VolumeID) ([]api.VolumeUsage, error) {
	all, _, err := get[[]api.VolumeUsage](ctx, c, Query{}, "volume", string(ns), string(id), "usage")
	return all, err
}
