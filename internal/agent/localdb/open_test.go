package localdb_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

// wantRefused fails unless Open answers an error with these words and leaves
// the file as it is.
func wantRefused(t *testing.T, path string, words ...string) {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	db, err := localdb.Open(path)
	if err == nil {
		closeDB(t, db)
		t.Fatalf("the database was opened, want an error with %q", words)
	}
	for _, w := range append(words, path) {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error is %q, want %q in it", err, w)
		}
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Error("the refused file was changed")
	}
}

func TestOpen_SecondAgentIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := scratch(t)
		first := open(t, path)
		began := time.Now()
		wantRefused(t, path, "another agent has it open")
		if waited := time.Since(began); waited > 5*time.Second {
			t.Errorf("the second agent waited for %s", waited)
		}
		if err := first.PutStaging(&localdb.Staging{VolumeID: "pg"}); err != nil {
			t.Errorf("the first agent cannot write any more: %v", err)
		}
		closeDB(t, first)
		// An agent that restarts may find the old one on its way out.
		first = open(t, path)
		time.AfterFunc(time.Second, func() { closeDB(t, first) })
		closeDB(t, open(t, path))
	})
}

func TestOpen_NewerFormatIsRefused(t *testing.T) {
	t.Parallel()
	path := scratch(t)
	closeDB(t, open(t, path))
	edit(t, path, func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("node")).Put([]byte("format"), []byte(`{"format":2,"more":true}`))
	})
	wantRefused(t, path, "format 2", "understands 1", "newer agent")
}

// edit changes a database as another version would.
func edit(t *testing.T, path string, change func(*bbolt.Tx) error) {
	t.Helper()
	bolt, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := bolt.Update(change); err != nil {
		t.Fatal(err)
	}
	if err := bolt.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOpen_DirectoryInTheWayIsRefused(t *testing.T) {
	t.Parallel()
	path := scratch(t)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := localdb.Open(path); err == nil || !strings.Contains(err.Error(), "directory") {
		t.Errorf("error = %v, want one that says that it is a directory", err)
	}
}

// large is a database of many pages.
func large(t *testing.T) string {
	t.Helper()
	path := scratch(t)
	db := open(t, path)
	if _, err := db.Node("db-1"); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		a := filled[localdb.Allocation]()
		a.Assignment.ID = api.AllocID(fmt.Sprintf("%032d", i))
		if err := db.PutAllocation(&a); err != nil {
			t.Fatal(err)
		}
	}
	closeDB(t, db)
	return path
}

// A file that was cut off anywhere is refused with words. Reading it killed
// the agent with a fault of the runtime.
func TestOpen_CutOffFileIsRefused(t *testing.T) {
	t.Parallel()
	whole, err := os.ReadFile(large(t))
	if err != nil {
		t.Fatal(err)
	}
	step := os.Getpagesize() / 2
	used := usedBytes(t, whole)
	for size := step; size < used; size += step {
		path := scratch(t)
		if err := os.WriteFile(path, whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, path)
	}
}

// usedBytes is how much of a database file has pages.
func usedBytes(t *testing.T, file []byte) int {
	t.Helper()
	path := scratch(t)
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	used := 0
	edit(t, path, func(tx *bbolt.Tx) error {
		used = int(tx.Size())
		return nil
	})
	return used
}

// A page full of something else is refused, or its entries are: nothing is
// read that was not written, and nothing kills the agent.
func TestOpen_DamagedPageIsNeverBelieved(t *testing.T) {
	t.Parallel()
	path := large(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	db := open(t, path)
	want := read(t, db, "db-1")
	closeDB(t, db)
	page := os.Getpagesize()
	refused := 0
	for at := 2 * page; at < len(whole); at += page {
		for _, junk := range []byte{0x00, 0xff, 'x'} {
			file := bytes.Clone(whole)
			copy(file[at:at+page], bytes.Repeat([]byte{junk}, page))
			path := scratch(t)
			if err := os.WriteFile(path, file, 0o600); err != nil {
				t.Fatal(err)
			}
			db, err := localdb.Open(path)
			if err != nil {
				refused++
				continue
			}
			// The page was not in use.
			if diff := cmp.Diff(want.Allocations, read(t, db, "db-1").Allocations); diff != "" {
				t.Errorf("read with page %d full of %#x (-want +got):\n%s", at/page, junk, diff)
			}
			closeDB(t, db)
		}
	}
	if refused == 0 {
		t.Error("no damaged page was noticed")
	}
}

// A power cut in the middle of a commit tears the page that names the newest
// transaction. The one before it is whole.
func TestOpen_TornCommitIsAsIfItNeverWas(t *testing.T) {
	t.Parallel()
	path := scratch(t)
	db := open(t, path)
	put := func(external string) {
		if err := db.PutStaging(&localdb.Staging{Namespace: "default", VolumeID: "pg", ExternalID: external}); err != nil {
			t.Fatal(err)
		}
	}
	put("before")
	older, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	put("torn")
	closeDB(t, db)
	newer, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	torn := 0
	for meta := range 2 {
		at := meta * page
		if bytes.Equal(older[at:at+page], newer[at:at+page]) {
			continue
		}
		torn++
		copy(newer[at+32:at+page], bytes.Repeat([]byte{0xa5}, page-32))
	}
	if torn != 1 {
		t.Fatalf("a commit wrote %d of the pages that name transactions, want 1", torn)
	}
	if err := os.WriteFile(path, newer, 0o600); err != nil {
		t.Fatal(err)
	}
	db = open(t, path)
	defer closeDB(t, db)
	if s, err := db.Staging("default", "pg"); err != nil || s == nil || s.ExternalID != "before" {
		t.Errorf("staging %+v, %v, want the one before the torn commit", s, err)
	}
	put("after")
}
