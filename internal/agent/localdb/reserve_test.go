package localdb_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

// disk is a small file system.
type disk struct {
	*testing.T
	dir string
}

func newDisk(t *testing.T) *disk {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// A child that another test starts has all files for a moment, closed or not.
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return &disk{t, dir}
}

func (d *disk) path() string { return filepath.Join(d.dir, "agent.db") }

// fill leaves no byte of room until the filler is removed.
func (d *disk) fill() (empty func()) {
	d.Helper()
	path := filepath.Join(d.dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		d.Fatal(err)
	}
	for chunk := make([]byte, 1<<20); len(chunk) > 0; {
		if _, err := f.Write(chunk); err != nil {
			chunk = chunk[:len(chunk)/2]
		}
	}
	if err := f.Close(); err != nil {
		d.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			d.Error(err)
		}
	}
}

// wantRefusedAsFull fails unless err says that the disk is full.
func (d *disk) wantRefusedAsFull(what string, err error) {
	d.Helper()
	var full *localdb.FullError
	if !errors.As(err, &full) || !errors.Is(err, unix.ENOSPC) || full.Path != d.path() {
		d.Errorf("%s on a full disk: %v, want it refused for that", what, err)
	}
}

func bigStaging(n int) *localdb.Staging {
	return &localdb.Staging{Namespace: "default", VolumeID: volume(n), ExternalID: strings.Repeat("x", 8000)}
}

// TestFullDiskRefusesAndLosesNothing fills the file system: what was stored
// stays, and when there is room again, writing goes on.
func TestFullDiskRefusesAndLosesNothing(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	db := open(t, d.path())
	ballast := filepath.Join(d.dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 6<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	stored := 0
	var full error
	for full == nil && stored < 1000 {
		if full = db.PutStaging(bigStaging(stored)); full == nil {
			stored++
		}
	}
	d.wantRefusedAsFull(fmt.Sprintf("staging %d", stored), full)
	if stored == 0 {
		t.Fatal("nothing was stored on an empty disk")
	}
	check := func(when string, want int) {
		t.Helper()
		all, err := db.Stagings()
		if err != nil || len(all) != want {
			t.Errorf("%s: %d stagings, %v, want %d", when, len(all), err, want)
		}
	}
	check("on the full disk", stored)
	closeDB(t, db)
	db = open(t, d.path())
	check("after a restart on the full disk", stored)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := db.PutStaging(bigStaging(stored)); err != nil {
		t.Errorf("write when there is room again: %v", err)
	}
	check("when there is room again", stored+1)
	closeDB(t, db)
}

// An agent on a full disk could not record its session any more, nor a report,
// and so had no contact with the servers; nor could it end what it ran. A next
// one did not even start.
func TestFullDiskKeepsNothingFromItsEnd(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	db := open(t, d.path())
	node, err := db.Node("db-1")
	if err != nil {
		t.Fatal(err)
	}
	a := filled[localdb.Allocation]()
	a.Assignment.ID, a.Phase = "begun", localdb.PhaseUp
	if err := errors.Join(db.PutAllocation(&a), db.PutStaging(bigStaging(0))); err != nil {
		t.Fatal(err)
	}
	empty := d.fill()
	report := &api.Report{NodeID: node.ID}
	for i := range 500 {
		report.Facts.Allocations = append(report.Facts.Allocations, api.AllocFact{ID: api.AllocID(fmt.Sprint(i)), Status: a.Status})
	}
	// What is asked for ahead goes first.
	begun := 1
	for err = nil; err == nil && begun < 1000; begun++ {
		err = db.PutStaging(bigStaging(begun))
	}
	d.wantRefusedAsFull("a new staging", err)
	life := func(agent int) {
		for i := range 50 {
			node.Index++
			report.Sequence++
			s := bigStaging(0)
			s.Staged = i%2 == 0
			err := errors.Join(db.PutNode(node), db.PutReport(report), db.PutStaging(s), db.PutAllocation(&a),
				db.PutInstance(&localdb.Instance{PluginID: "local"}))
			if err != nil {
				t.Fatalf("write %d of agent %d on a full disk: %v", i, agent, err)
			}
			other := a
			other.Assignment.ID = "new"
			d.wantRefusedAsFull("a new allocation", db.PutAllocation(&other))
			d.wantRefusedAsFull("a new staging", db.PutStaging(bigStaging(begun)))
			// What was never begun can be ended.
			other.Phase = localdb.PhaseDown
			if err := errors.Join(db.PutAllocation(&other), db.DeleteAllocation("new")); err != nil {
				t.Fatalf("agent %d on a full disk: %v", agent, err)
			}
		}
	}
	life(1)
	closeDB(t, db)
	db = open(t, d.path())
	if got, err := db.Node("db-1"); err != nil || got.ID != node.ID || got.Index != node.Index {
		t.Errorf("identity on a full disk: %+v, %v, want %+v", got, err, node)
	}
	life(2)
	if err := errors.Join(db.DeleteStaging("default", volume(0)), db.DeleteAllocation("begun")); err != nil {
		t.Errorf("the end on a full disk: %v", err)
	}
	empty()
	if err := errors.Join(db.PutAllocation(&a), db.PutStaging(bigStaging(begun))); err != nil {
		t.Errorf("a beginning when there is room again: %v", err)
	}
	closeDB(t, db)
}

// The file of an agent that set nothing aside is read on a full disk: what it
// tells is undone, and that may give room.
func TestFileWithoutReserveIsReadOnAFullDisk(t *testing.T) {
	t.Parallel()
	elsewhere := scratch(t)
	db := open(t, elsewhere)
	node, err := db.Node("db-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := db.PutStaging(bigStaging(0)); err != nil {
		t.Fatal(err)
	}
	closeDB(t, db)
	file, err := os.ReadFile(elsewhere)
	if err != nil {
		t.Fatal(err)
	}
	d := newDisk(t)
	if err := os.WriteFile(d.path(), file, 0o600); err != nil {
		t.Fatal(err)
	}
	empty := d.fill()
	db = open(t, d.path())
	if got, err := db.Node("db-1"); err != nil || got.ID != node.ID {
		t.Errorf("identity: %+v, %v, want %+v", got, err, node)
	}
	if s, err := db.Staging("default", volume(0)); err != nil || s == nil {
		t.Errorf("staging: %+v, %v", s, err)
	}
	d.wantRefusedAsFull("a new staging", db.PutStaging(bigStaging(1)))
	empty()
	if err := db.PutStaging(bigStaging(1)); err != nil {
		t.Errorf("a beginning when there is room again: %v", err)
	}
	closeDB(t, db)
}

// The reserve is real: the file system counts it as taken, and it stays behind
// what is written as the file grows.
func TestReserveGrowsWithTheFile(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	db := open(t, d.path())
	for n := range 200 {
		if err := db.PutStaging(bigStaging(n)); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(d.path(), &st); err != nil {
			t.Fatal(err)
		}
		if behind := st.Blocks*512 - int64(n)*8000; behind < 4<<20 {
			t.Fatalf("with %d stagings %d bytes are set aside, want 4 MiB", n, behind)
		}
	}
	closeDB(t, db)
}
