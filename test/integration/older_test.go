package integration_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/test/host"
)

var update = flag.Bool("update", false, "make the data directory of this version, if there is none")

// The data directory of each version: a server and a node, whose machine lost
// power while a task wrote to a volume. Each is made once, by -update where it is
// missing, and never again: every later version must go on with it.
func olderDirectories() []string { return []string{"data-v1"} }

// Where the directory was, and is again, and the address that its server knows
// itself by. The boot has both for itself, but for the port.
const (
	olderRoom = "/mnt"
	olderRaft = "127.0.0.1:32500"
)

// TestOlderDataDirectory starts today's server and agent on what an older version
// left behind: the job of then is known, its volume is mounted with what was
// written to it, its task runs again as the same allocation, and all of it can be
// ended.
func TestOlderDataDirectory(t *testing.T) {
	t.Parallel()
	for _, name := range olderDirectories() { //nolint:paralleltest // one after the other: they have one address
		t.Run(name, func(t *testing.T) {
			archive, err := filepath.Abs(filepath.Join("testdata", name+".tar.gz"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(archive); errors.Is(err, fs.ErrNotExist) && *update {
				makeDirectory(t, archive)
			}
			boot := host.StartBoot(t)
			tarOf(t, "--extract", "--file", archive, "--directory", boot.Room(t, olderRoom))
			b := startOlder(t, boot)
			b.Eventually("the task has written again", limit, func() error {
				target, err := onlyTarget(b)
				if err != nil {
					return err
				}
				starts, err := os.ReadFile(filepath.Join(target, "starts"))
				if err != nil {
					return err
				}
				if lines := strings.Fields(string(starts)); len(lines) != 2 || lines[0] != lines[1] {
					return fmt.Errorf("starts of the allocations %q, want two of one", lines)
				}
				return nil
			})
			b.Run("job", "stop", "db")
			b.Run("volume", "delete", "pg")
		})
	}
}

// startOlder starts an agent on the room of a boot.
func startOlder(t *testing.T, boot *host.Boot) *host.Berth {
	t.Helper()
	return host.Start(t, host.Options{Boot: boot, Data: olderRoom + "/d", Raft: olderRaft, Args: []string{"--name", "machine"}})
}

// onlyTarget is where this process finds the volume.
func onlyTarget(b *host.Berth) (string, error) {
	out, errOut, status := b.Try("volume", "status", "pg", "--template", "{{range .Attachments}}{{.Status.TargetPath}} {{end}}")
	if targets := strings.Fields(out); len(targets) == 1 {
		return b.Path(targets[0]), nil
	}
	return "", fmt.Errorf("the volume is mounted at %q (exit status %d) %s", out, status, errOut)
}

// makeDirectory makes what this version leaves behind.
func makeDirectory(t *testing.T, archive string) {
	t.Helper()
	boot := host.StartBoot(t)
	room := boot.Room(t, olderRoom)
	b := startOlder(t, boot)
	b.Apply(strings.ReplaceAll(volumeFile, `capacity_min = "64MiB"`, ""))
	// It notes each of its starts with the allocation's name.
	b.Apply(strings.NewReplacer("echo start", "echo $BERTH_ALLOC_ID", `group "main" {`, "group \"main\" {\n restart {\n delay = \"10ms\"\n}\n").Replace(jobFile))
	b.Eventually("the task writes", limit, func() error {
		target, err := onlyTarget(b)
		if err == nil {
			_, err = os.Stat(filepath.Join(target, "ticks"))
		}
		return err
	})
	b.PowerOff()
	// Nothing of what was mounted: it ended with the power.
	tarOf(t, "--create", "--gzip", "--sparse", "--exclude", "d/csi/*/*/*/*", "--file", archive, "--directory", room, "d")
	boot.End()
}

func tarOf(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "tar", args...).CombinedOutput(); err != nil {
		t.Fatalf("tar %q: %v\n%s", args, err, out)
	}
}
