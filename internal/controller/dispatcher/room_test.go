package dispatcher_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/internal/controller/controllertest"
	"github.com/berth-dev/berth/internal/controller/dispatcher"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// TestVolumesAreMadeWhereTheyAreWantedFirst: where every machine has its own
// controller, that decides where the volume is.
func TestVolumesAreMadeWhereTheyAreWantedFirst(t *testing.T) {
	t.Parallel()
	const all = `"required":[{"node":"n1"},{"node":"n2"},{"node":"n3"}]`
	create := func(topologies, status string) string {
		return fmt.Sprintf(`operation {"kind":"create","volume_id":"a","request":{"create":{"topology_request":{%s}}},"status":{%s}}`+"\n", topologies, status)
	}
	for name, c := range map[string]struct{ world, want string }{
		"Preferred":      {create(all+`,"preferred":[{"node":"n3"},{"node":"n1"}]`, ""), "a n3"},
		"TheNextOne":     {create(all+`,"preferred":[{"node":"gone"},{"node":"n2"}]`, ""), "a n2"},
		"Elsewhere":      {create(all+`,"preferred":[{"node":"n1"},{"node":"n3"}]`, `"attempt":1,"executor":"n3","code":"RESOURCE_EXHAUSTED"`), "a n1"},
		"WhereItMayBe":   {create(all+`,"preferred":[{"node":"n3"},{"node":"n1"}]`, `"attempt":1,"executor":"n2","uncertain":true,"code":"DEADLINE_EXCEEDED"`), "a n2"},
		"WhereNoneIs":    {create(all, `"attempt":1,"executor":"n2","uncertain":true,"code":"DEADLINE_EXCEEDED"`), "a n2"},
		"WhoMadeItIsOff": {create(all+`,"preferred":[{"node":"n3"},{"node":"n1"}]`, `"attempt":1,"executor":"gone","uncertain":true,"code":"DEADLINE_EXCEEDED"`), "a n3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := statetest.Load(t, node("n1")+node("n2")+node("n3")+c.world).View()
			plan, err := dispatcher.New(nil).Reconcile(v, statetest.Now(), "disk")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{c.want}, assigned(v, controllertest.Format(t, plan, nil))); diff != "" {
				t.Errorf("assigned (-want +got):\n%s", diff)
			}
		})
	}
}
