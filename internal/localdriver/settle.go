package localdriver

import (
	"context"

	"github.com/berth-dev/berth/internal/localdriver/record"
)

// settle finishes what the last run of the driver left half done.
func (v *volumes) settle(ctx context.Context) {
	for key, err := range v.store.Broken() {
		v.log.Error("volume has an unreadable record", "volume", key, "error", err)
	}
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

func (v *volumes) settleOne(ctx context.Context, id string) error {
	rec, end, err := v.begin(id)
	if err != nil {
		return err
	}
	defer end()
	switch rec.State {
	case record.Creating:
		_, err = v.finishCreate(rec)
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
