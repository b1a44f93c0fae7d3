package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/test/host"
)

// hostJob reads a directory of its node that is read only, and writes what it
// finds there into another one.
const hostJob = `
job "web" {
  group "main" {
    volume "certs" {
      type      = "host"
      source    = "certs"
      read_only = true
    }
    volume "cache" {
      type   = "host"
      source = "cache"
    }
    task "main" {
      driver = "exec"
      user   = "root"
      config {
        command = "/bin/sh"
        args    = ["-c", "if touch /certs/mine; then echo writable; fi > /cache/out; cat /certs/key >> /cache/out; echo end >> /cache/out; exec sleep 1000"]
      }
      volume_mount {
        volume      = "certs"
        destination = "/certs"
      }
      volume_mount {
        volume      = "cache"
        destination = "/cache"
      }
    }
  }
}
`

// TestHostVolumes gives directories that the agent's configuration names to a
// task: one to read, and one to write. Who asks for one that no node has, or to
// write where none may, is told so, and runs when the configuration has it.
func TestHostVolumes(t *testing.T) {
	t.Parallel()
	certs, cache := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(certs, "key"), []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("host_volume \"certs\" {\n path = %q\n read_only = true\n}\nhost_volume \"cache\" {\n path = %q\n}\n", certs, cache)
	config += "server {\n enabled = true\n}\nclient {\n enabled = true\n}\n"
	b := host.Start(t, host.Options{Config: config, Service: true})

	b.Apply(hostJob)
	out := filepath.Join(cache, "out")
	b.Eventually("the task has read and written", limit, func() error {
		if got, err := os.ReadFile(out); err != nil || string(got) != "secret\nend\n" {
			return fmt.Errorf("it wrote %q: %w", got, err)
		}
		return nil
	})
	if _, err := os.Stat(filepath.Join(certs, "mine")); !os.IsNotExist(err) {
		t.Errorf("the directory that is read only was written to: %v", err)
	}

	for name, test := range map[string]struct{ was, is, want string }{
		"none":     {`source = "cache"`, `source = "models"`, "has no host volume models"},
		"writable": {"read_only = true", "read_only = false", "is read only"},
	} {
		file := strings.NewReplacer(`job "web"`, fmt.Sprintf("job %q", name), test.was, test.is).Replace(unaligned(hostJob))
		b.Apply(file, "--detach")
		b.Eventually("job "+name+" is told", limit, func() error {
			if said := b.Run("job", "status", name); !strings.Contains(said, test.want) {
				return fmt.Errorf("its status:\n%s", said)
			}
			return nil
		})
		var info api.JobInfo
		if b.JSON(&info, "job", "status", name); len(info.Allocations) > 0 {
			t.Errorf("job %s has %d allocations", name, len(info.Allocations))
		}
	}

	// The configuration gets it, and who waited for it runs. What runs is left as
	// it is.
	was := runningTask(t, b, "web", "main")
	b.Reconfigure(config + fmt.Sprintf("host_volume \"models\" {\n path = %q\n}\n", t.TempDir()))
	runningTask(t, b, "none", "main")
	if is := runningTask(t, b, "web", "main"); is.PID != was.PID {
		t.Errorf("the task was %+v, and is %+v", was, is)
	}
	for _, job := range []string{"web", "none", "writable"} {
		b.Run("job", "stop", job)
	}
	if got, err := os.ReadFile(filepath.Join(certs, "key")); err != nil || string(got) != "secret\n" {
		t.Errorf("after all of them, the directory's file has %q: %v", got, err)
	}
}

// unaligned has one blank around each equals sign.
func unaligned(file string) string {
	var lines []string
	for line := range strings.Lines(file) {
		if name, value, found := strings.Cut(line, "="); found {
			line = strings.TrimRight(name, " ") + " = " + strings.TrimLeft(value, " ")
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}
