package localdriver

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"google.golang.org/grpc/codes"

	"github.com/berth-dev/berth/internal/localdriver/record"
	"github.com/berth-dev/berth/internal/tree"
)

// remove deletes a volume. One that does not exist is deleted already.
func (v *volumes) remove(ctx context.Context, id string) error {
	parsed, ok := record.ParseID(id)
	if !ok {
		return nil
	}
	end, err := v.calls.begin(parsed.Key)
	if err != nil {
		return err
	}
	defer end()
	rec, err := v.store.Get(parsed.Key)
	if errors.Is(err, record.ErrNotFound) || err == nil && rec.ID != id {
		if parsed.Node != v.node {
			// "Gone" would be a lie that leaks the volume there.
			return refuse(codes.FailedPrecondition, "volume %s is of node %s, and this is node %s; ask the driver there", id, parsed.Node, v.node)
		}
		return nil
	}
	if err != nil {
		return err
	}
	if err := v.finishDelete(ctx, rec); err != nil {
		return err
	}
	v.log.Info("volume deleted", "volume", rec.ID, "name", rec.Name)
	return nil
}

// finishDelete deletes a volume from wherever an earlier call has stopped: the
// record says so first, then the content goes, then the record.
func (v *volumes) finishDelete(ctx context.Context, rec record.Volume) error {
	key := keyOf(rec)
	if err := v.unused(rec); err != nil {
		return err
	}
	if rec.State != record.Deleting {
		rec.State = record.Deleting
		if err := v.put(rec); err != nil {
			return err
		}
	}
	v.passed(deleteRecorded)
	parent := filepath.Dir(v.dir(key))
	err := v.removeContent(ctx, rec.Body, v.dir(key))
	if _, mounted := errors.AsType[*tree.MountedError](err); mounted {
		return refuse(codes.FailedPrecondition, "volume %s is in use: %v", rec.ID, err)
	}
	if err != nil {
		return fmt.Errorf("delete volume %s: %w", rec.ID, err)
	}
	if err := record.SyncDir(parent); err != nil {
		return fmt.Errorf("delete volume %s: %w", rec.ID, err)
	}
	v.passed(deleteEmptied)
	return v.store.Remove(key)
}

// unused reports what keeps a volume from being deleted.
func (v *volumes) unused(rec record.Volume) error {
	if rec.Staging != nil {
		return refuse(codes.FailedPrecondition, "volume %s is staged at %s", rec.ID, rec.Staging.Path)
	}
	seen, err := v.look(rec)
	if err != nil {
		return err
	}
	if len(seen.mounts) > 0 {
		return refuse(codes.FailedPrecondition, "volume %s is mounted at %s", rec.ID, seen.mounts[0].Mountpoint)
	}
	if seen.attached {
		return refuse(codes.FailedPrecondition, "the image of volume %s is on a loop device", rec.ID)
	}
	if points := seen.table.Below(v.dir(keyOf(rec))); len(points) > 0 {
		return refuse(codes.FailedPrecondition, "something is mounted inside volume %s, at %s", rec.ID, points[0])
	}
	return nil
}
