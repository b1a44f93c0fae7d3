package volumewatcher_test

import (
	"testing"

	"github.com/berth-dev/berth/internal/controller/controllertest"
	"github.com/berth-dev/berth/internal/controller/volumewatcher"
)

func TestReconcile(t *testing.T) {
	t.Parallel()
	controllertest.Run(t, volumewatcher.Controller{})
}

func TestPendingIsWhatIsTheServersTurnOncePerPublication(t *testing.T) {
	t.Parallel()
	const world = `
attachment {"alloc_id":"a1","volume_id":"pg","node_id":"n1"}
attachment {"alloc_id":"a2","volume_id":"pg","node_id":"n1","status":{"state":"node-detached"}}
attachment {"alloc_id":"a3","volume_id":"pg","node_id":"n2","status":{"state":"controller-detached"}}
attachment {"alloc_id":"a4","volume_id":"media","node_id":"n1","status":{"state":"controller-published"}}
attachment {"alloc_id":"a5","volume_id":"media","node_id":"n2","status":{"state":"node-published"}}
attachment {"alloc_id":"a6","volume_id":"media","node_id":"n3","status":{"state":"unpublishing"}}
attachment {"alloc_id":"a7","volume_id":"media","node_id":"n4","status":{"state":"freed"}}
publication {"volume_id":"small","node_id":"n5","status":{"node_expansion":20}}
publication {"volume_id":"small","node_id":"n6","status":{"node_expansion":20,"node_expansion_refused":"FAILED_PRECONDITION: in use"}}
publication {"volume_id":"small","node_id":"n7"}
publication {"volume_id":"moved","node_id":"n8","status":{"outcome":"uncertain","left":true}}
`
	controllertest.Pending(t, volumewatcher.Controller{}, world,
		volumewatcher.Key("default", "pg", "n1"), volumewatcher.Key("default", "pg", "n2"), volumewatcher.Key("default", "moved", "n8"),
		volumewatcher.Key("default", "small", "n5"))
}
