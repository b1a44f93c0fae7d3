package drainer_test

import (
	"testing"

	"github.com/berth-dev/berth/internal/controller/controllertest"
	"github.com/berth-dev/berth/internal/controller/drainer"
)

func TestReconcile(t *testing.T) {
	t.Parallel()
	controllertest.Run(t, drainer.Controller{})
}

func TestPendingIsWhatIsDrained(t *testing.T) {
	t.Parallel()
	controllertest.Pending(t, drainer.Controller{}, `
node {"id":"n1","spec":{"drain":{"started":"now"}}}
node {"id":"n2","spec":{"ineligible":true}}
node {"id":"n3"}
node {"id":"n4","spec":{"ineligible":true,"drain":{"started":"now"}}}
`, drainer.Key("n1"), drainer.Key("n4"))
}
