package localdb_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

func TestMain(m *testing.M) {
	if os.Getenv(childPath) != "" {
		writeUntilKilled(os.Getenv(childPath))
	}
	os.Exit(m.Run())
}

func open(t *testing.T, path string) *localdb.DB {
	t.Helper()
	db, err := localdb.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func closeDB(t *testing.T, db *localdb.DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// reopened is the database as the next agent finds it.
func reopened(t *testing.T, db *localdb.DB, path string) *localdb.DB {
	t.Helper()
	closeDB(t, db)
	db = open(t, path)
	t.Cleanup(func() { closeDB(t, db) })
	return db
}

func scratch(t *testing.T) string { return filepath.Join(t.TempDir(), "agent.db") }

// contents is everything that a database holds.
type contents struct {
	Node        localdb.Node
	Report      *api.Report
	Allocations []localdb.Allocation
	Stagings    []localdb.Staging
	Instances   []localdb.Instance
}

func read(t *testing.T, db *localdb.DB, name string) contents {
	t.Helper()
	var c contents
	var err error
	must := func() {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	c.Node, err = db.Node(name)
	must()
	c.Report, err = db.Report()
	must()
	c.Allocations, err = db.Allocations()
	must()
	c.Stagings, err = db.Stagings()
	must()
	c.Instances, err = db.Instances()
	must()
	return c
}

func store(t *testing.T, db *localdb.DB, c contents) {
	t.Helper()
	check := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	check(db.PutNode(c.Node))
	check(db.PutReport(c.Report))
	for i := range c.Allocations {
		check(db.PutAllocation(&c.Allocations[i]))
	}
	for i := range c.Stagings {
		check(db.PutStaging(&c.Stagings[i]))
	}
	for i := range c.Instances {
		check(db.PutInstance(&c.Instances[i]))
	}
}

// everything has a value in every field of every record.
func everything() contents {
	return contents{
		Node: filled[localdb.Node](), Report: new(filled[api.Report]()),
		Allocations: []localdb.Allocation{filled[localdb.Allocation]()},
		Stagings:    []localdb.Staging{filled[localdb.Staging]()},
		Instances:   []localdb.Instance{filled[localdb.Instance]()},
	}
}

func filled[T any]() T {
	var v T
	n := 0
	fill(reflect.ValueOf(&v).Elem(), "v", &n)
	return v
}

// fill puts a value of its own into every field, the same in every run.
func fill(v reflect.Value, name string, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), name, n)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, *n, time.UTC)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), strings.ToLower(v.Type().Field(i).Name), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), name, n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, name, n)
		fill(value, name, n)
		v.SetMapIndex(key, value)
	case reflect.Interface:
		v.Set(reflect.ValueOf(fmt.Sprintf("%s %d # & ? \u2028 \"", name, *n)))
	case reflect.String:
		v.SetString(fmt.Sprintf("%s-%d", name, *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint64:
		v.SetUint(uint64(*n) << 50)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n) << 40)
	default:
		panic("no value for " + v.Kind().String())
	}
}

func TestWrittenIsReadAgain(t *testing.T) {
	t.Parallel()
	path := scratch(t)
	db := open(t, path)
	want := everything()
	store(t, db, want)
	if diff := cmp.Diff(want, read(t, db, want.Node.Name)); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
	db = reopened(t, db, path)
	if diff := cmp.Diff(want, read(t, db, want.Node.Name)); diff != "" {
		t.Errorf("read by the next agent (-want +got):\n%s", diff)
	}
}

func TestNewDatabaseIsEmpty(t *testing.T) {
	t.Parallel()
	path := scratch(t)
	db := reopened(t, open(t, path), path)
	got := read(t, db, "db-1")
	got.Node = localdb.Node{}
	if diff := cmp.Diff(contents{}, got); diff != "" {
		t.Errorf("a new database has (-want +got):\n%s", diff)
	}
	if s, err := db.Staging("default", "pg"); s != nil || err != nil {
		t.Errorf("staging of an unknown volume: %+v, %v, want none", s, err)
	}
}

func TestNode_IsMadeUpOnce(t *testing.T) {
	t.Parallel()
	path := scratch(t)
	db := open(t, path)
	first, err := db.Node("db-1")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(first.ID), "db-1-") || len(first.ID) != len("db-1-")+8 || len(first.Secret) != 64 {
		t.Errorf("the node is %+v, want an id with 8 random digits and a secret of 256 bits", first)
	}
	db = reopened(t, db, path)
	second, err := db.Node("db-1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("the node is another one after a restart (-before +after):\n%s", diff)
	}
	other := open(t, scratch(t))
	defer closeDB(t, other)
	third, err := other.Node("db-1")
	if err != nil {
		t.Fatal(err)
	}
	if third.ID == first.ID || third.Secret == first.Secret {
		t.Errorf("two nodes with one name have the identities %s and %s", first.ID, third.ID)
	}
	if one, two := localdb.NewSession(), localdb.NewSession(); one == two || len(one) != 32 {
		t.Errorf("two sessions have the tokens %s and %s", one, two)
	}
}

