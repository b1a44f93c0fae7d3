package mount_test

import (
	"testing"

	"github.com/berth-dev/berth/internal/agent/mount"
	"github.com/berth-dev/berth/internal/agent/mount/mounttest"
)

func TestKernel(t *testing.T) {
	t.Parallel()
	mounttest.Conformance(t, mount.Kernel{})
}

func TestTable(t *testing.T) {
	t.Parallel()
	mounttest.Conformance(t, mounttest.New())
}
