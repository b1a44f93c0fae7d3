package controllertest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// Run reconciles the worlds of testdata/*.txtar, a test for each file. A file
// has these sections:
//
//	-- world --  the state, as statetest reads it
//	-- now --    the time, now if it is left out
//	-- key --    what is reconciled
//	-- plan --   what came of it: commands as in the log, then wake and waits
//
// -update rewrites the plans.
func Run(t *testing.T, c controller.Controller) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("testdata has no worlds")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			runFile(t, c, file)
		})
	}
}

// sections are those of a file, in its order.
const (
	sectionWorld = "world"
	sectionNow   = "now"
	sectionKey   = "key"
	sectionPlan  = "plan"
)

// question is what a controller is asked.
type question struct {
	store *state.Store
	now   time.Time
	key   controller.Key
}

func runFile(t *testing.T, c controller.Controller, file string) {
	t.Helper()
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := map[string]string{sectionNow: "now"}
	for _, f := range a.Files {
		text[f.Name] = string(f.Data)
	}
	q := question{
		store: statetest.Load(t, text[sectionWorld]),
		now:   statetest.Time(t, text[sectionNow]),
		key:   controller.Key(strings.TrimSpace(text[sectionKey])),
	}
	plan, err := c.Reconcile(q.store.View(), q.now, q.key)
	got := Format(t, plan, err)
	if err == nil {
		checkPlan(t, c, q, plan)
	}
	if statetest.Updating() {
		a.Files = slices.DeleteFunc(a.Files, func(f txtar.File) bool { return f.Name == sectionPlan })
		a.Files = append(a.Files, txtar.File{Name: sectionPlan, Data: []byte(got)})
		statetest.Golden(t, file, string(txtar.Format(a)))
		return
	}
	if diff := cmp.Diff(text[sectionPlan], got); diff != "" {
		t.Errorf("plan differs (-want +got):\n%s", diff)
	}
}

// Format writes a plan as text.
func Format(t statetest.TB, p controller.Plan, err error) string {
	t.Helper()
	if err != nil {
		return fmt.Sprintf("error %v\n", err)
	}
	encoded, err := p.Commands.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(statetest.Relative(strings.TrimSuffix(string(encoded), "\n")))
	if !p.Wake.IsZero() {
		fmt.Fprintf(&b, "wake %s\n", relative(p.Wake))
	}
	for _, w := range p.Waits {
		fmt.Fprintf(&b, "wait %s: %s (since %s", w.Subject, w.Reason, relative(w.Since))
		if !w.Next.IsZero() {
			fmt.Fprintf(&b, ", next %s", relative(w.Next))
		}
		b.WriteString(")\n")
	}
	return b.String()
}

func relative(t time.Time) string {
	return strings.Trim(statetest.Relative(`"`+t.Format(time.RFC3339Nano)+`"`), `"`)
}

// checkPlan checks what every plan must keep.
func checkPlan(t *testing.T, c controller.Controller, q question, plan controller.Plan) {
	t.Helper()
	again, err := c.Reconcile(q.store.View(), q.now, q.key)
	if err != nil {
		t.Errorf("reconciled again: %v", err)
	}
	if diff := cmp.Diff(plan, again); diff != "" {
		t.Errorf("the same reading gives another plan (-first +second):\n%s", diff)
	}
	pending := slices.Contains(slices.Collect(c.Pending(q.store.View())), q.key)
	if (len(plan.Commands) > 0 || !plan.Wake.IsZero()) && !pending {
		t.Error("there is something to do, now or at some time, and the key is not pending: nobody would look")
	}
	if len(plan.Commands) == 0 {
		return
	}
	if err := plan.Commands.Validate(); err != nil {
		t.Errorf("the plan is not valid: %v", err)
	}
	before := q.store.View()
	tx := q.store.Begin(before.Index()+1, q.now)
	defer tx.Abort()
	if err := plan.Commands.Apply(tx); err != nil {
		t.Errorf("the plan does not apply to the world that it was made from: %v", err)
		return
	}
	tx.Commit()
	if statetest.Diff(t, before, q.store.View()) == "" {
		t.Error("the plan changes nothing")
	}
}
