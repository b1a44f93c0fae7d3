package client

import (
	"context"
	"encoding/json"
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
	index, err := c.do(ctx, call{method: http.MethodGet, path: path, query: q.values(), wait: q.Wait, into: &v, page: q.Page})
	return v, index, err
}

// change writes one thing.
func change[T any](ctx context.Context, c *Client, w call) (T, error) {
	var v T
	w.into = &v
	_, err := c.do(ctx, w)
	return v, err
}

// onlyAt is the condition that the thing has that version; 0 sets none.
func onlyAt(version uint64) url.Values {
	query := url.Values{}
	if version > 0 {
		query.Set("version", strconv.FormatUint(version, 10))
	}
	return query
}

// Status is what the server says of itself and its cluster.
func (c *Client) Status(ctx context.Context) (api.Status, error) {
	s, _, err := get[api.Status](ctx, c, Query{}, "status")
	return s, err
}

// OpenAPI reads the description of the API, as OpenAPI 3.1 in JSON.
func (c *Client) OpenAPI(ctx context.Context) (json.RawMessage, error) {
	d, _, err := get[json.RawMessage](ctx, c, Query{}, "openapi.json")
	return d, err
}

// Namespaces lists the namespaces that have something in them, and the default
// one.
func (c *Client) Namespaces(ctx context.Context, q Query) ([]api.NamespaceInfo, uint64, error) {
	return get[[]api.NamespaceInfo](ctx, c, q, "namespaces")
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
	return change[api.VolumeInfo](ctx, c, call{method: http.MethodPut, path: []string{"volume", string(ns), string(id)}, query: onlyAt(version), body: spec})
}

// DeleteVolume says that a volume is to go. It is gone when reading it answers
// not_found.
func (c *Client) DeleteVolume(ctx context.Context, ns api.NamespaceID, id api.VolumeID, version uint64) error {
	_, err := change[struct{}](ctx, c, call{method: http.MethodDelete, path: []string{"volume", string(ns), string(id)}, query: onlyAt(version)})
	return err
}

// ReclaimVolume is DeleteVolume with a word on what becomes of the data; empty
// leaves that to what fits the volume. The answer has no volume if it is gone
// already.
func (c *Client) ReclaimVolume(ctx context.Context, ns api.NamespaceID, id api.VolumeID, reclaim api.Reclaim) (api.VolumeInfo, error) {
	query := url.Values{}
	if reclaim != "" {
		query.Set("reclaim", string(reclaim))
	}
	return change[api.VolumeInfo](ctx, c, call{method: http.MethodDelete, path: []string{"volume", string(ns), string(id)}, query: query})
}

// DetachVolume takes a volume off nodes. It answers at once, with what it is
// about.
func (c *Client) DetachVolume(ctx context.Context, ns api.NamespaceID, id api.VolumeID, ask api.DetachRequest) (api.Detach, error) {
	return change[api.Detach](ctx, c, call{method: http.MethodPost, path: []string{"volume", string(ns), string(id), "detach"}, body: ask})
}

// Publications lists the presences of volumes on nodes. The query's prefix is
// one of volumes.
func (c *Client) Publications(ctx context.Context, q Query) ([]*api.Publication, uint64, error) {
	return get[[]*api.Publication](ctx, c, q, "publications")
}

// Publication reads the presence of a volume on a node.
func (c *Client) Publication(ctx context.Context, ns api.NamespaceID, vol api.VolumeID, node api.NodeID, q Query) (*api.Publication, uint64, error) {
	return get[*api.Publication](ctx, c, q, "publication", string(ns), string(vol), string(node))
}

// Attachments lists the holds of allocations on volumes. The query's prefix is
// one of allocations.
func (c *Client) Attachments(ctx context.Context, q Query) ([]*api.Attachment, uint64, error) {
	return get[[]*api.Attachment](ctx, c, q, "attachments")
}

