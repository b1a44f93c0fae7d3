package mounttest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/berth-dev/berth/internal/agent/mount"
	"github.com/berth-dev/berth/internal/agent/mount/mounttest"
)

func TestTable_HeldMountIsBusyUntilFreed(t *testing.T) {
	t.Parallel()
	table := mounttest.New()
	if err := table.Bind("/data", "/target", false); err != nil {
		t.Fatal(err)
	}
	table.Hold("/target", "postgres (pid 12)")
	err := table.Unmount("/target")
	var busy *mount.BusyError
	if !errors.As(err, &busy) || !strings.Contains(err.Error(), "postgres (pid 12)") {
		t.Errorf("unmount = %v, want a BusyError that names the holder", err)
	}
	table.Free("/target")
	if err := table.Unmount("/target"); err != nil {
		t.Error(err)
	}
}

func TestTable_ClearLeavesTheRoot(t *testing.T) {
	t.Parallel()
	table := mounttest.New()
	for _, target := range []string{"/a", "/a/b", "/a/b"} {
		if err := table.Bind("/data", target, false); err != nil {
			t.Fatal(err)
		}
	}
	table.Clear()
	rest, err := table.Under("/")
	if err != nil || len(rest) != 1 || rest[0].Path != "/" {
		t.Errorf("after Clear: %v, %v; want the root alone", rest, err)
	}
	if err := table.Unmount("/"); err == nil {
		t.Error("the root was unmounted")
	}
}

func TestTable_RootSaysWhereABindComesFrom(t *testing.T) {
	t.Parallel()
	table := mounttest.New()
	if err := errors.Join(table.Bind("/pool/v1", "/staging", false), table.Bind("/staging", "/target", true)); err != nil {
		t.Fatal(err)
	}
	m, found, err := table.At("/target")
	if err != nil || !found || m.Root != "/pool/v1" {
		t.Errorf("root = %q (%v, %v), want /pool/v1", m.Root, found, err)
	}
}

func BenchmarkTableAt(b *testing.B) {
	table := mounttest.New()
	for i := range 10_000 {
		if err := table.Bind("/data", fmt.Sprintf("/var/lib/berth/alloc/%d/target", i), false); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if _, found, err := table.At("/var/lib/berth/alloc/5000/target"); err != nil || !found {
			b.Fatal(found, err)
		}
	}
}
