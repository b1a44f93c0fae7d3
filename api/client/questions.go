package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/berth-dev/berth/api"
)

// PluginVolumes lists the volumes that a plugin has, as it says now. With a page
// it is read a page at a time, of which some may be empty before the last.
func (c *Client) PluginVolumes(ctx context.Context, id api.PluginID, page *Page) ([]api.ListedVolume, error) {
	all, _, err := get[[]api.ListedVolume](ctx, c, Query{Page: page}, "plugin", string(id), "volumes")
	return all, err
}

// PluginSnapshots lists the snapshots that a plugin has, as it says now, a page at
// a time if there is one.
func (c *Client) PluginSnapshots(ctx context.Context, id api.PluginID, page *Page) ([]api.ListedSnapshot, error) {
	all, _, err := get[[]api.ListedSnapshot](ctx, c, Query{Page: page}, "plugin", string(id), "snapshots")
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

// Findings lists what was found to differ between plugins and the state.
func (c *Client) Findings(ctx context.Context, q Query) ([]*api.Finding, uint64, error) {
	return get[[]*api.Finding](ctx, c, q, "findings")
}

// Finding reads a finding.
func (c *Client) Finding(ctx context.Context, id api.FindingID, q Query) (*api.Finding, uint64, error) {
	return get[*api.Finding](ctx, c, q, "finding", string(id))
}

// Sweep compares a plugin with the state now, or all if id is empty. A
// difference becomes a finding when it is seen twice, some time apart.
func (c *Client) Sweep(ctx context.Context, id api.PluginID) ([]api.SweepReport, error) {
	return change[[]api.SweepReport](ctx, c, call{method: http.MethodPost, path: []string{"sweep"}, body: api.SweepRequest{PluginID: id}})
}

// SweepReports reads how the last comparison of each plugin went.
func (c *Client) SweepReports(ctx context.Context) ([]api.SweepReport, error) {
	all, _, err := get[[]api.SweepReport](ctx, c, Query{}, "sweep")
	return all, err
}

// ImportVolume registers a volume that exists already, after its plugin has
// said that it does, and can be used so.
func (c *Client) ImportVolume(ctx context.Context, ns api.NamespaceID, id api.VolumeID, spec api.VolumeSpec) (api.VolumeInfo, error) {
	return change[api.VolumeInfo](ctx, c, call{method: http.MethodPost, path: []string{"volume", string(ns), string(id), "import"}, body: spec})
}

// CheckImport is ImportVolume that does nothing: it answers the volume as it would
// be.
func (c *Client) CheckImport(ctx context.Context, ns api.NamespaceID, id api.VolumeID, spec api.VolumeSpec) (api.VolumeInfo, error) {
	return change[api.VolumeInfo](ctx, c, call{
		method: http.MethodPost, path: []string{"volume", string(ns), string(id), "import"}, query: url.Values{"check": {"true"}}, body: spec,
	})
}

// DeleteFound has the plugin delete a volume that was found and is not known.
func (c *Client) DeleteFound(ctx context.Context, id api.FindingID) (api.VolumeInfo, error) {
	return change[api.VolumeInfo](ctx, c, call{method: http.MethodDelete, path: []string{"finding", string(id)}})
}
