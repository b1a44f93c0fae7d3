package keyring_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/internal/keyring"
)

// FuzzLoad feeds a keyring a file that a broken disk or an editor might leave:
// it is refused, or its keys seal and open, and stay in the file with a new one.
func FuzzLoad(f *testing.F) {
	path := filepath.Join(f.TempDir(), "keyring.json")
	k, err := keyring.Load(path)
	if err != nil {
		f.Fatal(err)
	}
	for range 2 {
		if err := k.Generate(); err != nil {
			f.Fatal(err)
		}
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	const one = `{"id":"a","key":"MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}`
	const other = `{"id":"a","key":"AAAyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}`
	for _, seed := range []string{string(whole), string(whole[:len(whole)/2]), "", "null", "{}", `{"keys":[` + one + `]}`, `{"keys":[` + one + "," + other + `]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "keyring.json")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := keyring.Load(path)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "read the keyring: ") {
				t.Errorf("refused with %v", err)
			}
			return
		}
		id, box, err := k.Seal([]byte(text), "volume")
		if k.Empty() != (err != nil) {
			t.Fatalf("empty: %v, and to seal says %v", k.Empty(), err)
		}
		sealed := err == nil
		if err := k.Generate(); err != nil {
			t.Fatal(err)
		}
		for what, k := range map[string]*keyring.Keyring{"the keyring": k, "its file": load(t, path)} {
			if _, _, err := k.Seal([]byte(text), "volume"); err != nil {
				t.Errorf("%s with a new key does not seal: %v", what, err)
			}
			if !sealed {
				continue
			}
			if got, err := k.Open(id, box, "volume"); err != nil || !bytes.Equal(got, []byte(text)) {
				t.Errorf("%s does not open what it sealed with key %q: %q, %v", what, id, got, err)
			}
		}
	})
}
