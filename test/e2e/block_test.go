package e2e_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/test/host"
)

// blockVolume is a block device of the embedded driver.
const blockVolume = `
id        = "pg"
type      = "csi"
plugin_id = "local"
capability {
  access_mode     = "single-node-writer"
  attachment_mode = "block-device"
}
capacity_min = "8MiB"
`

// blockJob says what it finds at both ends of its device, writes to the first,
// and writes to the last, and says so, each time when that is somewhere else.
const blockJob = `
job "db" {
  group "main" {
    volume "data" {
      type            = "csi"
      source          = "pg"
      access_mode     = "single-node-writer"
      attachment_mode = "block-device"
    }
    task "writer" {
      driver = "exec"
      user   = "nobody"
      config {
        command = "/bin/sh"
        args = ["-c", <<EOT
set -eu
d=/dev/data
echo "user $(id -un), device of $(stat -c '%U, %F' $d), <$(head -c 16 $d | tr -d '\0')> to <$(tail -c 16 $d | tr -d '\0')>"
printf begun | dd of=$d conv=notrunc,fsync status=none
was=0
while :; do
  size=$(wc -c < $d)
  if [ $size != $was ]; then
    printf "end at $size" | dd of=$d conv=notrunc,fsync oflag=seek_bytes seek=$((size - 16)) status=none
    echo "size $size"
    was=$size
  fi
  sleep 0.2
done
EOT
        ]
      }
      volume_mount {
        volume      = "data"
        destination = "/dev/data"
      }
    }
  }
}
`

// TestLocal_Block has a task that is not root use a block device of the embedded
// driver among its devices, while that grows. What it wrote is there for the next
// task, and in a clone, which is a device of its own.
func TestLocal_Block(t *testing.T) {
	t.Parallel()
	b := host.Start(t, host.Options{})
	found := func(first, last string) string {
		return fmt.Sprintf("user nobody, device of nobody, block special file, <%s> to <%s>\n", first, last)
	}
	b.Apply(blockVolume)
	b.Apply(blockJob)
	says(t, b, found("", "")+"size 8388608\n")
	out := b.Apply(strings.ReplaceAll(blockVolume, "8MiB", "16MiB"))
	if !strings.Contains(out, "(16MiB)") {
		t.Errorf("a file with a larger size: %s", out)
	}
	says(t, b, found("", "")+"size 8388608\nsize 16777216\n")
	b.Run("job", "stop", "db")

	b.Apply(blockJob)
	says(t, b, found("begun", "end at 16777216")+"size 16777216\n")
	b.Run("job", "stop", "db")

	b.Apply(strings.NewReplacer(`"pg"`, `"copy"`, "8MiB", "16MiB").Replace(blockVolume) + "clone_id = \"pg\"\n")
	b.Run("volume", "expand", "copy", "--capacity-min", "24MiB")
	b.Apply(strings.ReplaceAll(blockJob, `"pg"`, `"copy"`))
	says(t, b, found("begun", "")+"size 25165824\n")
	listed := map[api.VolumeID]api.ListedVolume{}
	var all []api.ListedVolume
	b.JSON(&all, "plugin", "volumes", "local")
	for _, v := range all {
		listed[v.VolumeID] = v
	}
	if len(all) != 2 || listed["pg"].Capacity != 16*mib || listed["copy"].Capacity != 24*mib || listed["pg"].ExternalID == listed["copy"].ExternalID {
		t.Errorf("the plugin has %+v", all)
	}
	b.JSON(&all, "plugin", "volumes", "local", "--unknown")
	if len(all) > 0 {
		t.Errorf("the plugin has %+v, and nobody knows of it", all)
	}
	b.Run("job", "stop", "db")

	// The clone was written to, and grown; its source was not.
	b.Apply(blockJob)
	says(t, b, found("begun", "end at 16777216")+"size 16777216\n")
	b.Run("job", "stop", "db")
	b.Run("volume", "delete", "pg")
	b.Run("volume", "delete", "copy")
	if left, err := filepath.Glob(filepath.Join(b.DataDir, "local", "volumes", "*")); err != nil || len(left) > 0 {
		t.Errorf("the driver still has %v (%v)", left, err)
	}
}

// says waits until the task of the job that runs has said exactly that.
func says(t *testing.T, b *host.Berth, want string) {
	t.Helper()
	id := string(allocation(t, b, "").ID)
	b.Eventually("the task says what it found", limit, func() error {
		if got := b.Run("alloc", "logs", id); got != want {
			return fmt.Errorf("it says %q; want %q", got, want)
		}
		return nil
	})
}
