package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/server/inquiry"
	"github.com/berth-dev/berth/internal/state"
)

// questionTime bounds how long a caller waits for agents. It is shorter than
// clients wait.
const questionTime = 25 * time.Second

// place is where a page of a plugin's own list begins: at a token of one of the
// places that are asked.
type place struct {
	Key   string `json:"key"`
	Token string `json:"token,omitempty"`
}

// pluginVolumes lists what a plugin has, place after place, a page of the
// plugin's at a time. What cannot be asked is a row that says why.
func (h *Handler) pluginVolumes(r *request) (any, error) {
	return listPlaces(h, r, api.CapListVolumes, func(ctx context.Context, p inquiry.Place, token string, limit int32) ([]api.ListedVolume, string, error) {
		found, next, err := h.Ask.VolumePage(ctx, p, token, limit)
		rows := listed(h.Log.View(), p.Plugin, found)
		if err != nil {
			rows = []api.ListedVolume{{PluginID: p.Plugin, Problem: toAPI(err).Message}}
		}
		return rows, next, err
	})
}

// pluginSnapshots is the same with snapshots.
func (h *Handler) pluginSnapshots(r *request) (any, error) {
	return listPlaces(h, r, api.CapListSnapshots, func(ctx context.Context, p inquiry.Place, token string, limit int32) ([]api.ListedSnapshot, string, error) {
		page, err := h.Ask.Snapshots(ctx, p, api.SnapshotsQuestion{Token: token, Limit: limit})
		rows := knownSnapshots(h.Log.View(), p.Plugin, page.Snapshots)
		if err != nil {
			rows = []api.ListedSnapshot{{PluginID: p.Plugin, Problem: toAPI(err).Message}}
		}
		return rows, page.Next, err
	})
}

// asking asks a place for a page that begins at a token, and answers its rows and
// the next token. Where it answers an error a row says so.
type asking[T any] func(ctx context.Context, p inquiry.Place, token string, limit int32) ([]T, string, error)

// listPlaces lists what all places of a plugin have.
func listPlaces[T any](h *Handler, r *request, capability string, one asking[T]) (any, error) {
	id := api.PluginID(r.PathValue("id"))
	limit, err := r.number("per_page")
	if err != nil {
		return nil, err
	}
	at, err := r.place()
	if err != nil {
		return nil, err
	}
	v := h.Log.View()
	if _, err := inquiry.Near(v, id, capability, nil); err != nil {
		return nil, err
	}
	places := inquiry.Places(v, id, capability)
	ctx, cancel := context.WithTimeout(r.Context(), questionTime)
	defer cancel()
	rows := []T{}
	for more := true; more; {
		var page []T
		page, more = pageOf(ctx, places, &at, int32(min(limit, maxPage)), one)
		rows = append(rows, page...)
		if more && (limit > 0 || len(rows) >= maxPage) {
			r.next(at)
			break
		}
	}
	return rows, nil
}

// pageOf asks for one page, and moves on to the next: it answers whether there
// may be one.
func pageOf[T any](ctx context.Context, places []inquiry.Place, at *place, limit int32, one asking[T]) (rows []T, more bool) {
	i, there := slices.BinarySearchFunc(places, at.Key, func(p inquiry.Place, key string) int { return strings.Compare(p.Key(), key) })
	if i == len(places) {
		return nil, false
	}
	if !there {
		at.Token = ""
	}
	rows, next, err := one(ctx, places[i], at.Token, limit)
	switch {
	case err == nil && next != "" && next != at.Token:
		*at = place{places[i].Key(), next}
		return rows, true
	case i+1 < len(places):
		*at = place{Key: places[i+1].Key()}
		return rows, true
	}
	return rows, false
}

func (r *request) place() (place, error) {
	var p place
	token := r.query.Get("next_token")
	if token == "" {
		return p, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || json.Unmarshal(b, &p) != nil {
		return p, &api.Error{Code: api.CodeInvalid, Message: "the request has a problem",
			Fields: []api.Field{{Path: "next_token", Message: "is none of this list", Mend: "give the one that a page came with, or none"}}}
	}
	return p, nil
}

func (r *request) next(p place) {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // two strings
	}
	r.w.Header().Set(api.HeaderNext, base64.RawURLEncoding.EncodeToString(b))
}

