package fit_test

import (
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
)

func TestOrigin(t *testing.T) {
	t.Parallel()
	const cluster, random = "CLUSTER", "0123456789abcdef0123456789abcdef"
	ours, theirs := fit.CSIName(fit.VolumeUID(cluster, random)), fit.CSIName(fit.VolumeUID("OTHER", random))
	if len(ours) != len("berth-")+32 || !strings.HasSuffix(ours, random[8:]) || ours == theirs {
		t.Fatalf("names %s and %s", ours, theirs)
	}
	if uid := fit.VolumeUID("", random); uid != random {
		t.Errorf("without a cluster the uid is %s", uid)
	}
	for name, tc := range map[string]struct {
		volume api.ExternalVolume
		origin api.Origin
		name   string
	}{
		"InTheID":           {api.ExternalVolume{ExternalID: "nfs#share#" + ours + "#"}, api.OriginOurs, ours},
		"InTheContext":      {api.ExternalVolume{ExternalID: "vol-1", Context: map[string]string{"a": "x", "path": "/pool/" + ours}}, api.OriginOurs, ours},
		"AnotherCluster":    {api.ExternalVolume{ExternalID: theirs}, api.OriginBerth, theirs},
		"OursBesideAnother": {api.ExternalVolume{ExternalID: "snap-of-" + theirs + "-" + ours}, api.OriginOurs, ours},
		"Nobodys":           {api.ExternalVolume{ExternalID: "vol-0abc"}, api.OriginUnknown, ""},
		"TooShort":          {api.ExternalVolume{ExternalID: ours[:37]}, api.OriginUnknown, ""},
		"Kubernetes":        {api.ExternalVolume{ExternalID: "pvc-0f8fad5b-d9cb-469f-a165-70867728950e"}, api.OriginUnknown, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if origin, name := fit.Origin(cluster, &tc.volume); origin != tc.origin || name != tc.name {
				t.Errorf("%s by the name %q, want %s by %q", origin, name, tc.origin, tc.name)
			}
		})
	}
}