// A node that was given another name in its configuration kept the old one for
// ever.
func TestNode_TakesUpANewName(t *testing.T) {
	t.Parallel()
	path := scratch(t)
	db := open(t, path)
	before, err := db.Node("db-1")
	if err != nil {
		t.Fatal(err)
	}
	db = reopened(t, db, path)
	after, err := db.Node("pg-1")
	if err != nil {
		t.Fatal(err)
	}
	want := before
	want.Name = "pg-1"
	if diff := cmp.Diff(want, after); diff != "" {
		t.Errorf("the renamed node (-want +got):\n%s", diff)
	}
}

func TestStaging_NamespacesAreApart(t *testing.T) {
	t.Parallel()
	path := scratch(t)
	db := open(t, path)
	for _, ns := range []api.NamespaceID{"a", "b"} {
		s := &localdb.Staging{Namespace: ns, VolumeID: "pg", ExternalID: "volume of " + string(ns)}
		if err := db.PutStaging(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.DeleteStaging("a", "pg"); err != nil {
		t.Fatal(err)
	}
	db = reopened(t, db, path)
	if s, err := db.Staging("a", "pg"); s != nil || err != nil {
		t.Errorf("the deleted staging: %+v, %v, want none", s, err)
	}
	if s, err := db.Staging("b", "pg"); err != nil || s == nil || s.ExternalID != "volume of b" {
		t.Errorf("the other namespace's staging: %+v, %v, want it untouched", s, err)
	}
}

func TestStaging_KeepsAnyExternalID(t *testing.T) {
	t.Parallel()
	path := scratch(t)
	db := open(t, path)
	want := &localdb.Staging{
		Namespace: "default", VolumeID: "pg",
		ExternalID: "pool a/v#1?x=1&y=../\u2028\x00<" + strings.Repeat("é", 512),
	}
	if err := db.PutStaging(want); err != nil {
		t.Fatal(err)
	}
	db = reopened(t, db, path)
	got, err := db.Staging("default", "pg")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("staging (-want +got):\n%s", diff)
	}
}

func TestAllocation_ForgottenIsGone(t *testing.T) {
	t.Parallel()
	path := scratch(t)
	db := open(t, path)
	for _, id := range []api.AllocID{"aaaaaaaaaaaa", "bbbbbbbbbbbb"} {
		a := &localdb.Allocation{Phase: localdb.PhaseUp, Assignment: api.AllocAssignment{ID: id}}
		if err := db.PutAllocation(a); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // forgetting what is forgotten is no error
		if err := db.DeleteAllocation("aaaaaaaaaaaa"); err != nil {
			t.Fatal(err)
		}
	}
	db = reopened(t, db, path)
	all, err := db.Allocations()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 || all[0].Assignment.ID != "bbbbbbbbbbbb" {
		t.Errorf("allocations: %+v, want the one that was not forgotten", all)
	}
}

func TestConcurrentWritersAllSucceed(t *testing.T) {
	t.Parallel()
	const writers, writes = 16, 20
	path := scratch(t)
	db := open(t, path)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range writes {
				s := &localdb.Staging{Namespace: "default", VolumeID: volume(w), ExternalID: fmt.Sprint(i)}
				if err := db.PutStaging(s); err != nil {
					t.Error(err)
				}
				if got, err := db.Staging("default", volume(w)); err != nil || got == nil || got.ExternalID != fmt.Sprint(i) {
					t.Errorf("writer %d reads %+v, %v after write %d", w, got, err, i)
				}
			}
		})
	}
	all.Wait()
	db = reopened(t, db, path)
	stagings, err := db.Stagings()
	if err != nil || len(stagings) != writers {
		t.Fatalf("%d stagings, %v, want %d", len(stagings), err, writers)
	}
	for _, s := range stagings {
		if s.ExternalID != fmt.Sprint(writes-1) {
			t.Errorf("volume %s holds write %s, want the last", s.VolumeID, s.ExternalID)
		}
	}
}

func volume(n int) api.VolumeID { return api.VolumeID(fmt.Sprintf("v%02d", n)) }
