package command_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// TestApply runs the cases of testdata/apply, in files that are called for
// their kind. A file has worlds, and after each the cases that begin in it: a
// section that is named for the outcome, with commands, and one called effect.
// All commands but the last set the scene; the effect is the last one's: its
// error, or the rows that it changed. -update rewrites effects.
func TestApply(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/apply/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range command.Kinds() {
		if !slices.Contains(files, filepath.Join("testdata", "apply", string(kind)+".txtar")) {
			t.Errorf("kind %s has no cases", kind)
		}
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind, _, _ := strings.Cut(name, "-")
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			world := ""
			for i := 0; i < len(a.Files); i++ {
				f := a.Files[i]
				if f.Name == "world" {
					world = string(f.Data)
					continue
				}
				if i++; i == len(a.Files) || a.Files[i].Name != "effect" {
					t.Fatalf("case %q of %s is followed by no effect", f.Name, file)
				}
				effect := &a.Files[i]
				t.Run(f.Name, func(t *testing.T) { checkEffect(t, command.Kind(kind), world, string(f.Data), effect) })
			}
			if statetest.Updating() {
				statetest.Golden(t, file, string(txtar.Format(a)))
			}
		})
	}
}

// checkEffect applies the commands of one case to its world.
func checkEffect(t *testing.T, kind command.Kind, world, commands string, effect *txtar.File) {
	t.Helper()
	plan := decodePlan(t, statetest.Lines(commands))
	last := len(plan) - 1
	if last < 0 || plan[last].Kind() != kind {
		t.Fatalf("the last command is not a %s", kind)
	}
	store := statetest.Load(t, world)
	tx := store.Begin(2, statetest.Now())
	if err := plan[:last].Apply(tx); err != nil {
		t.Fatalf("set the scene: %v", err)
	}
	tx.Commit()
	before := store.View()
	tx = store.Begin(3, statetest.Now())
	defer tx.Abort()
	var got string
	if err := plan[last].Apply(tx); err != nil {
		got = fmt.Sprintf("error %s: %v\n", api.CodeOf(err), err)
		if tx.Writes() != 0 {
			t.Errorf("%d rows were written before the error", tx.Writes())
		}
	} else {
		writes := tx.Writes()
		tx.Commit()
		if got = statetest.Diff(t, before, store.View()); (got == "") != (writes == 0) {
			t.Errorf("%d writes changed these rows: %q", writes, got)
		}
	}
	if statetest.Updating() {
		effect.Data = []byte(got)
		return
	}
	if diff := cmp.Diff(string(effect.Data), got); diff != "" {
		t.Errorf("effect differs (-want +got):\n%s", diff)
	}
}

// decodePlan reads commands in the log's form: kind {json}.
func decodePlan(t *testing.T, lines []string) command.Plan {
	t.Helper()
	entry, err := command.NewCodec().Decode([]byte("{}\n" + strings.Join(lines, "\n") + "\n\n"))
	if err != nil {
		t.Fatal(err)
	}
	return entry.Plans[0]
}
