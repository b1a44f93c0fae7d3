package localdriver

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/internal/localdriver/record"
)

// settle finishes what the last run of the driver left half done.
func (v *volumes) settle(ctx context.Context) {
	for key, err := range v.store.Broken() {
		v.log.Error("volume has an unreadable record", "volume", key, "error", err)
	}
	v.settleSnapshots(ctx)
	for _, rec := range v.store.List() {
		if ctx.Err() != nil {
			return
		}
		if rec.State == record.Ready {
			continue
		}
		if err := v.settleOne(ctx, rec.ID); err != nil {
			v.log.Warn("volume stays half done until its call is repeated", "volume", rec.ID, "error", err)
		}
	}
}

// settleSnapshots takes back the snapshots that were never answered for: what
// the repeated call gets shall show the volume as it is by then.
func (v *volumes) settleSnapshots(ctx context.Context) {
	for key, err := range v.snapshots.Broken() {
		v.log.Error("snapshot has an unreadable record", "snapshot", key, "error", err)
	}
	for _, rec := range v.snapshots.List() {
		if ctx.Err() != nil {
			return
		}
		id, _ := record.ParseID(rec.ID)
		end, err := v.snapshotCalls.begin(id.Key)
		if err != nil {
			continue // the call that has it settles it
		}
		if rec, err = v.snapshots.Get(id.Key); err == nil && rec.State != record.Ready {
			if err := v.dropSnapshot(ctx, rec); err != nil {
				v.log.Warn("snapshot stays half done until its call is repeated", "snapshot", rec.ID, "error", err)
			}
		}
		end()
	}
}

func (v *volumes) settleOne(ctx context.Context, id string) error {
	rec, end, err := v.begin(id)
	if err != nil {
		return err
	}
	defer end()
	switch rec.State {
	case record.Creating:
		err = v.finishCreate(ctx, rec, nil)
		if status.Code(err) == codes.NotFound {
			err = v.takeBack(ctx, rec, err) // what it was to be a copy of is gone
		}
	case record.Deleting:
		err = v.finishDelete(ctx, rec)
	case record.Ready:
	}
	return err
}

// forgetBoot drops the stagings of an earlier boot: the kernel that had them
// is gone. It runs before the first call is served.
func (v *volumes) forgetBoot() error {
	for _, rec := range v.store.List() {
		if rec.Staging == nil || rec.BootID == v.boot {
			continue
		}
		v.log.Info("staging forgotten after a reboot", "volume", rec.ID, "path", rec.Staging.Path)
		rec.Staging, rec.Publications = nil, nil
		if err := v.put(rec); err != nil {
			return err
		}
	}
	return nil
}
