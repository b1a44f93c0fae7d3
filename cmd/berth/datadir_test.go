package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestOpenDirectoriesOfAnEarlierVersion stayed as they were. What is everybody's,
// and what an operator closed further, stays.
func TestOpenDirectoriesOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct{ top, below, wantTop, wantBelow os.FileMode }{
		"open":   {0o755, 0o755, 0o755, 0o700},
		"wide":   {0o777, 0o777, 0o755, 0o700},
		"closed": {0o700, 0o500, 0o700, 0o500},
		"common": {0o777 | os.ModeSticky, 0o750, 0o777 | os.ModeSticky, 0o700},
	} {
		path := filepath.Join(dir, name)
		below := filepath.Join(path, "server")
		for _, d := range []struct {
			path string
			mode os.FileMode
		}{{path, 0o700}, {below, c.below}, {path, c.top}} {
			if err := os.MkdirAll(d.path, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(d.path, d.mode); err != nil {
				t.Fatal(err)
			}
		}
		data, err := openDataDir(path, false)
		if err != nil {
			t.Fatal(err)
		}
		data.close()
		for path, want := range map[string]os.FileMode{path: c.wantTop, below: c.wantBelow} {
			if info, err := os.Stat(path); err != nil || info.Mode()&^os.ModeDir != want {
				t.Errorf("%s is %v, want %v (%v)", path, info.Mode(), want, err)
			}
		}
	}
}

func TestFreeBelow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if free, err := freeBelow(dir)(); err != nil || free == 0 {
		t.Errorf("free = %d, %v", free, err)
	}
	if _, err := freeBelow(filepath.Join(dir, "absent"))(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of a directory that is not there: %v", err)
	}
}
