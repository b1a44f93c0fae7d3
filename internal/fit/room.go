package fit

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
)

// roomFor is for how long a plugin's word of its room counts, and renewRoom when
// it is recorded anew though it is the same.
const (
	roomFor   = time.Hour
	renewRoom = 30 * time.Minute
)

// RoomUntil is until when what was said of the room counts.
func RoomUntil(r *api.Room) time.Time { return r.Told.Add(roomFor) }

// RoomFact is what is recorded of a plugin's answer: the next number that has no
// more than three binary digits before zeros. A row that says less than somebody
// wants is right.
func RoomFact(f api.RoomFact) api.RoomFact {
	f.Available, f.Maximum = coarse(f.Available), coarse(f.Maximum)
	return f
}

func coarse(n int64) int64 {
	if n <= 0 {
		return 0
	}
	shift := max(0, bits.Len64(uint64(n))-3)
	up := (uint64(n)-1)>>shift + 1 // n is at least 1
	if bits.Len64(up)+shift > 63 {
		return math.MaxInt64
	}
	return int64(up << shift) //nolint:gosec // it has at most 63 bits
}

// SameRoom reports whether a row still says what a plugin answers, well enough,
// and need not be said anew.
func SameRoom(r *api.Room, answer api.RoomFact, now time.Time) bool {
	return now.Before(r.Told.Add(renewRoom)) && near(r.Available, answer.Available) && near(r.Maximum, answer.Maximum) && r.Minimum == answer.Minimum
}

// near reports whether a number is at most what is recorded of it, and not much
// less.
func near(recorded, n int64) bool {
	if recorded <= 0 || n <= 0 {
		return max(recorded, 0) == max(n, 0)
	}
	return n <= recorded && float64(n) > float64(recorded)*5/8
}

// Short says why there is certainly no room for a volume of so many bytes, by
// the plugin's word, or "". Without a word that counts, nobody knows. Where the
// plugin says how large a volume can be, that counts (CSI spec,
// GetCapacityResponse).
func Short(r *api.Room, size int64, now time.Time) string {
	if ShortThere(r, size, now) == "" {
		return ""
	}
	return short(r, size, "at "+segments(r.Topology))
}

// ShortThere is Short without the topology, for what many of them have in common.
func ShortThere(r *api.Room, size int64, now time.Time) string {
	if r == nil || size <= 0 || !now.Before(RoomUntil(r)) {
		return ""
	}
	return short(r, size, "there")
}

func short(r *api.Room, size int64, there string) string {
	switch {
	case r.Maximum > 0 && size > r.Maximum:
		return fmt.Sprintf("plugin %s says that a volume has at most %s %s, and %s are asked for", r.PluginID, Size(r.Maximum), there, Size(size))
	case r.Maximum == 0 && r.Available == 0:
		return fmt.Sprintf("plugin %s says that it has no room %s, and %s are asked for", r.PluginID, there, Size(size))
	case r.Maximum == 0 && size > r.Available:
		return fmt.Sprintf("plugin %s says that it has room for at most %s %s, and %s are asked for", r.PluginID, Size(r.Available), there, Size(size))
	}
	return ""
}

// segments is a topology for people.
func segments(t api.Topology) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(t)) {
		all = append(all, k+"="+t[k])
	}
	return strings.Join(all, ",")
}

// ByRoom orders topologies for a volume of so many bytes: those where a plugin
// said that there is room, and those of which it said nothing, by lots that are
// weighted with the room and belong to the volume's name; then those without
// room. What is not known weighs as much as the mean of what is. It is nil if
// nothing is known of any.
func ByRoom(topologies []api.Topology, room func(api.Topology) *api.Room, size int64, name string, now time.Time) []api.Topology {
	type lot struct {
		at     api.Topology
		id     api.RoomID
		class  int
		weight float64 // 0 if it is not known
		score  float64
	}
	lots, known, sum, roomy := make([]lot, 0, len(topologies)), false, 0.0, 0.0
	for _, t := range topologies {
		r := room(t)
		l := lot{at: t}
		switch {
		case r == nil || !now.Before(RoomUntil(r)):
			l.id = api.NewRoomID(t, nil)
		case ShortThere(r, size, now) != "":
			known, l.class = true, 1
		default:
			known, l.id, l.weight = true, r.ID, float64(max(r.Available, 1))
			sum, roomy = sum+l.weight, roomy+1
		}
		lots = append(lots, l)
	}
	if !known {
		return nil
	}
	mean := max(sum, 1) / max(roomy, 1)
	for i := range lots {
		if l := &lots[i]; l.class == 0 {
			l.score = cmp.Or(l.weight, mean) / -math.Log(draw(name, l.id))
		}
	}
	slices.SortStableFunc(lots, func(a, b lot) int { return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(b.score, a.score)) })
	ordered := make([]api.Topology, 0, len(lots))
	for _, l := range lots {
		ordered = append(ordered, l.at)
	}
	return ordered
}

// draw is a number between 0 and 1, always the same for the same names.
func draw(name string, id api.RoomID) float64 {
	sum := sha256.Sum256([]byte(name + "/" + string(id)))
	return (float64(binary.BigEndian.Uint64(sum[:])>>11) + 0.5) / (1 << 53)
}
