package provisioner_test

import (
	"testing"

	"github.com/berth-dev/berth/internal/controller/controllertest"
	"github.com/berth-dev/berth/internal/controller/provisioner"
)

func TestReconcile(t *testing.T) {
	t.Parallel()
	controllertest.Run(t, provisioner.Controller{})
}

func TestPendingIsWhatIsToBeMadeOrToGo(t *testing.T) {
	t.Parallel()
	const world = `
volume {"id":"new"}
volume {"id":"being-made","status":{"operation":"create/default/being-made@1"}}
volume {"id":"ready","status":{"state":"ready"}}
volume {"id":"failed","status":{"state":"failed"}}
volume {"namespace":"other","id":"to-go","desired":"absent","status":{"external_id":"x"}}
volume {"id":"to-go-while-it-is-made","desired":"absent","status":{"operation":"create/default/to-go-while-it-is-made@1"}}
volume {"id":"being-deleted","desired":"absent","status":{"external_id":"x","operation":"delete/default/being-deleted@1"}}
volume {"id":"small","status":{"state":"ready","expansion":{"from":10,"since":"now"}}}
volume {"id":"small-for-ever","status":{"state":"ready","expansion":{"from":10,"since":"now","refused":"OUT_OF_RANGE: no"}}}
volume {"id":"slow","status":{"state":"ready","modification":{"since":"now"}}}
volume {"id":"taken-back","status":{"state":"ready","operation":"expand/default/taken-back@1"}}
`
	controllertest.Pending(t, provisioner.Controller{}, world,
		provisioner.Key("default", "new"), provisioner.Key("default", "slow"), provisioner.Key("default", "small"), provisioner.Key("default", "taken-back"), provisioner.Key("default", "to-go-while-it-is-made"), provisioner.Key("other", "to-go"))
}
