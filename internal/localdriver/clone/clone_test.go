package clone_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/berth-dev/berth/internal/localdriver/clone"
)

// sparse makes a file with data at two places and holes around them.
func sparse(t *testing.T, dir string) (path string, content []byte) {
	t.Helper()
	path = filepath.Join(dir, "source")
	content = make([]byte, 20<<20)
	copy(content[1<<20:], bytes.Repeat([]byte("first"), 1000))
	copy(content[15<<20:], bytes.Repeat([]byte("second"), 1<<19))
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	err = f.Truncate(int64(len(content)))
	for _, at := range []int64{1 << 20, 15 << 20} {
		_, writeErr := f.WriteAt(bytes.TrimRight(content[at:at+4<<20], "\x00"), at)
		err = errors.Join(err, writeErr)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return path, content
}

func wantContent(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the copy has %d bytes (%v) and differs from the %d of the source", len(got), err, len(want))
	}
}

func TestCopy_KeepsHolesAndReplacesWhatWasThere(t *testing.T) {
	t.Parallel()
	source, content := sparse(t, t.TempDir())
	target := filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(target, bytes.Repeat([]byte("old"), 30<<20/3), 0o600); err != nil {
		t.Fatal(err)
	}
	var p clone.Progress
	if err := clone.Copy(t.Context(), source, target, &p); err != nil {
		t.Fatal(err)
	}
	wantContent(t, target, content)
	allocated, err := clone.Allocated(target)
	if err != nil || allocated > 8<<20 {
		t.Errorf("the copy takes %d bytes (%v), and the source has 4 MiB that are no holes", allocated, err)
	}
	done, total := p.Get()
	if done < 3<<20 || done > 8<<20 || total < 3<<20 {
		t.Errorf("progress %d of %d bytes", done, total)
	}
}

func TestCopy_OfNothingButHoles(t *testing.T) {
	t.Parallel()
	source, target := filepath.Join(t.TempDir(), "source"), filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(source, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(source, 8<<20); err != nil {
		t.Fatal(err)
	}
	if err := clone.Copy(t.Context(), source, target, new(clone.Progress)); err != nil {
		t.Fatal(err)
	}
	wantContent(t, target, make([]byte, 8<<20))
}

func TestCopy_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	source, _ := sparse(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := clone.Copy(ctx, source, filepath.Join(t.TempDir(), "target"), new(clone.Progress))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Copy: %v, want %v", err, context.Canceled)
	}
}

func TestShare_WhereTheFileSystemCan(t *testing.T) {
	t.Parallel()
	for _, fsType := range []string{"xfs", "btrfs"} {
		t.Run(fsType, func(t *testing.T) {
			t.Parallel()
			disk := mounted(t, fsType)
			source, content := sparse(t, disk)
			target := filepath.Join(disk, "target")
			shared, err := clone.Share(source, target)
			if err != nil || !shared {
				t.Fatalf("shared: %v, %v", shared, err)
			}
			wantContent(t, target, content)
			if err := os.WriteFile(source, []byte("new"), 0o600); err != nil {
				t.Fatal(err)
			}
			wantContent(t, target, content)
			if shared, err := clone.Share(source, filepath.Join(t.TempDir(), "elsewhere")); shared || err != nil {
				t.Errorf("shared across file systems: %v, %v", shared, err)
			}
		})
	}
}

// mounted is a file system of its own.
func mounted(t *testing.T, fsType string) string {
	t.Helper()
	top := t.TempDir()
	image, disk := filepath.Join(top, "image"), filepath.Join(top, "disk")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 1<<30), os.Mkdir(disk, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs." + fsType, "-q", image}, {"mount", "-o", "loop", image, disk}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", disk).CombinedOutput(); err != nil {
			t.Errorf("umount: %v\n%s", err, out)
		}
	})
	return disk
}
