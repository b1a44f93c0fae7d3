package localdb_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The databases of nodes of each format, with a value in every field that it
// had, and the same as text. Each is made once, by -update where it is missing,
// and never again: every later agent must read them, because a node is upgraded
// while its tasks run. What a later format adds goes into files of its own. The
// last one becomes final with its release; until then, remove its files and make
// them anew when a field is added.
func goldens() []string { return []string{"testdata/v1", "testdata/v2"} }

var update = flag.Bool("update", false, "make golden files that are missing")

func TestDatabasesOfEveryFormatAreRead(t *testing.T) {
	t.Parallel()
	for _, name := range goldens() {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			readGolden(t, name+".db", name+".json")
		})
	}
}

func readGolden(t *testing.T, goldenDB, goldenText string) {
	t.Helper()
	if _, err := os.Stat(goldenDB); errors.Is(err, fs.ErrNotExist) && *update {
		writeGolden(t, goldenDB, goldenText)
	}
	text, err := os.ReadFile(goldenText)
	if err != nil {
		t.Fatal(err)
	}
	var want contents
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&want); err != nil {
		t.Fatal(err)
	}
	saved, err := os.ReadFile(goldenDB)
	if err != nil {
		t.Fatal(err)
	}
	path := scratch(t)
	if err := os.WriteFile(path, saved, 0o600); err != nil {
		t.Fatal(err)
	}
	db := open(t, path)
	got := read(t, db, want.Node.Name)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("read from the database (-want +got):\n%s", diff)
	}
	// What was read can be written: an agent goes on with what it found.
	store(t, db, got)
	db = reopened(t, db, path)
	if diff := cmp.Diff(want, read(t, db, want.Node.Name)); diff != "" {
		t.Errorf("written again and read (-want +got):\n%s", diff)
	}
}

// The last text must name every field that there is today, or its database
// proves nothing of it.
func TestLastDatabaseHasEveryField(t *testing.T) {
	t.Parallel()
	all := goldens()
	golden, err := os.ReadFile(all[len(all)-1] + ".json")
	if err != nil {
		t.Fatal(err)
	}
	today, err := json.MarshalIndent(everything(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(golden), string(today)+"\n"); diff != "" {
		t.Errorf("today's records have other fields than the golden ones. What was added belongs into "+
			"a golden database of the next release; nothing may be taken away (-golden +today):\n%s", diff)
	}
}

func writeGolden(t *testing.T, goldenDB, goldenText string) {
	t.Helper()
	path := scratch(t)
	db := open(t, path)
	store(t, db, everything())
	closeDB(t, db)
	saved, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(everything(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	create(t, goldenDB, saved)
	create(t, goldenText, append(text, '\n'))
}

// create writes a file that must not be there.
func create(t *testing.T, path string, content []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}
