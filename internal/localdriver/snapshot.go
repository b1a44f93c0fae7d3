package localdriver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/internal/localdriver/clone"
	"github.com/berth-dev/berth/internal/localdriver/record"
	"github.com/berth-dev/berth/internal/tree"
)

func (v *volumes) snapshotDir(key record.Key) string {
	return filepath.Join(v.root, snapshotsDir, string(key))
}

// snapshot makes a snapshot, or finds the one that an earlier call with the
// same name has made.
func (v *volumes) snapshot(ctx context.Context, name, volume string) (record.Snapshot, error) {
	id := record.ID{Key: record.KeyOf(name), Node: v.node}
	if running := v.copies.find(v.snapshotDir(id.Key)); running != nil {
		if err := running.wait(ctx); err != nil {
			return record.Snapshot{}, err
		}
	}
	end, err := v.snapshotCalls.begin(id.Key)
	if err != nil {
		return record.Snapshot{}, err
	}
	rec, err := v.begunSnapshot(ctx, id, name, volume)
	if err != nil || rec.State == record.Ready {
		end()
		return rec, err
	}
	err = v.copies.start(ctx, v.snapshotDir(id.Key), func(ctx context.Context, progress *clone.Progress) error {
		defer end()
		return v.takeSnapshot(ctx, rec, progress)
	}).wait(ctx)
	if err != nil {
		return rec, err
	}
	return v.findSnapshot(id.String())
}

// begunSnapshot is the record of the snapshot that is asked for: of one that
// is there, or of one that is to be taken.
func (v *volumes) begunSnapshot(ctx context.Context, id record.ID, name, volume string) (record.Snapshot, error) {
	rec, err := v.snapshots.Get(id.Key)
	if err == nil && rec.State == record.Deleting {
		if err := v.dropSnapshot(ctx, rec); err != nil {
			return rec, err
		}
		err = record.ErrNotFound
	}
	switch {
	case err == nil && (rec.Name != name || rec.Volume != volume):
		return rec, refuse(codes.AlreadyExists, "snapshot %s exists: named %q, of volume %s", rec.ID, rec.Name, rec.Volume)
	case err == nil:
		return rec, nil
	case !errors.Is(err, record.ErrNotFound):
		return rec, err
	}
	from, err := v.original(record.Source{Volume: volume})
	if err != nil {
		return rec, err
	}
	if _, err := os.Lstat(v.snapshotDir(id.Key)); !errors.Is(err, fs.ErrNotExist) {
		return rec, refuse(codes.FailedPrecondition, "%s is there without a record; move it away", v.snapshotDir(id.Key))
	}
	rec = record.Snapshot{ID: id.String(), Name: name, State: record.Creating, Volume: volume, Body: from.body}
	if err := v.snapshots.Put(rec); err != nil {
		return rec, err
	}
	v.passed(snapshotRecorded)
	return rec, nil
}

// takeSnapshot copies the volume. What fails is taken back.
func (v *volumes) takeSnapshot(ctx context.Context, rec record.Snapshot, progress *clone.Progress) error {
	id, _ := record.ParseID(rec.ID)
	dir := v.snapshotDir(id.Key)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		rec.Body, err = v.copyInto(ctx, record.Source{Volume: rec.Volume}, rec.Body, dir, progress)
	}
	if err == nil {
		err = errors.Join(record.SyncDir(dir), record.SyncDir(filepath.Dir(dir)))
	}
	if err == nil {
		v.passed(snapshotTaken)
		rec.State, rec.Taken = record.Ready, time.Now()
		if err := v.snapshots.Put(rec); err != nil {
			return err
		}
		v.log.Info("snapshot taken", "snapshot", rec.ID, "name", rec.Name, "volume", rec.Volume)
		return nil
	}
	if ctx.Err() != nil || status.Code(err) == codes.Aborted {
		return err // the repeated call begins anew, and so does the next start
	}
	err = full(fmt.Errorf("take snapshot %s: %w", rec.ID, err), rec.Capacity)
	return errors.Join(err, v.dropSnapshot(context.WithoutCancel(ctx), rec))
}

// removeSnapshot deletes a snapshot. One that does not exist is deleted already.
func (v *volumes) removeSnapshot(ctx context.Context, id string) error {
	parsed, ok := record.ParseID(id)
	if !ok {
		return nil
	}
	end, err := v.snapshotCalls.begin(parsed.Key)
	if err != nil {
		return err
	}
	defer end()
	rec, err := v.snapshots.Get(parsed.Key)
	if errors.Is(err, record.ErrNotFound) || err == nil && rec.ID != id {
		if parsed.Node != v.node {
			return refuse(codes.FailedPrecondition, "snapshot %s is of node %s, and this is node %s; ask the driver there", id, parsed.Node, v.node)
		}
		return nil
	}
	if err != nil {
		return err
	}
	if err := v.dropSnapshot(ctx, rec); err != nil {
		return err
	}
	v.log.Info("snapshot deleted", "snapshot", rec.ID, "name", rec.Name)
	return nil
}

// dropSnapshot deletes a snapshot from wherever an earlier call has stopped.
func (v *volumes) dropSnapshot(ctx context.Context, rec record.Snapshot) error {
	id, _ := record.ParseID(rec.ID)
	if rec.State != record.Deleting {
		rec.State = record.Deleting
		if err := v.snapshots.Put(rec); err != nil {
			return err
		}
	}
	v.passed(dropRecorded)
	dir := v.snapshotDir(id.Key)
	err := v.removeContent(ctx, rec.Body, dir)
	if _, mounted := errors.AsType[*tree.MountedError](err); mounted {
		return refuse(codes.FailedPrecondition, "snapshot %s is in use: %v", rec.ID, err)
	}
	if err == nil {
		err = record.SyncDir(filepath.Dir(dir))
	}
	if err != nil {
		return fmt.Errorf("delete snapshot %s: %w", rec.ID, err)
	}
	v.passed(dropEmptied)
	return v.snapshots.Remove(id.Key)
}

// findSnapshot reads the record of a snapshot that is ready.
func (v *volumes) findSnapshot(id string) (record.Snapshot, error) {
	parsed, ok := record.ParseID(id)
	if !ok {
		return record.Snapshot{}, refuse(codes.NotFound, "snapshot %q does not exist", id)
	}
	rec, err := v.snapshots.Get(parsed.Key)
	switch {
	case err != nil && !errors.Is(err, record.ErrNotFound):
		return rec, err
	case err == nil && rec.ID == id && rec.State == record.Ready:
		return rec, nil
	case parsed.Node != v.node:
		return rec, refuse(codes.NotFound, "snapshot %s does not exist on node %s; it is of node %s", id, v.node, parsed.Node)
	}
	return rec, refuse(codes.NotFound, "snapshot %s does not exist", id)
}
