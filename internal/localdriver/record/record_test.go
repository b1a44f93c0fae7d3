package record_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/internal/localdriver/record"
)

const node = "db-1-9f31c2aa"

func idOf(name string) string {
	return record.ID{Key: record.KeyOf(name), Node: node}.String()
}

// full is a record in which every field is set.
func full() record.Volume {
	use := record.Use{AccessMode: "SINGLE_NODE_MULTI_WRITER", FSType: "xfs", MountFlags: []string{"noatime", "nodev"}, Group: "1000"}
	return record.Volume{
		ID:    idOf("pg"),
		Name:  "pg",
		State: record.Ready,
		Body: record.Body{
			Content:    record.Image,
			Capacity:   300 << 20,
			FileSystem: &record.FileSystem{Type: "xfs", UUID: "0758f780-f2df-4052-b67d-0a788d7a5318", Formatted: true, Grow: true},
		},
		Source:  &record.Source{Snapshot: idOf("nightly")},
		Frozen:  true,
		BootID:  "b1",
		Staging: &record.Staging{Path: "/run/staging", Use: use},
		Publications: map[string]record.Publication{
			"/run/a": {Use: use},
			"/run/b": {ReadOnly: true, Use: use},
		},
	}
}

func directory(name string) record.Volume {
	return record.Volume{ID: idOf(name), Name: name, State: record.Ready, Body: record.Body{Content: record.Directory}, BootID: "b1"}
}

