package allocrunner_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
)

// What a task cannot be started for was one problem after another with blanks
// between, where lines had been.
func TestProblemIsOneLine(t *testing.T) {
	t.Parallel()
	var one, two api.Problems
	one.Add("destination", "is missing", "give a path")
	two.Merge(one.Err("x"))
	two.Add("volume", "is unknown", "")
	for _, test := range []struct {
		err  error
		want string
	}{
		{errBroken, "broken"},
		{one.Err("the task"), "the task has a problem: destination is missing; give a path"},
		{two.Err("the task"), "the task has 2 problems: destination is missing; give a path; volume is unknown"},
		{errors.Join(errBroken, errBroken), "broken; broken"},
		{errors.Join(one.Err("a"), one.Err("b")), "a has a problem: destination is missing; give a path; b has a problem: destination is missing; give a path"},
		{fmt.Errorf("start task pg: %w", one.Err("it")), "start task pg: it has a problem: destination is missing; give a path"},
		{errors.New("output:\n\n\tline"), "output: line"},
	} {
		if got := allocrunner.OneLine(test.err); got != test.want {
			t.Errorf("%q is said as\n%s\nwant\n%s", test.err, got, test.want)
		}
	}
	bubble(t, func(t *testing.T, w *world) {
		w.breaks("up b", &allocrunner.Fatal{Err: two.Err("the task")})
		stop := w.start(w.fresh())
		after(1)
		if p := w.last().Problem; p == nil || p.Message != "the task has 2 problems: destination is missing; give a path; volume is unknown" {
			t.Errorf("the servers hear %+v", p)
		}
		must(t, stop)
	})
}
