package client

import (
	"context"
	"net/http"

	"github.com/berth-dev/berth/api"
)

// Snapshots lists the snapshots of a namespace, or of all.
func (c *Client) Snapshots(ctx context.Context, q Query) ([]*api.Snapshot, uint64, error) {
	return get[[]*api.Snapshot](ctx, c, q, "snapshots")
}

// Snapshot reads a snapshot with all that concerns it.
func (c *Client) Snapshot(ctx context.Context, ns api.NamespaceID, id api.SnapshotID, q Query) (api.SnapshotInfo, uint64, error) {
	return get[api.SnapshotInfo](ctx, c, q, "snapshot", string(ns), string(id))
}

// CreateSnapshot asks for a snapshot of a volume. It can be used when its state
// is ready.
func (c *Client) CreateSnapshot(ctx context.Context, ns api.NamespaceID, id api.SnapshotID, creation api.SnapshotCreation) (api.SnapshotInfo, error) {
	return change[api.SnapshotInfo](ctx, c, call{method: http.MethodPut, path: []string{"snapshot", string(ns), string(id)}, body: creation})
}

// DeleteSnapshot says that a snapshot is to go. It is gone when reading it
// answers not_found.
func (c *Client) DeleteSnapshot(ctx context.Context, ns api.NamespaceID, id api.SnapshotID, version uint64) error {
	_, err := change[struct{}](ctx, c, call{method: http.MethodDelete, path: []string{"snapshot", string(ns), string(id)}, query: onlyAt(version)})
	return err
}
