package state_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

func TestSavedStateLoadsAsItWas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		store, err := state.New()
		if err != nil {
			t.Fatal(err)
		}
		for index := range uint64(rapid.IntRange(0, 5).Draw(t, "commits")) {
			tx := store.Begin(index+1, statetest.Now())
			writeSomething(t, tx)
			tx.NextOperationID("x")
			tx.Touch(pick[api.NodeID](t, "node"))
			tx.Commit()
		}
		loaded, err := state.Load(bytes.NewReader(save(t, store.View())))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(text(t, store.View()), text(t, loaded.View())); diff != "" {
			t.Fatalf("the loaded state differs:\n%s", diff)
		}
		if got, want := loaded.View().Index(), store.View().Index(); got != want {
			t.Fatalf("the loaded state is at index %d, want %d", got, want)
		}
	})
}

func TestEqualStatesSaveToEqualBytes(t *testing.T) {
	t.Parallel()
	ids := []api.VolumeID{"a", "b", "ab", "c"}
	rapid.Check(t, func(t *rapid.T) {
		var saved [][]byte
		for range 2 {
			store, err := state.New()
			if err != nil {
				t.Fatal(err)
			}
			commit(store, 1, func(tx *state.Tx) {
				for _, id := range rapid.Permutation(ids).Draw(t, "order") {
					tx.PutVolume(&api.Volume{ID: id, Spec: api.VolumeSpec{
						Parameters: map[string]string{"one": "1", "two": "2", "three": "3"},
					}})
					tx.Touch(api.NodeID(id))
				}
			})
			saved = append(saved, save(t, store.View()))
		}
		if !bytes.Equal(saved[0], saved[1]) {
			t.Fatal("the same rows, written in another order, save to other bytes")
		}
	})
}

func TestManyRowsLoadInBatches(t *testing.T) {
	t.Parallel()
	store := statetest.Load(t, "")
	commit(store, 2, func(tx *state.Tx) {
		for i := range 1001 {
			tx.PutNode(&api.Node{ID: api.NodeID(many(i))})
		}
	})
	loaded, err := state.Load(bytes.NewReader(save(t, store.View())))
	if err != nil {
		t.Fatal(err)
	}
	if text(t, loaded.View()) != text(t, store.View()) {
		t.Error("the loaded state differs")
	}
}

func TestCutStateIsRefused(t *testing.T) {
	t.Parallel()
	whole := save(t, statetest.Load(t, watched).View())
	for n := range whole {
		if _, err := state.Load(bytes.NewReader(whole[:n])); err == nil {
			t.Fatalf("%d of %d bytes loaded without an error", n, len(whole))
		}
	}
}

func TestCorruptedStateIsRefusedOrHarmless(t *testing.T) {
	t.Parallel()
	store := statetest.Load(t, watched)
	whole, want := save(t, store.View()), text(t, store.View())
	for i := range whole {
		for _, bit := range []byte{1, 16, 128} {
			broken := bytes.Clone(whole)
			broken[i] ^= bit
			loaded, err := state.Load(bytes.NewReader(broken))
			if err == nil && text(t, loaded.View()) != want {
				t.Fatalf("byte %d with bit %d turned loads as another state", i, bit)
			}
		}
	}
}

func TestForeignStateIsRefused(t *testing.T) {
	t.Parallel()
	const (
		header  = `{"berth":"state","format":1}` + "\n"
		row     = `{"table":"nodes","row":{"id":"n1"}}` + "\n"
		trailer = `{"rows":1}` + "\n"
	)
	for name, c := range map[string]struct{ saved, want string }{
		"empty":                  {"", "not a saved state of Berth, or it is cut"},
		"other JSON":             {`{"a":1}` + "\n", "not a saved state of Berth"},
		"other product":          {`{"berth":"agent","format":1}` + "\n", "not a saved state of Berth"},
		"no JSON":                {"# a comment\n", "not a saved state of Berth"},
		"no format":              {`{"berth":"state"}` + "\n" + row + trailer, "not a saved state of Berth"},
		"newer format":           {`{"berth":"state","format":2}` + "\n" + row + trailer, "format 2 is newer than this version understands (1)"},
		"newer header":           {`{"berth":"state","format":2,"made_by":"x"}` + "\n", "format 2 is newer than this version understands (1)"},
		"no trailer":             {header + row, "the stream is cut"},
		"row missing":            {header + trailer, "0 rows, and the trailer says 1"},
		"row twice":              {header + row + row + trailer, "2 rows, and the trailer says 1"},
		"something after it":     {header + row + trailer + row, "something after the trailer"},
		"unknown table":          {header + `{"table":"moons","row":{}}` + "\n" + trailer, `row 1: unknown table "moons"`},
		"unknown field":          {header + `{"table":"nodes","row":{"id":"n1","moon":1}}` + "\n" + trailer, `row 1 of nodes: json: unknown field "moon"`},
		"unknown field of line":  {header + `{"table":"nodes","row":{"id":"n1"},"moon":1}` + "\n" + trailer, `row 1: json: unknown field "moon"`},
		"row of the wrong kind":  {header + `{"table":"nodes","row":[]}` + "\n" + trailer, "row 1 of nodes"},
		"row without a value":    {header + `{"table":"nodes"}` + "\n" + trailer, "row 1 of nodes"},
		"two rows in a line":     {header + strings.TrimSuffix(row, "\n") + row + trailer, "row 1: something follows the value"},
		"brace too much":         {header + strings.TrimSuffix(row, "\n") + "}\n" + trailer, "row 1: something follows the value"},
		"words after the header": {strings.TrimSuffix(header, "\n") + " x\n" + row + trailer, "not a saved state of Berth"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := state.Load(bytes.NewReader(compress(t, c.saved)))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error = %v, want one that says %q", err, c.want)
			}
		})
	}
}

func TestWhatIsNotCompressedIsRefused(t *testing.T) {
	t.Parallel()
	_, err := state.Load(strings.NewReader("this is a text file, and no saved state\n"))
	if err == nil || !strings.Contains(err.Error(), "not a saved state of Berth") {
		t.Errorf("error = %v, want one that says what the file is not", err)
	}
}

func TestSaveTellsThatItsWriterFails(t *testing.T) {
	t.Parallel()
	store := statetest.Load(t, watched)
	size := len(save(t, store.View()))
	for _, n := range []int{0, size / 2, size - 1} {
		if err := store.View().Save(&fullDisk{n}); err == nil {
			t.Errorf("a disk with room for %d of %d bytes took it all", n, size)
		}
	}
}

// fullDisk takes so many bytes.
type fullDisk struct{ room int }

func (d *fullDisk) Write(b []byte) (int, error) {
	if len(b) > d.room {
		return 0, io.ErrShortWrite
	}
	d.room -= len(b)
	return len(b), nil
}

type fataler interface {
	Helper()
	Fatal(args ...any)
}

func save(t fataler, v state.View) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := v.Save(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func compress(t fataler, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
