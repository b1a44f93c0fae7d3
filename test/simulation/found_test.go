package simulation_test

import (
	"context"
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/test/cluster"
)

// A driver makes a volume, and says that it has no room. The next attempt
// prefers another place, and is told that the volume is there and different. It
// is found: nothing leaks, and nobody has to give a call up.
func TestVolumeThatWasMadeInSpiteOfARefusalIsFound(t *testing.T) {
	t.Parallel()
	zones := csitest.Options{Attach: true, Stage: true, Topology: true}
	named := zones
	named.Named = true
	for name, tc := range map[string]struct {
		provider csitest.Options
		// insists is how often it is said that the volume is there, 0 for ever.
		insists int
		state   api.VolumeState // what comes of it
	}{
		"AskedForAsAtFirst":            {zones, 1, api.VolumeReady},
		"AskedForAsAtFirstAfterAWhile": {zones, 5, api.VolumeReady},
		"ListedAndNeverAnswered":       {named, 0, api.VolumeFailed},
	} {
		for _, deleted := range []bool{false, true} {
			if deleted {
				name += "/Deleted"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				pain(t, cluster.Config{Provider: tc.provider, Agents: 3}, func(t *testing.T, p *patient) {
					ctx := context.Background()
					p.Backend.Script(csitest.Rule{Method: "CreateVolume", Times: 1, Do: csitest.FailAfter("RESOURCE_EXHAUSTED", "full, or so")})
					fault := p.Backend.Script(csitest.Rule{Method: "CreateVolume", Times: tc.insists, Do: csitest.Fail("ALREADY_EXISTS", "another one")})
					p.make("pg")
					if !deleted {
						vol := p.AwaitVolume("pg", tc.state, time.Hour)
						if vol.Status.ExternalID == "" {
							t.Errorf("it is %s, and nobody knows its id: %s", tc.state, vol.Status.Reason)
						}
					} else {
						p.pass(2 * time.Second)
					}
					if err := p.Client.DeleteVolume(ctx, api.DefaultNamespace, "pg", 0); err != nil {
						t.Fatal(err)
					}
					p.AwaitVolume("pg", "", time.Hour)
					if left := p.Backend.Volumes(); len(left) > 0 {
						t.Errorf("the provider still has %+v", left)
					}
					fault.Release()
				})
			})
		}
	}
}
