package arch_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/test/arch"
)

func TestSleepsOutsideBubbles(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		files string
		want  []string
	}{
		"InBubble": {
			files: `
-- x/x_test.go --
package x
import ("testing/synctest"; "time")
func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { go func() { time.Sleep(1) }() }) }
`,
		},
		"HelperOfBubbles": {
			files: `
-- x/x_test.go --
package x
import "testing/synctest"
func TestX(t *testing.T) { synctest.Test(t, func(*testing.T) { wait() }) }
-- x/wait_test.go --
package x
import "time"
func wait() { time.Sleep(1) }
func (fake) TestName() { time.Sleep(1) }
`,
		},
		"TableOfBubbles": {
			files: `
-- x/x_test.go --
package x
import ("testing/synctest"; "time")
func TestX(t *testing.T) {
	for name, step := range map[string]func(){"Late": func() { time.Sleep(1) }} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(*testing.T) { step() }) })
		t.Run(name, func(t *testing.T) { time.Sleep(1) })
	}
}
`,
			want: []string{"x/x_test.go:6"},
		},
		"BesideBubble": {
			files: `
-- x/x_test.go --
package x
import ("testing/synctest"; "time")
func TestX(t *testing.T) {
	synctest.Test(t, run)
	time.Sleep(1)
}
`,
			want: []string{"x/x_test.go:5"},
		},
		"NoBubbles": {
			files: `
-- x/x_test.go --
package x
import "time"
func wait() { time.Sleep(1) }
var table = []func(){func() { time.Sleep(1) }}
`,
			want: []string{"x/x_test.go:3", "x/x_test.go:4"},
		},
		"Product": {
			files: `
-- x/x.go --
package x
import clock "time"
var later = func() { clock.Sleep(1) }
func wait() { clock.Sleep(1) }
-- x/x_test.go --
package x
import "testing/synctest"
func TestX(t *testing.T) { synctest.Test(t, func(*testing.T) { wait() }) }
`,
			want: []string{"x/x.go:3", "x/x.go:4"},
		},
		"OtherFunctions": {
			files: `
-- x/x.go --
package x
import ("example.com/time"; clock "time")
func f() { time.Sleep(1); clock.Now(); Sleep(1); x.y.Sleep() }
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree, err := arch.ReadTree(checkout(t, tc.files))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, call := range arch.SleepsOutsideBubbles(tree.Packages[0]) {
				got = append(got, tree.At(call))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}