func open(t *testing.T, dir string) *record.Store[record.Volume] {
	t.Helper()
	s, err := record.Open[record.Volume](dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore_RecordIsTheSameAfterReopening(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := open(t, dir).Put(full()); err != nil {
		t.Fatal(err)
	}
	got, err := open(t, dir).Get(record.KeyOf("pg"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full(), got); diff != "" {
		t.Errorf("record (-put +got):\n%s", diff)
	}
}

func TestStore_CopiesShareNothing(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	put := full()
	if err := s.Put(put); err != nil {
		t.Fatal(err)
	}
	scribble(put)
	got, err := s.Get(record.KeyOf("pg"))
	if err != nil {
		t.Fatal(err)
	}
	scribble(got)
	scribble(s.List()[0])
	again, err := s.Get(record.KeyOf("pg"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full(), again); diff != "" {
		t.Errorf("record changed through a copy (-want +got):\n%s", diff)
	}
}

func scribble(v record.Volume) {
	v.FileSystem.Formatted = false
	v.Staging.MountFlags[0] = "scribble"
	v.Publications["/run/a"].MountFlags[0] = "scribble"
	delete(v.Publications, "/run/b")
}

func TestStore_ListsInOrderOfKeys(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		if err := s.Put(directory(name)); err != nil {
			t.Fatal(err)
		}
	}
	list := s.List()
	if len(list) != 5 {
		t.Fatalf("%d records, want 5", len(list))
	}
	for i := range list[1:] {
		if list[i].ID >= list[i+1].ID {
			t.Errorf("%s comes before %s", list[i].ID, list[i+1].ID)
		}
	}
}

func TestStore_RemovedRecordIsGoneAfterReopening(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	if err := s.Put(full()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time there is nothing to remove
		if err := s.Remove(record.KeyOf("pg")); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []*record.Store[record.Volume]{s, open(t, dir)} {
		if _, err := s.Get(record.KeyOf("pg")); !errors.Is(err, record.ErrNotFound) {
			t.Errorf("Get of a removed record: %v, want %v", err, record.ErrNotFound)
		}
	}
}

// A crash between writing and renaming leaves the unfinished file behind.
func TestOpen_UnfinishedWriteDoesNotCount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := open(t, dir).Put(full()); err != nil {
		t.Fatal(err)
	}
	unfinished := filepath.Join(dir, string(record.KeyOf("pg"))+".json.tmp")
	if err := os.WriteFile(unfinished, []byte(`{"format": 1, "id"`), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := open(t, dir).Get(record.KeyOf("pg"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full(), got); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if _, err := os.Lstat(unfinished); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("unfinished file after opening: %v, want it gone", err)
	}
}

func TestOpen_UnreadableRecordHarmsOnlyItsVolume(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"Truncated":      `{"format": 1, "id": "` + idOf("pg")[:10],
		"Empty":          "",
		"NewerFormat":    `{"format": 2, "id": "` + idOf("pg") + `", "name": "pg"}`,
		"AnothersRecord": `{"format": 1, "id": "` + idOf("other") + `", "name": "other", "state": "ready", "content": "directory"}`,
		"StrangeState":   `{"format": 1, "id": "` + idOf("pg") + `", "name": "pg", "state": "asleep", "content": "directory"}`,
		"StrangeContent": `{"format": 1, "id": "` + idOf("pg") + `", "name": "pg", "state": "ready", "content": "tape"}`,
		"NoFileSystem":   `{"format": 1, "id": "` + idOf("pg") + `", "name": "pg", "state": "ready", "content": "image", "capacity": 1}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			healthy := directory("healthy")
			if err := open(t, dir).Put(healthy); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, string(record.KeyOf("pg"))+".json")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			s := open(t, dir)
			if _, err := s.Get(record.KeyOf("pg")); err == nil || errors.Is(err, record.ErrNotFound) {
				t.Errorf("Get: %v, want an error that says why it cannot be read", err)
			}
			if err := s.Put(full()); err == nil {
				t.Error("Put went over an unreadable record")
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != content {
				t.Errorf("file is %q (%v), want it untouched", got, err)
			}
			if len(s.Broken()) != 1 {
				t.Errorf("broken records: %v, want one", s.Broken())
			}
			if diff := cmp.Diff([]record.Volume{healthy}, s.List()); diff != "" {
				t.Errorf("others (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPut_RefusesAnIDThatIsNoKey(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "../../etc/passwd@n", "pg@n", string(record.KeyOf("pg")), string(record.KeyOf("pg")) + "@"} {
		if err := open(t, t.TempDir()).Put(record.Volume{ID: id}); err == nil {
			t.Errorf("Put took the id %q", id)
		}
	}
}

func TestKeyOf_IsAPlainFileNameForAnyName(t *testing.T) {
	t.Parallel()
	seen := map[record.Key]string{}
	for _, name := range []string{"pg", "PG", "../../etc", "a/b", "a\x00b", "", strings.Repeat("x", 128), "ü\n", "."} {
		key := record.KeyOf(name)
		if parsed, ok := record.ParseKey(string(key)); !ok || parsed != key {
			t.Errorf("key %q of %q is none", key, name)
		}
		if filepath.Base(string(key)) != string(key) {
			t.Errorf("key %q of %q is no plain file name", key, name)
		}
		if other, twice := seen[key]; twice {
			t.Errorf("%q and %q have the same key", name, other)
		}
		seen[key] = name
		if record.KeyOf(name) != key {
			t.Errorf("key of %q differs from call to call", name)
		}
	}
}

func TestParseID_TakesOnlyWhatTheDriverMakes(t *testing.T) {
	t.Parallel()
	want := record.ID{Key: record.KeyOf("pg"), Node: node}
	if got, ok := record.ParseID(want.String()); !ok || got != want {
		t.Errorf("ParseID(%q) = %v, %v", want, got, ok)
	}
	for _, s := range []string{
		"", "@", "fake-vol-id", "@" + node, string(want.Key), string(want.Key) + "@",
		strings.ToUpper(want.String()), "../" + want.String(), want.String()[1:],
		strings.Replace(want.String(), string(want.Key[0]), "/", 1),
	} {
		if got, ok := record.ParseID(s); ok {
			t.Errorf("ParseID(%q) = %v, want a refusal", s, got)
		}
	}
}
