package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/api"
)

// get reads one thing, or a list.
func get[T any](ctx context.Context, c *Client, q Query, path ...string) (T, uint64, error) {
	var v T
	index, err := c.do(ctx, call{method: http.MethodGet, path: path, query: q.values(), into: &v})
	return v, index, err
}

// change writes one thing. version 0 sets no condition.
func change[T any](ctx context.Context, c *Client, method string, body any, version uint64, path ...string) (T, error) {
	var v T
	query := url.Values{}
	if version > 0 {
		query.Set("version", strconv.FormatUint(version, 10))
	}
	_, err := c.do(ctx, call{method: method, path: path, query: query, body: body, into: &v})
	return v, err
}

// Status is what the server says of itself and its cluster.
func (c *Client) Status(ctx context.Context) (api.Status, error) {
	s, _, err := get[api.Status](ctx, c, Query{}, "status")
	return s, err
}

// Volumes lists the volumes of a namespace, or of all.
func (c *Client) Volumes(ctx context.Context, q Query) ([]*api.Volume, uint64, error) {
	return get[[]*api.Volume](ctx, c, q, "volumes")
}

// Volume reads a volume with all that concerns it.
func (c *Client) Volume(ctx context.Context, ns api.NamespaceID, id api.VolumeID, q Query) (api.VolumeInfo, uint64, error) {
	return get[api.VolumeInfo](ctx, c, q, "volume", string(ns), string(id))
}

// ApplyVolume creates a volume or changes its spec.
func (c *Client) ApplyVolume(ctx context.Context, ns api.NamespaceID, id api.VolumeID, spec api.VolumeSpec, version uint64) (api.VolumeInfo, error) {
	return change[api.VolumeInfo](ctx, c, http.MethodPut, spec, version, "volume", string(ns), string(id))
}

// DeleteVolume says that a volume is to go. It is gone when reading it answers
// not_found.
func (c *Client) DeleteVolume(ctx context.Context, ns api.NamespaceID, id api.VolumeID, version uint64) error {
	_, err := change[struct{}](ctx, c, http.MethodDelete, nil, version, "volume", string(ns), string(id))
	return err
}

// Jobs lists the jobs of a namespace, or of all.
func (c *Client) Jobs(ctx context.Context, q Query) ([]api.JobInfo, uint64, error) {
	return get[[]api.JobInfo](ctx, c, q, "jobs")
}

// Job reads a job with its allocations.
func (c *Client) Job(ctx context.Context, ns api.NamespaceID, id api.JobID, q Query) (api.JobInfo, uint64, error) {
	return get[api.JobInfo](ctx, c, q, "job", string(ns), string(id))
}

// ApplyJob creates a job, changes its spec, or starts it again.
func (c *Client) ApplyJob(ctx context.Context, ns api.NamespaceID, id api.JobID, spec api.JobSpec, version uint64) (api.JobInfo, error) {
	return change[api.JobInfo](ctx, c, http.MethodPut, spec, version, "job", string(ns), string(id))
}

// StopJob says that a job is to end.
func (c *Client) StopJob(ctx context.Context, ns api.NamespaceID, id api.JobID, version uint64) (api.JobInfo, error) {
	return change[api.JobInfo](ctx, c, http.MethodDelete, nil, version, "job", string(ns), string(id))
}

// Allocations lists the allocations of a namespace, or all.
func (c *Client) Allocations(ctx context.Context, q Query) ([]*api.Allocation, uint64, error) {
	return get[[]*api.Allocation](ctx, c, q, "allocations")
}

// Allocation reads an allocation by any unambiguous prefix of its id.
func (c *Client) Allocation(ctx context.Context, prefix string, q Query) (api.AllocationInfo, uint64, error) {
	return get[api.AllocationInfo](ctx, c, q, "allocation", prefix)
}

// Nodes lists all nodes.
func (c *Client) Nodes(ctx context.Context, q Query) ([]*api.Node, uint64, error) {
	return get[[]*api.Node](ctx, c, q, "nodes")
}

// Node reads a node with what it runs.
func (c *Client) Node(ctx context.Context, id api.NodeID, q Query) (api.NodeInfo, uint64, error) {
	return get[api.NodeInfo](ctx, c, q, "node", string(id))
}

// Plugins lists all plugins.
func (c *Client) Plugins(ctx context.Context, q Query) ([]*api.Plugin, uint64, error) {
	return get[[]*api.Plugin](ctx, c, q, "plugins")
}

// Plugin reads a plugin with its instances.
func (c *Client) Plugin(ctx context.Context, id api.PluginID, q Query) (*api.Plugin, uint64, error) {
	return get[*api.Plugin](ctx, c, q, "plugin", string(id))
}

// Operations lists operations.
func (c *Client) Operations(ctx context.Context, q Query) ([]*api.Operation, uint64, error) {
	return get[[]*api.Operation](ctx, c, q, "operations")
}

// Operation reads an operation.
func (c *Client) Operation(ctx context.Context, id api.OperationID, q Query) (*api.Operation, uint64, error) {
	return get[*api.Operation](ctx, c, q, append([]string{"operation"}, strings.Split(string(id), "/")...)...)
}

// SaveState writes the whole state of the servers to w.
func (c *Client) SaveState(ctx context.Context, w io.Writer) error {
	_, err := c.do(ctx, call{method: http.MethodGet, path: []string{"system", "snapshot"}, copyTo: w})
	return err
}

// RestoreState replaces the state of the servers by a saved one. They begin a
// new generation, and wait for ConfirmRecovery.
func (c *Client) RestoreState(ctx context.Context, r io.Reader) (api.Recovery, error) {
	var rec api.Recovery
	_, err := c.do(ctx, call{method: http.MethodPut, path: []string{"system", "snapshot"}, stream: r, into: &rec})
	return rec, err
}

// Recovery reads where a restored cluster is on its way back.
func (c *Client) Recovery(ctx context.Context) (api.Recovery, error) {
	rec, _, err := get[api.Recovery](ctx, c, Query{}, "system", "recovery")
	return rec, err
}

// ConfirmRecovery lets a restored cluster go on. force does so although some
// nodes have not reported.
func (c *Client) ConfirmRecovery(ctx context.Context, generation uint64, force bool) (api.Recovery, error) {
	body := map[string]any{"number": generation, "force": force}
	return change[api.Recovery](ctx, c, http.MethodPost, body, 0, "system", "recovery")
}
