// Package e2e_test runs Berth with real drivers: its own, and one that this
// project did not write.
package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/test/host"
)

// limit bounds whatever a test waits for.
const limit = 30 * time.Second

const volumeFile = `
id        = "pg"
type      = "csi"
plugin_id = "mock"
capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}
capacity_min = "1GiB"
`

// jobFile is a job that writes to the volume, if the driver serves one.
const jobFile = `
job "db" {
  group "main" {
    volume "data" {
      type            = "csi"
      source          = "pg"
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"
    }
    task "writer" {
      driver = "exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo started >> /data/file; exec sleep 1000"]
      }
      user = "root"
      volume_mount {
        volume      = "data"
        destination = "/data"
      }
    }
  }
}
`

// withMock starts an agent that finds the mock by its configuration.
func withMock(t *testing.T, settings string, flags ...string) (*host.Berth, *host.Mock) {
	t.Helper()
	m := host.StartMock(t, flags...)
	settings = strings.ReplaceAll(settings, "SOCKET", m.Socket)
	return host.Start(t, host.Options{Config: fmt.Sprintf("plugin \"mock\" {\n socket = %q\n %s\n}\n", m.Socket, settings)}), m
}

// TestMock carries a volume through its whole life on Kubernetes' mock driver:
// as Kubernetes runs it, down to publish, and with real mounts, down to a
// process that writes. The order of the calls is the specification's.
func TestMock(t *testing.T) {
	t.Parallel()
	attached := `CreateVolume OK
ControllerPublishVolume OK
NodeStageVolume OK
NodePublishVolume OK
NodeUnpublishVolume OK
NodeUnstageVolume OK
ControllerUnpublishVolume OK
DeleteVolume OK
`
	without := func(methods ...string) string {
		var kept []string
		for line := range strings.Lines(attached) {
			drop := false
			for _, m := range methods {
				drop = drop || strings.HasPrefix(line, m+" ")
			}
			if !drop {
				kept = append(kept, line)
			}
		}
		return strings.Join(kept, "")
	}
	noAttach := []string{"ControllerPublishVolume", "ControllerUnpublishVolume"}
	noStage := []string{"NodeStageVolume", "NodeUnstageVolume"}
	for name, tc := range map[string]struct {
		flags    []string
		settings string
		want     string
	}{
		"AsKubernetesRunsIt":    {nil, "allow_unmounted = true", attached},
		"AttachAndStage":        {[]string{"-real-mounts"}, "", attached},
		"NoAttach":              {[]string{"-real-mounts", "-disable-attach"}, "", without(noAttach...)},
		"NoStage":               {[]string{"-real-mounts", "-disable-stage"}, "", without(noStage...)},
		"NeitherAttachNorStage": {[]string{"-real-mounts", "-disable-attach", "-disable-stage"}, "", without(append(noStage, noAttach...)...)},
		"Topology":              {[]string{"-real-mounts", "-topology"}, "", attached},
		"TwoPrograms": {[]string{"-real-mounts"}, `type = "node"
}
plugin "mock" {
 socket = "SOCKET"
 type = "controller"`, attached},
		"AttachLimit": {[]string{"-real-mounts", "-attach-limit", "1"}, "", attached},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, m := withMock(t, tc.settings, tc.flags...)
			b.Apply(volumeFile + "")
			b.Apply(jobFile)
			var info api.VolumeInfo
			b.JSON(&info, "volume", "status", "pg")
			if len(info.Attachments) != 1 || info.Attachments[0].Status.State != api.NodePublished {
				t.Fatalf("attachments of a running job: %+v", info.Attachments)
			}
			if !strings.Contains(tc.settings, "allow_unmounted") {
				wrote(t, b, info.Attachments[0].Status.TargetPath)
			}
			b.Run("job", "stop", "db")
			b.Run("volume", "delete", "pg")
			if diff := cmp.Diff(tc.want, host.Sequence(m.Calls())); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			// A plugin with topology is told where the volume must be reachable, and
			// one without it nothing: an empty requirement breaks some.
			asked := strings.Contains(string(m.Calls()[0].Request), "accessibility_requirements")
			if want := slices.Contains(tc.flags, "-topology"); asked != want {
				t.Errorf("CreateVolume %s: names topologies %v, want %v", m.Calls()[0].Request, asked, want)
			}
		})
	}
}

// wrote waits until the job has written to the volume.
func wrote(t *testing.T, b *host.Berth, target string) {
	t.Helper()
	b.Eventually("the job writes", limit, func() error {
		got, err := os.ReadFile(filepath.Join(target, "file"))
		if err != nil {
			return err
		}
		if !strings.Contains(string(got), "started") {
			return fmt.Errorf("file has %q", got)
		}
		return nil
	})
}

