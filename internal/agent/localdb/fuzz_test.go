package localdb_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/berth-dev/berth/internal/agent/localdb"
)

// FuzzRows gives a database rows that another version, or a broken disk, might
// have left: each is told as unreadable, or it is kept as it was read.
func FuzzRows(f *testing.F) {
	const bad = `{"users":[{"alloc_id":"a","published":true}],"assignment":{"id":"a"}}`
	for _, bucket := range []string{"node", "allocations", "stagings", "instances"} {
		for _, seed := range []string{"{}", "null", `""`, bad, `{"boot_id":1}`, `{"status":{"tasks":{"t":null}}}`, "{", "[]"} {
			f.Add(bucket, "node", []byte(seed))
			f.Add(bucket, "a\x00b", []byte(seed))
		}
	}
	empty, err := os.ReadFile(fresh(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, bucket, key string, row []byte) {
		if key == "" || len(key) > bbolt.MaxKeySize || len(row) > 1<<16 {
			return
		}
		path := filepath.Join(t.TempDir(), "agent.db")
		if err := os.WriteFile(path, empty, 0o600); err != nil {
			t.Fatal(err)
		}
		bolt, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		err = bolt.Update(func(tx *bbolt.Tx) error {
			if b := tx.Bucket([]byte(bucket)); b != nil {
				return b.Put([]byte(key), row)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := bolt.Close(); err != nil {
			t.Fatal(err)
		}
		db, err := localdb.Open(path)
		if err != nil {
			return
		}
		defer func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}()
		_, _ = db.Node("db-1") // it must not panic
		_, _ = db.Report()
		again(t, db.Allocations, db.PutAllocation)
		again(t, db.Stagings, db.PutStaging)
		again(t, db.Instances, db.PutInstance)
	})
}

// fresh is the file of a new database.
func fresh(f *testing.F) string {
	f.Helper()
	path := filepath.Join(f.TempDir(), "agent.db")
	db, err := localdb.Open(path)
	if err != nil {
		f.Fatal(err)
	}
	if err := db.Close(); err != nil {
		f.Fatal(err)
	}
	return path
}

// again writes what was read, under its own key, and reads it once more.
func again[T any](t *testing.T, read func() ([]T, error), write func(*T) error) {
	t.Helper()
	rows, err := read()
	if err != nil || len(rows) != 1 {
		return
	}
	if err := write(&rows[0]); err != nil {
		return // it has no name
	}
	now, err := read()
	if err != nil {
		t.Fatalf("what was read and written cannot be read: %v", err)
	}
	encoded := func(row *T) []byte {
		b, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for i := range now {
		if bytes.Equal(encoded(&rows[0]), encoded(&now[i])) {
			return
		}
	}
	t.Errorf("%s was written and became %+v", encoded(&rows[0]), now)
}