// listed is a plugin's volumes with what the state knows of them.
func listed(v state.View, plugin api.PluginID, found []api.ExternalVolume) []api.ListedVolume {
	cluster := ""
	if c := v.Cluster(); c != nil {
		cluster = c.ID
	}
	rows := make([]api.ListedVolume, len(found))
	for i := range found {
		rows[i] = api.ListedVolume{ExternalVolume: found[i], PluginID: plugin}
		known := false
		for vol := range v.VolumesByExternalID(plugin, found[i].ExternalID) {
			rows[i].Namespace, rows[i].VolumeID, known = vol.Namespace, vol.ID, true
		}
		if !known {
			rows[i].Origin, _ = fit.Origin(cluster, &found[i])
		}
	}
	return rows
}

// knownSnapshots is a plugin's snapshots with what the state knows of them.
func knownSnapshots(v state.View, plugin api.PluginID, found []api.ExternalSnapshot) []api.ListedSnapshot {
	ours := map[string]*api.Snapshot{}
	for s := range v.Snapshots("") {
		if s.PluginID == plugin && s.Status.ExternalID != "" {
			ours[s.Status.ExternalID] = s
		}
	}
	rows := make([]api.ListedSnapshot, len(found))
	for i := range found {
		rows[i] = api.ListedSnapshot{ExternalSnapshot: found[i], PluginID: plugin}
		if s := ours[found[i].ExternalID]; s != nil {
			rows[i].Namespace, rows[i].SnapshotID, rows[i].VolumeID = s.Namespace, s.ID, s.VolumeID
			continue
		}
		for vol := range v.VolumesByExternalID(plugin, found[i].SourceID) {
			rows[i].Namespace, rows[i].VolumeID = vol.Namespace, vol.ID
		}
	}
	return rows
}

// pluginCapacity asks each place of a plugin for its room.
func (h *Handler) pluginCapacity(r *request) (any, error) {
	id, v := api.PluginID(r.PathValue("id")), h.Log.View()
	if _, err := inquiry.Near(v, id, api.CapGetCapacity, nil); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), questionTime)
	defer cancel()
	return ask(inquiry.Places(v, id, api.CapGetCapacity), func(p inquiry.Place) api.PlaceCapacity {
		room, err := h.Ask.Capacity(ctx, p, api.CapacityQuestion{Topology: p.Topology})
		c := api.PlaceCapacity{Topology: p.Topology, AvailableCapacity: room}
		if err != nil {
			c.Problem = toAPI(err).Message
		}
		return c
	}), nil
}

// volumeUsage asks every node where a volume is mounted how full it is.
func (h *Handler) volumeUsage(r *request) (any, error) {
	v := h.Log.View()
	vol := v.Volume(r.namespace(), api.VolumeID(r.PathValue("id")))
	if vol == nil {
		return nil, noSuch("volume", r.PathValue("id"), r.namespace())
	}
	var nodes []api.NodeID
	for at := range v.Holders(vol.Namespace, vol.ID) {
		if at.Status.State == api.NodePublished && !slices.Contains(nodes, at.NodeID) {
			nodes = append(nodes, at.NodeID)
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), questionTime)
	defer cancel()
	return ask(nodes, func(id api.NodeID) api.VolumeUsage {
		if err := h.inContact(v, id); err != nil {
			return api.VolumeUsage{NodeID: id, Unknown: toAPI(err).Message}
		}
		u, err := h.Ask.Usage(ctx, id, vol.Spec.PluginID, api.StatsQuestion{Namespace: vol.Namespace, VolumeID: vol.ID})
		u.NodeID = id
		if err != nil {
			u.Unknown = toAPI(err).Message
		}
		return u
	}), nil
}

// parallel is how many agents are asked at once for one answer.
const parallel = 16

// ask asks for all things, several at once, and answers in their order.
func ask[T, A any](things []T, one func(T) A) []A {
	answers := make([]A, len(things))
	slots := make(chan struct{}, parallel)
	var asking sync.WaitGroup
	for i, thing := range things {
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			answers[i] = one(thing)
		})
	}
	asking.Wait()
	return answers
}