// TestMock_OKWithoutAMountIsRefused shows that a task never starts on a volume
// that is not there, and that the user reads why, and how to mend it.
func TestMock_OKWithoutAMountIsRefused(t *testing.T) {
	t.Parallel()
	b, _ := withMock(t, "")
	b.Apply(volumeFile)
	b.Apply(jobFile, "--detach")
	b.Eventually("the reason is shown", limit, func() error {
		out := b.Run("job", "status", "db")
		if !strings.Contains(out, "nothing is mounted at") || !strings.Contains(out, "allow_unmounted = true") {
			return fmt.Errorf("job status: %s", out)
		}
		return nil
	})
	b.Run("job", "stop", "db")
	b.Run("volume", "delete", "pg")
}

// TestMock_Faults answers calls with errors first: each is repeated, and the
// life goes on. The mock goes on listing the node after it has detached the volume, so its OK
// is believed when it comes again.
func TestMock_Faults(t *testing.T) {
	t.Parallel()
	b, m := withMock(t, "", "-real-mounts",
		"-fault", "CreateVolume:UNAVAILABLE:1", "-fault", "ControllerPublishVolume:ABORTED:1",
		"-fault", "NodeStageVolume:INTERNAL:2", "-fault", "NodePublishVolume:INTERNAL:1",
		"-fault", "NodeUnpublishVolume:INTERNAL:1", "-fault", "NodeUnstageVolume:UNAVAILABLE:1",
		"-fault", "ControllerUnpublishVolume:DEADLINE_EXCEEDED:1", "-fault", "DeleteVolume:FAILED_PRECONDITION:1")
	b.Apply(volumeFile)
	b.Apply(jobFile)
	b.Run("job", "stop", "db")
	b.Run("volume", "delete", "pg")
	want := `CreateVolume UNAVAILABLE
CreateVolume OK
ControllerPublishVolume ABORTED
ControllerPublishVolume OK
NodeStageVolume INTERNAL
NodeStageVolume INTERNAL
NodeStageVolume OK
NodePublishVolume INTERNAL
NodePublishVolume OK
NodeUnpublishVolume INTERNAL
NodeUnpublishVolume OK
NodeUnstageVolume UNAVAILABLE
`
	got := host.Sequence(m.Calls())
	if !strings.HasPrefix(got, want) || !strings.HasSuffix(got, `ControllerUnpublishVolume DEADLINE_EXCEEDED
ControllerUnpublishVolume OK
ControllerUnpublishVolume OK
DeleteVolume FAILED_PRECONDITION
DeleteVolume OK
`) {
		t.Errorf("calls:\n%s", got)
	}
	names := map[string]bool{}
	for _, c := range m.Calls() {
		if c.Method == "CreateVolume" {
			names[string(c.Request)] = true
		}
	}
	if len(names) != 1 {
		t.Errorf("CreateVolume was repeated with other fields: %v", names)
	}
}

// TestMock_DiesInTheMiddle kills the driver in the middle of CreateVolume, done
// but not answered. A new one comes up at the same, now stale, socket.
func TestMock_DiesInTheMiddle(t *testing.T) {
	t.Parallel()
	b, m := withMock(t, "", "-real-mounts", "-die-in", "CreateVolume")
	b.Apply(volumeFile, "--detach")
	select {
	case <-m.Exited():
	case <-time.After(limit):
		t.Fatal("the driver was not called")
	}
	b.Eventually("the outcome is uncertain", limit, func() error {
		var ops []api.Operation
		b.JSON(&ops, "operation", "list")
		if len(ops) != 1 || !ops[0].Status.Uncertain || ops[0].Status.Code != "UNAVAILABLE" {
			return fmt.Errorf("operations: %+v", ops)
		}
		return nil
	})
	m.SetFlags("-real-mounts")
	m.Start()
	b.Apply(volumeFile)
	b.Apply(jobFile)
	b.Run("job", "stop", "db")
	b.Run("volume", "delete", "pg")
}

// TestMock_AttachLimit fills a node: the next job waits, says for what, and
// runs as soon as there is room.
func TestMock_AttachLimit(t *testing.T) {
	t.Parallel()
	b, _ := withMock(t, "", "-real-mounts", "-attach-limit", "1")
	second := strings.NewReplacer(`"pg"`, `"pg2"`, `"db"`, `"db2"`)
	b.Apply(volumeFile)
	b.Apply(second.Replace(volumeFile))
	b.Apply(jobFile)
	b.Apply(second.Replace(jobFile), "--detach")
	b.Eventually("the second job says why it waits", limit, func() error {
		out := b.Run("job", "status", "db2")
		if !strings.Contains(out, "has room for 1 volumes of plugin mock") {
			return fmt.Errorf("job status: %s", out)
		}
		return nil
	})
	b.Run("job", "stop", "db")
	b.Apply(second.Replace(jobFile))
	b.Run("job", "stop", "db2")
	b.Run("volume", "delete", "pg")
	b.Run("volume", "delete", "pg2")
}
