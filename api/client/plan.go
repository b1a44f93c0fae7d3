package client

import (
	"context"
	"net/http"
	"strconv"

	"github.com/berth-dev/berth/api"
)

// Plan says what applying volumes and jobs would do, one after the other. It
// changes nothing.
func (c *Client) Plan(ctx context.Context, specs api.PlanRequest) (api.Plan, error) {
	return change[api.Plan](ctx, c, call{method: http.MethodPost, path: []string{"plan"}, body: specs, asks: true})
}

// PlanJob says what ApplyJob would do with the same arguments. It changes
// nothing.
func (c *Client) PlanJob(ctx context.Context, ns api.NamespaceID, id api.JobID, spec api.JobSpec, version uint64) (api.JobPlan, error) {
	return change[api.JobPlan](ctx, c, call{method: http.MethodPost, path: []string{"job", string(ns), string(id), "plan"}, query: onlyAt(version), body: spec, asks: true})
}

// JobRevisions lists the specs that were applied for a job, newest first,
// without the specs themselves.
func (c *Client) JobRevisions(ctx context.Context, ns api.NamespaceID, id api.JobID, q Query) ([]api.JobRevision, uint64, error) {
	return get[[]api.JobRevision](ctx, c, q, "job", string(ns), string(id), "revisions")
}

// JobRevision reads a spec that was applied for a job.
func (c *Client) JobRevision(ctx context.Context, ns api.NamespaceID, id api.JobID, revision uint64, q Query) (api.JobRevision, uint64, error) {
	return get[api.JobRevision](ctx, c, q, "job", string(ns), string(id), "revision", strconv.FormatUint(revision, 10))
}

// RevertJob applies an earlier spec of a job again, which becomes a revision of
// its own. A job that was stopped starts again. What is so already does not
// change.
func (c *Client) RevertJob(ctx context.Context, ns api.NamespaceID, id api.JobID, to api.Revert) (api.JobInfo, error) {
	return change[api.JobInfo](ctx, c, call{method: http.MethodPost, path: []string{"job", string(ns), string(id), "revert"}, body: to})
}

// PromoteJob has the revision that a job's canaries try take the place of the one
// before it.
func (c *Client) PromoteJob(ctx context.Context, ns api.NamespaceID, id api.JobID, p api.Promotion) (api.JobInfo, error) {
	return change[api.JobInfo](ctx, c, call{method: http.MethodPost, path: []string{"job", string(ns), string(id), "promote"}, body: p})
}

// ScaleJob applies a job with another count of a group.
func (c *Client) ScaleJob(ctx context.Context, ns api.NamespaceID, id api.JobID, to api.Scale) (api.JobInfo, error) {
	return change[api.JobInfo](ctx, c, call{method: http.MethodPost, path: []string{"job", string(ns), string(id), "scale"}, body: to})
}
