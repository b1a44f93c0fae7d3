package inquiry

import (
	"context"
	"time"

	"github.com/berth-dev/berth/api"
)

// Limits of questions. A whole list takes as many calls as it has pages.
const (
	listLimit = 2 * time.Minute
	callLimit = 20 * time.Second
	// statsLimit is short: a person waits, and a mount that hangs is one of the
	// things that a person wants to see.
	statsLimit = 5 * time.Second
)

// Volumes asks a place for all volumes that it knows. begin is called before
// the first, and again if the list starts over: what came before counts no
// more.
func (a *Asker) Volumes(ctx context.Context, p Place, begin func(), each func(api.ExternalVolume) error) error {
	q := api.Question{Kind: api.AskVolumes, Limit: api.Duration(listLimit), Volumes: &api.VolumesQuestion{Whole: true}}
	return a.at(ctx, p, q, begin, func(b []byte) error {
		item, err := decode[api.Listed](b)
		switch {
		case err != nil:
			return err
		case item.Restart:
			begin()
			return nil
		case item.Volume == nil || item.Volume.ExternalID == "":
			return api.Errorf(api.CodeUnavailable, "the agent lists something that is no volume")
		}
		return each(*item.Volume)
	})
}

// VolumePage asks a place for one page of its volumes.
func (a *Asker) VolumePage(ctx context.Context, p Place, token string, limit int32) (volumes []api.ExternalVolume, next string, err error) {
	q := api.Question{Kind: api.AskVolumes, Limit: api.Duration(callLimit), Volumes: &api.VolumesQuestion{Token: token, Limit: limit}}
	begin := func() { volumes, next = nil, "" }
	err = a.at(ctx, p, q, begin, func(b []byte) error {
		item, err := decode[api.Listed](b)
		switch {
		case err != nil:
			return err
		case item.Volume != nil:
			volumes = append(volumes, *item.Volume)
		default:
			next = item.Next
		}
		return nil
	})
	return volumes, next, err
}

// Volume asks a place for one volume. One that the plugin does not have is
// api.CodeNotFound.
func (a *Asker) Volume(ctx context.Context, p Place, id string) (api.ExternalVolume, error) {
	return at[api.ExternalVolume](ctx, a, p, api.Question{Kind: api.AskVolume, Volume: &api.VolumeQuestion{ExternalID: id}})
}

// Capacity asks a place for room.
func (a *Asker) Capacity(ctx context.Context, p Place, c api.CapacityQuestion) (api.AvailableCapacity, error) {
	return at[api.AvailableCapacity](ctx, a, p, api.Question{Kind: api.AskCapacity, Capacity: &c})
}

// Validate asks a place whether a volume can be used so, and answers why not.
func (a *Asker) Validate(ctx context.Context, p Place, v api.ValidateQuestion) (refusal string, err error) {
	got, err := at[api.Validated](ctx, a, p, api.Question{Kind: api.AskValidate, Validate: &v})
	return got.Refusal, err
}

// Snapshots asks a place for a page of snapshots.
func (a *Asker) Snapshots(ctx context.Context, p Place, s api.SnapshotsQuestion) (api.SnapshotPage, error) {
	return at[api.SnapshotPage](ctx, a, p, api.Question{Kind: api.AskSnapshots, Snapshots: &s})
}

// Usage asks a node how full a volume is that is mounted there.
func (a *Asker) Usage(ctx context.Context, node api.NodeID, plugin api.PluginID, s api.StatsQuestion) (api.VolumeUsage, error) {
	q := api.Question{Kind: api.AskStats, PluginID: plugin, Limit: api.Duration(statsLimit), Stats: &s}
	return one[api.VolumeUsage](ctx, func(ctx context.Context, _ func(), each func([]byte) error) error { return a.ask(ctx, node, q, each) })
}

func at[T any](ctx context.Context, a *Asker, p Place, q api.Question) (T, error) {
	q.Limit = api.Duration(callLimit)
	return one[T](ctx, func(ctx context.Context, begin func(), each func([]byte) error) error {
		return a.at(ctx, p, q, begin, each)
	})
}
