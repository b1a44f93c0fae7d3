package controllertest

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// Pending checks that exactly these keys are pending in a world, in this
// order, and that one can stop after any of them.
func Pending(t *testing.T, c controller.Controller, world string, want ...controller.Key) {
	t.Helper()
	v := statetest.Load(t, world).View()
	if diff := cmp.Diff(want, slices.Collect(c.Pending(v))); diff != "" {
		t.Errorf("keys pending for the %s differ (-want +got):\n%s", c.Name(), diff)
	}
	for n := range want {
		var got []controller.Key
		for k := range c.Pending(v) {
			if got = append(got, k); len(got) > n {
				break
			}
		}
		if diff := cmp.Diff(want[:n+1], got); diff != "" {
			t.Errorf("the first %d keys differ (-want +got):\n%s", n+1, diff)
		}
	}
}
