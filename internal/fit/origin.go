package fit

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"regexp"
	"slices"

	"github.com/berth-dev/berth/api"
)

// markLength is how many hex digits of a volume's UID tell its cluster.
const markLength = 8

// CSIName is the name of CreateVolume for the volume of that UID. It is made
// from the UID, so that neither a volume of the same id that was deleted
// before, nor one of another cluster, is ever taken for it.
func CSIName(uid string) string { return "berth-" + uid }

// VolumeUID is the UID of a new volume: it begins with the mark of its cluster,
// so that a volume that nobody knows any more shows by its name who made it.
// random is 32 hex digits, of which those that it gives up are not missed.
func VolumeUID(clusterID, random string) string {
	if clusterID == "" || len(random) < markLength {
		return random
	}
	return mark(clusterID) + random[markLength:]
}

func mark(clusterID string) string {
	sum := sha256.Sum256([]byte(clusterID))
	return hex.EncodeToString(sum[:])[:markLength]
}

var csiName = regexp.MustCompile(`berth-([0-9a-f]{8})[0-9a-f]{24}`)

// Origin is where a volume that the cluster does not know seems to come from,
// by the names that are in the plugin's id of it or in its context: many
// drivers put the name of CreateVolume there. name is that name, "" without.
func Origin(clusterID string, v *api.ExternalVolume) (origin api.Origin, name string) {
	places := []string{v.ExternalID}
	for _, k := range slices.Sorted(maps.Keys(v.Context)) {
		places = append(places, v.Context[k])
	}
	origin = api.OriginUnknown
	for _, text := range places {
		for _, m := range csiName.FindAllStringSubmatch(text, -1) {
			if m[1] == mark(clusterID) {
				return api.OriginOurs, m[0]
			}
			origin, name = api.OriginBerth, m[0]
		}
	}
	return origin, name
}