// Attachment reads an allocation's hold on a volume by the name of its request.
// The allocation's id is whole.
func (c *Client) Attachment(ctx context.Context, alloc api.AllocID, name string, q Query) (*api.Attachment, uint64, error) {
	return get[*api.Attachment](ctx, c, q, "attachment", string(alloc), name)
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
	return change[api.JobInfo](ctx, c, call{method: http.MethodPut, path: []string{"job", string(ns), string(id)}, query: onlyAt(version), body: spec})
}

// StopJob says that a job is to end.
func (c *Client) StopJob(ctx context.Context, ns api.NamespaceID, id api.JobID, version uint64) (api.JobInfo, error) {
	return change[api.JobInfo](ctx, c, call{method: http.MethodDelete, path: []string{"job", string(ns), string(id)}, query: onlyAt(version)})
}

// Allocations lists the allocations of a namespace, or all.
func (c *Client) Allocations(ctx context.Context, q Query) ([]*api.Allocation, uint64, error) {
	return get[[]*api.Allocation](ctx, c, q, "allocations")
}

// Allocation reads an allocation by any unambiguous prefix of its id.
func (c *Client) Allocation(ctx context.Context, prefix string, q Query) (api.AllocationInfo, uint64, error) {
	return get[api.AllocationInfo](ctx, c, q, "allocation", prefix)
}

// RestartAllocation asks for a restart of tasks of an allocation.
func (c *Client) RestartAllocation(ctx context.Context, id api.AllocID, ask api.RestartRequest) (*api.Allocation, error) {
	return change[*api.Allocation](ctx, c, call{method: http.MethodPost, path: []string{"allocation", string(id), "restart"}, body: ask})
}

// Nodes lists all nodes.
func (c *Client) Nodes(ctx context.Context, q Query) ([]*api.Node, uint64, error) {
	return get[[]*api.Node](ctx, c, q, "nodes")
}

// Node reads a node with what it runs.
func (c *Client) Node(ctx context.Context, id api.NodeID, q Query) (api.NodeInfo, uint64, error) {
	return get[api.NodeInfo](ctx, c, q, "node", string(id))
}

// FenceNode says that a node is off, or cut off from its storage. What it ran is
// lost and replaced, and its volumes are detached from it without its word.
func (c *Client) FenceNode(ctx context.Context, id api.NodeID, ask api.FenceRequest) (api.NodeInfo, error) {
	return change[api.NodeInfo](ctx, c, call{method: http.MethodPost, path: []string{"node", string(id), "fence"}, body: ask})
}

// DrainNode has a node emptied: what it runs moves away, with its volumes, and it
// gets nothing new. A version of 0 is any.
func (c *Client) DrainNode(ctx context.Context, id api.NodeID, ask api.DrainRequest, version uint64) (api.NodeInfo, error) {
	return change[api.NodeInfo](ctx, c, call{method: http.MethodPost, path: []string{"node", string(id), "drain"}, query: onlyAt(version), body: ask})
}

// StopDrain calls the drain of a node off. keepIneligible: the node gets no new
// allocations nevertheless. A version of 0 is any.
func (c *Client) StopDrain(ctx context.Context, id api.NodeID, keepIneligible bool, version uint64) (api.NodeInfo, error) {
	q := onlyAt(version)
	if keepIneligible {
		q.Set("ineligible", "true")
	}
	return change[api.NodeInfo](ctx, c, call{method: http.MethodDelete, path: []string{"node", string(id), "drain"}, query: q})
}

// SetEligibility says whether a node gets new allocations. What runs there goes
// on. A version of 0 is any.
func (c *Client) SetEligibility(ctx context.Context, id api.NodeID, eligible bool, version uint64) (api.NodeInfo, error) {
	return change[api.NodeInfo](ctx, c, call{
		method: http.MethodPost, path: []string{"node", string(id), "eligibility"}, query: onlyAt(version), body: api.EligibilityRequest{Eligible: &eligible},
	})
}

