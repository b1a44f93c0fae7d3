package snapshotter_test

import (
	"testing"

	"github.com/berth-dev/berth/internal/controller/controllertest"
	"github.com/berth-dev/berth/internal/controller/snapshotter"
)

func TestReconcile(t *testing.T) {
	t.Parallel()
	controllertest.Run(t, snapshotter.Controller{})
}

func TestPendingIsWhatIsToBeMadeOrToGoOrMayBeDue(t *testing.T) {
	t.Parallel()
	const settled = `
snapshot {"id":"made","volume_id":"pg","status":{"state":"creating","operation":"snapshot/default/made@1"}}
snapshot {"id":"ready","volume_id":"pg","status":{"state":"ready"}}
snapshot {"id":"failed","volume_id":"pg","status":{"state":"failed"}}
snapshot {"id":"going","volume_id":"pg","desired":"absent","status":{"external_id":"x","operation":"delete-snapshot/default/going@1"}}
volume {"id":"pg","status":{"state":"ready"}}
volume {"id":"later","spec":{"snapshot_schedule":{"cron":"@daily","keep":1}}}
`
	c := snapshotter.Controller{}
	controllertest.Pending(t, c, settled)
	controllertest.Pending(t, c, settled+`
snapshot {"id":"new","volume_id":"pg"}
snapshot {"namespace":"other","id":"to-go","volume_id":"pg","desired":"absent","status":{"external_id":"x"}}
snapshot {"id":"to-go-while-it-is-made","volume_id":"pg","desired":"absent","status":{"operation":"snapshot/default/to-go-while-it-is-made@1"}}
volume {"id":"scheduled","spec":{"snapshot_schedule":{"cron":"@daily","keep":1}},"status":{"state":"ready"}}
snapshot {"id":"expires","volume_id":"pg","spec":{"keep":"1h"},"status":{"state":"ready"}}
`, snapshotter.Key("default", "new"), snapshotter.Key("default", "to-go-while-it-is-made"), snapshotter.Key("other", "to-go"),
		snapshotter.Schedules, snapshotter.Retention)
}
