package command_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// A golden file is one entry with one command, in the log's form, with a value
// in every field. -update makes one where it is missing and never rewrites
// one: what is in a log stays as it is. A command that gets a new field gets
// a second file, kind-2.json.

func TestEveryKindHasAGoldenEntry(t *testing.T) {
	t.Parallel()
	for _, kind := range command.Kinds() {
		if statetest.Updating() {
			makeGolden(t, kind)
		}
		if len(goldenFiles(t, kind)) == 0 {
			t.Errorf("kind %s has no golden entry: make it with -update", kind)
		}
	}
}

func TestGoldenEntriesReadAndWriteToTheSameBytes(t *testing.T) {
	t.Parallel()
	for _, kind := range command.Kinds() {
		for _, file := range goldenFiles(t, kind) {
			golden := readFile(t, file)
			e, err := command.NewCodec().Decode(golden)
			if err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			if got := e.Plans[0][0].Kind(); got != kind {
				t.Errorf("%s holds a command of kind %s", file, got)
			}
			if diff := cmp.Diff(string(golden), string(encode(t, e))); diff != "" {
				t.Errorf("%s differs when it is written again (-golden +got):\n%s", file, diff)
			}
		}
	}
}

func TestGoldenEntriesHaveEveryField(t *testing.T) {
	t.Parallel()
	for _, kind := range command.Kinds() {
		missing := statetest.Empty(command.New(kind))
		for i, file := range goldenFiles(t, kind) {
			e, err := command.NewCodec().Decode(readFile(t, file))
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			empty := statetest.Empty(e.Plans[0][0])
			if i == 0 {
				missing = empty
			}
			missing = slices.DeleteFunc(missing, func(path string) bool { return !slices.Contains(empty, path) })
		}
		if len(missing) > 0 {
			t.Errorf("no golden entry of kind %s has a value for %s", kind, strings.Join(missing, ", "))
		}
	}
}

func goldenFiles(t *testing.T, kind command.Kind) []string {
	t.Helper()
	name := filepath.Join("testdata", "golden", string(kind))
	files, err := filepath.Glob(name + "-*.json")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(name + ".json"); err == nil {
		files = append(files, name+".json")
	}
	return files
}

func makeGolden(t *testing.T, kind command.Kind) {
	t.Helper()
	c := command.New(kind)
	statetest.Fill(c)
	e := &command.Entry{
		ID:    state.EntryID{Leadership: "second", Sequence: 2},
		After: state.EntryID{Leadership: "first", Sequence: 9},
		Time:  statetest.Now(),
		Plans: []command.Plan{{c}},
	}
	f, err := os.OpenFile(filepath.Join("testdata", "golden", string(kind)+".json"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(encode(t, e))
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// encode brings an entry into the log's form.
func encode(t interface {
	Helper()
	Fatal(args ...any)
}, e *command.Entry) []byte {
	t.Helper()
	var plans []command.Encoded
	for _, p := range e.Plans {
		b, err := p.Encode()
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, b)
	}
	b, err := command.EncodeEntry(e.ID, e.After, e.Time, plans)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func readFile(t testing.TB, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
