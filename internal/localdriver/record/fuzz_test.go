package record_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-dev/berth/internal/localdriver/record"
)

// FuzzOpen feeds a store a file that a broken disk might hold: it is told as
// broken, or it is a record that is kept as it was read.
func FuzzOpen(f *testing.F) {
	key := record.KeyOf("pg")
	dir := f.TempDir()
	store, err := record.Open[record.Volume](dir)
	if err != nil {
		f.Fatal(err)
	}
	if err := store.Put(full()); err != nil {
		f.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		f.Fatalf("find the record: %q, %v", files, err)
	}
	name := filepath.Base(files[0])
	whole, err := os.ReadFile(files[0])
	if err != nil {
		f.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(whole, &fields); err != nil {
		f.Fatal(err)
	}
	fields["publications"] = map[string]any{}
	unpublished, err := json.Marshal(fields)
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range [][]byte{unpublished, whole, whole[:len(whole)/2], nil, []byte("{}")} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
		store, err := record.Open[record.Volume](dir)
		if err != nil {
			t.Fatalf("one broken record keeps the others from being read: %v", err)
		}
		got, err := store.Get(key)
		if err != nil {
			if store.Broken()[key] == nil {
				t.Errorf("the record cannot be read, and is not told as broken: %v", err)
			}
			return
		}
		if err := store.Put(got); err != nil {
			t.Fatalf("write the record again: %v", err)
		}
		again, err := record.Open[record.Volume](dir)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := again.Get(key)
		if diff := cmp.Diff(got, kept, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("the record changes when it is written: %v\n%s", err, diff)
		}
	})
}
