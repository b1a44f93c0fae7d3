package fit_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
)

func roomAt(zone string, told time.Time, c api.AvailableCapacity) *api.Room {
	f := api.RoomFact{Topology: api.Topology{"zone": zone}, AvailableCapacity: c}
	return &api.Room{PluginID: "disk", ID: api.NewRoomID(f.Topology, nil), RoomFact: fit.RoomFact(f), Told: told}
}

// TestRoomIsRecordedUpwards: what is recorded is at least what was said, and not
// much more; it is the same again for what was said, and for what it is itself.
func TestRoomIsRecordedUpwards(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, math.MaxInt64).Draw(t, "n")
		r := roomAt("a", now, api.AvailableCapacity{Available: n})
		if r.Available < n || float64(r.Available) > float64(n)*1.26 {
			t.Fatalf("%d is recorded as %d", n, r.Available)
		}
		for _, said := range []int64{n, r.Available} {
			if !fit.SameRoom(r, api.RoomFact{AvailableCapacity: api.AvailableCapacity{Available: said}}, now) {
				t.Fatalf("%d is recorded as %d, and %d is said to differ", n, r.Available, said)
			}
		}
		if n > 0 && n < math.MaxInt64/2 {
			for _, said := range []int64{r.Available + 1, r.Available / 2, 0} {
				if fit.SameRoom(r, api.RoomFact{AvailableCapacity: api.AvailableCapacity{Available: said}}, now) {
					t.Fatalf("%d is recorded as %d, and %d is said to be the same", n, r.Available, said)
				}
			}
		}
	})
}

func TestShort(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	const gib = 1 << 30
	for name, c := range map[string]struct {
		room *api.Room
		size int64
		want string
	}{
		"NothingIsKnown": {nil, gib, ""},
		"NoSize":         {roomAt("a", now, api.AvailableCapacity{}), 0, ""},
		"Fits":           {roomAt("a", now, api.AvailableCapacity{Available: gib}), gib, ""},
		"Full":           {roomAt("a", now, api.AvailableCapacity{}), gib, "plugin disk says that it has no room at zone=a, and 1GiB are asked for"},
		"TooLarge":       {roomAt("a", now, api.AvailableCapacity{Available: 3 * gib}), 4 * gib, "plugin disk says that it has room for at most 3GiB at zone=a, and 4GiB are asked for"},
		"Old":            {roomAt("a", now.Add(-time.Hour), api.AvailableCapacity{}), gib, ""},
		"NotOldYet":      {roomAt("a", now.Add(time.Second-time.Hour), api.AvailableCapacity{}), gib, "plugin disk says that it has no room at zone=a, and 1GiB are asked for"},
		"Overcommitted":  {roomAt("a", now, api.AvailableCapacity{Available: 1, Maximum: 2 * gib}), gib, ""},
		"OverTheMaximum": {roomAt("a", now, api.AvailableCapacity{Available: 9 * gib, Maximum: 2 * gib}), 3 * gib, "plugin disk says that a volume has at most 2GiB at zone=a, and 3GiB are asked for"},
	} {
		if diff := cmp.Diff(c.want, fit.Short(c.room, c.size, now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestByRoomSpreadsAsRoomIs: what is asked for at once is spread like the room,
// what is unknown has as much of it as the mean, what is full comes last, and each volume always has the same order.
func TestByRoomSpreadsAsRoomIs(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	const gib = 1 << 30
	at := func(zone string) api.Topology { return api.Topology{"zone": zone} }
	rooms := map[string]*api.Room{
		"full": roomAt("full", now, api.AvailableCapacity{}), "small": roomAt("small", now, api.AvailableCapacity{Available: 4 * gib}),
		"large": roomAt("large", now, api.AvailableCapacity{Available: 12 * gib}), "old": roomAt("old", now.Add(-2*time.Hour), api.AvailableCapacity{}),
	}
	room := func(t api.Topology) *api.Room { return rooms[t["zone"]] }
	all := []api.Topology{at("full"), at("small"), at("unknown"), at("large"), at("old")}
	first := map[string]int{}
	for i := range 4000 {
		name := fmt.Sprintf("uid-%d", i)
		got := fit.ByRoom(all, room, gib, name, now)
		first[got[0]["zone"]]++
		if diff := cmp.Diff([]api.Topology{at("full")}, got[4:]); diff != "" {
			t.Fatalf("%s: at the end (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(got, fit.ByRoom(all, room, gib, name, now)); diff != "" {
			t.Fatalf("%s: asked again (-first +second):\n%s", name, diff)
		}
	}
	// Of 32 parts, 12 are of what is large, 4 of what is small, and 8 of each other.
	for zone, want := range map[string]int{"large": 1500, "small": 500, "unknown": 1000, "old": 1000} {
		if n := first[zone]; n < want-150 || n > want+150 {
			t.Errorf("of 4000 volumes, %d go first to what is %s; want about %d, for its part of the room", n, zone, want)
		}
	}
	if got := fit.ByRoom([]api.Topology{at("unknown"), at("old")}, room, gib, "uid", now); got != nil {
		t.Errorf("an order of what is not known: %v", got)
	}
}