// ForgetNode removes a node that is gone and holds nothing.
func (c *Client) ForgetNode(ctx context.Context, id api.NodeID, version uint64) error {
	_, err := change[struct{}](ctx, c, call{method: http.MethodDelete, path: []string{"node", string(id)}, query: onlyAt(version)})
	return err
}

// Plugins lists all plugins.
func (c *Client) Plugins(ctx context.Context, q Query) ([]*api.Plugin, uint64, error) {
	return get[[]*api.Plugin](ctx, c, q, "plugins")
}

// Plugin reads a plugin with its instances.
func (c *Client) Plugin(ctx context.Context, id api.PluginID, q Query) (*api.Plugin, uint64, error) {
	return get[*api.Plugin](ctx, c, q, "plugin", string(id))
}

// Instances lists the instances of plugins. The query's prefix is one of
// plugins.
func (c *Client) Instances(ctx context.Context, q Query) ([]*api.Instance, uint64, error) {
	return get[[]*api.Instance](ctx, c, q, "instances")
}

// Services lists the services that jobs offer.
func (c *Client) Services(ctx context.Context, q Query) ([]api.ServiceInfo, uint64, error) {
	return get[[]api.ServiceInfo](ctx, c, q, "services")
}

// Service finds a service in the query's namespace: where it is healthy, or, with
// All, wherever it is offered.
func (c *Client) Service(ctx context.Context, name string, q Query) (api.ServiceInfo, uint64, error) {
	return get[api.ServiceInfo](ctx, c, q, "service", name)
}

// Operations lists operations, open and ended.
func (c *Client) Operations(ctx context.Context, q Query) ([]*api.Operation, uint64, error) {
	return get[[]*api.Operation](ctx, c, q, "operations")
}

// Operation reads an operation.
func (c *Client) Operation(ctx context.Context, id api.OperationID, q Query) (*api.Operation, uint64, error) {
	return get[*api.Operation](ctx, c, q, append([]string{"operation"}, strings.Split(string(id), "/")...)...)
}

// AbandonOperation gives up a create whose outcome is not known. The provider
// may be left with a volume that nobody knows.
func (c *Client) AbandonOperation(ctx context.Context, id api.OperationID, version uint64) (*api.Operation, error) {
	path := append([]string{"operation"}, strings.Split(string(id), "/")...)
	return change[*api.Operation](ctx, c, call{method: http.MethodDelete, path: path, query: onlyAt(version)})
}

// Cluster reads the cluster's own row.
func (c *Client) Cluster(ctx context.Context, q Query) (*api.Cluster, uint64, error) {
	return get[*api.Cluster](ctx, c, q, "cluster")
}

// Metrics writes what the server's process measures to w, as Prometheus reads it.
func (c *Client) Metrics(ctx context.Context, w io.Writer) error {
	_, err := c.do(ctx, call{method: http.MethodGet, path: []string{"metrics"}, copyTo: w})
	return err
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

// CollectGarbage removes now what has ended, whatever its age.
func (c *Client) CollectGarbage(ctx context.Context) (api.Collected, error) {
	return change[api.Collected](ctx, c, call{method: http.MethodPost, path: []string{"system", "gc"}, body: struct{}{}})
}

// Recovery reads where a restored cluster is on its way back.
func (c *Client) Recovery(ctx context.Context) (api.Recovery, error) {
	rec, _, err := get[api.Recovery](ctx, c, Query{}, "system", "recovery")
	return rec, err
}

// ConfirmRecovery lets a restored cluster go on. force does so although some
// nodes have not reported.
func (c *Client) ConfirmRecovery(ctx context.Context, generation uint64, force bool) (api.Recovery, error) {
	body := api.RecoveryConfirmation{Number: generation, Force: force}
	return change[api.Recovery](ctx, c, call{method: http.MethodPost, path: []string{"system", "recovery"}, body: body})
}
