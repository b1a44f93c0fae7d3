package keyring_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/internal/keyring"
)

func load(t *testing.T, path string) *keyring.Keyring {
	t.Helper()
	k, err := keyring.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func generate(t *testing.T, k *keyring.Keyring) {
	t.Helper()
	if err := k.Generate(); err != nil {
		t.Fatal(err)
	}
}

const text = "correct horse battery staple"

func TestSealedIsOpenedAfterARestartAndARotation(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "server", "keyring.json")
	k := load(t, path)
	if !k.Empty() {
		t.Error("a keyring without a file has a key")
	}
	if _, _, err := k.Seal([]byte(text), "volume"); err == nil {
		t.Error("sealed without a key")
	}
	generate(t, k)
	first, box, err := k.Seal([]byte(text), "volume")
	if err != nil {
		t.Fatal(err)
	}
	generate(t, k)
	second, other, err := k.Seal([]byte(text), "volume")
	if err != nil || second == first {
		t.Fatalf("the new key is %s as the old one: %v", second, err)
	}
	if bytes.Equal(box, other) || bytes.Contains(box, []byte(text)) {
		t.Error("the box can be recognised")
	}
	again := load(t, path)
	for id, box := range map[string][]byte{first: box, second: other} {
		if got, err := again.Open(id, box, "volume"); err != nil || string(got) != text {
			t.Errorf("key %s opens %q, %v", id, got, err)
		}
	}
}

func TestSameTextSealsToAnotherBox(t *testing.T) {
	t.Parallel()
	k := load(t, filepath.Join(t.TempDir(), "keyring.json"))
	generate(t, k)
	_, one, _ := k.Seal([]byte(text), "volume")
	_, two, _ := k.Seal([]byte(text), "volume")
	if bytes.Equal(one, two) {
		t.Error("the same text is sealed to the same box")
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	k, stranger := load(t, filepath.Join(dir, "a.json")), load(t, filepath.Join(dir, "b.json"))
	generate(t, k)
	generate(t, stranger)
	id, box, err := k.Seal([]byte(text), "volume a")
	if err != nil {
		t.Fatal(err)
	}
	spoiled := bytes.Clone(box)
	spoiled[len(spoiled)-1] ^= 1
	for name, open := range map[string]func() ([]byte, error){
		"AnotherPurpose": func() ([]byte, error) { return k.Open(id, box, "volume b") },
		"SpoiledBox":     func() ([]byte, error) { return k.Open(id, spoiled, "volume a") },
		"CutBox":         func() ([]byte, error) { return k.Open(id, box[:5], "volume a") },
		"NoBox":          func() ([]byte, error) { return k.Open(id, nil, "volume a") },
		"UnknownKey":     func() ([]byte, error) { return stranger.Open(id, box, "volume a") },
	} {
		got, err := open()
		if err == nil || got != nil || strings.Contains(err.Error(), text) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if unknown, ok := errors.AsType[*keyring.UnknownKeyError](err); ok != (name == "UnknownKey") || ok && unknown.ID != id {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFileIsItsOwnersAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "keyring.json")
	generate(t, load(t, path))
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the file has mode %v, %v", info.Mode(), err)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("beside the file: %v, %v", all, err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := keyring.Load(path); err == nil || !strings.HasSuffix(err.Error(), "has mode 0640, and others may read it: use chmod 600") {
		t.Errorf("a file that others may read: %v", err)
	}
}

func TestLoadRefusesWhatIsNoKeyring(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"":                                       "is not one",
		"x":                                      "is not one",
		`{"keys":[{"id":"a","key":"c2hvcnQ="}]}`: "key 1 of",
		`{"keys":[{"key":"MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}]}`:      "key 1 of",
		`{"keys":[{"id":"a","key":"MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MD"}`: "is not one",
		// Of two with one id, what the second has sealed nobody could open.
		`{"keys":[{"id":"a","key":"MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="},{"id":"a","key":"AAAyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}]}`: "key 2 of",
	} {
		path := filepath.Join(t.TempDir(), "keyring.json")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := keyring.Load(path); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "MDEy") {
			t.Errorf("%q: %v, want %s", content, err, want)
		}
	}
}
