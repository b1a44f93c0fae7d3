package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver/docker/dockertest"
	"github.com/berth-dev/berth/test/host"
)

// dockerPlugin is a job in the shape in which vendors publish theirs. Names in
// capitals are replaced.
const dockerPlugin = `
job "driver" {
  type = "system"
  group "main" {
    task "driver" {
      driver = "docker"
      config {
        image        = "IMAGE"
        network_mode = "none"
        privileged   = true
        entrypoint   = ["/bin/sh", "-c"]
        args         = ["COMMAND"]
        volumes      = ["/dev:/dev"]
      }
      csi_plugin {
        id             = "PLUGIN"
        type           = "monolith"
        mount_dir      = "/csi"
        health_timeout = "30s"
      }
    }
  }
}
`

// dockerConsumer is jobFile as a container.
func dockerConsumer() string {
	return strings.NewReplacer(`"exec"`, `"docker"`, "config {", fmt.Sprintf("config {\n image = %q\n network_mode = \"none\"", dockertest.Busybox)).Replace(jobFile)
}

// withDocker starts an engine with images of these programs, and an agent that
// uses it.
func withDocker(t *testing.T, image string, programs map[string]string) (*host.Berth, *dockertest.Engine) {
	t.Helper()
	engine := dockertest.Start(t, "--live-restore")
	engine.Import(image, dockertest.Tar(t, programs))
	b := host.Start(t, host.Options{Config: fmt.Sprintf(
		"driver \"docker\" {\n endpoint = %q\n allow_privileged = true\n allow_host_paths = true\n}\n", engine.Socket)})
	return b, engine
}

// TestDockerPlugin runs drivers as containers in the shape that vendors publish,
// and a container with a volume on them: Berth's own driver, whose mounts are
// real, and Kubernetes' mock driver. The agent and the engine are killed while
// the volume is in use; neither container notices.
func TestDockerPlugin(t *testing.T) {
	t.Parallel()
	t.Run("Local", func(t *testing.T) {
		t.Parallel()
		b, engine := withDocker(t, "berth:1", dockertest.FileSystemPrograms(t, map[string]string{"/berth": host.Binary(t)}))
		b.Apply(strings.NewReplacer("IMAGE", "berth:1", "PLUGIN", "disk",
			"COMMAND", "mkdir -p $BERTH_CSI_DIR/volumes && exec /berth plugin local --node-id $BERTH_NODE_ID --root $BERTH_CSI_DIR/volumes").Replace(dockerPlugin))
		b.Apply(diskVolume)
		b.Apply(dockerConsumer())
		throughKills(t, b, engine, "disk")
	})
	t.Run("Mock", func(t *testing.T) {
		t.Parallel()
		b, engine := withDocker(t, "mock:1", map[string]string{"/mock": host.NewMock(t).Binary()})
		b.Apply(strings.NewReplacer("IMAGE", "mock:1", "PLUGIN", "mock",
			"COMMAND", "mkdir -p $BERTH_CSI_DIR/state && exec /mock -endpoint $CSI_ENDPOINT -real-mounts -state-dir $BERTH_CSI_DIR/state").Replace(dockerPlugin))
		b.Apply(volumeFile)
		b.Apply(dockerConsumer())
		throughKills(t, b, engine, "mock")
	})
}

// throughKills kills the agent and the engine below a consumer, and ends the
// volume's life.
func throughKills(t *testing.T, b *host.Berth, engine *dockertest.Engine, plugin string) {
	t.Helper()
	var info api.VolumeInfo
	b.JSON(&info, "volume", "status", "pg")
	target := info.Attachments[0].Status.TargetPath
	wrote(t, b, target)
	writer, driver := runningTask(t, b, "db", "writer"), runningTask(t, b, "driver", "driver")
	same := func() {
		t.Helper()
		if is := runningTask(t, b, "db", "writer"); is.PID != writer.PID || is.Restarts != 0 {
			t.Errorf("the consumer's task was %+v, and is %+v", writer, is)
		}
		if is := runningTask(t, b, "driver", "driver"); is.PID != driver.PID || is.Restarts != 0 {
			t.Errorf("the driver's task was %+v, and is %+v", driver, is)
		}
	}
	b.Kill()
	b.Resume()
	same()
	engine.Kill()
	engine.Resume()
	same()
	var p api.Plugin
	b.JSON(&p, "plugin", "status", plugin)
	if p.NodesHealthy != 1 || p.ControllersHealthy != 1 {
		t.Errorf("plugin: %+v", p)
	}
	b.Run("job", "stop", "db")
	b.Run("volume", "delete", "pg")
	b.Run("job", "stop", "driver")
	b.Eventually("no container is left", limit, func() error {
		if left := engine.Containers(); len(left) > 0 {
			return fmt.Errorf("containers: %q", left)
		}
		return nil
	})
	if _, err := os.Stat(filepath.Join(target, "file")); err == nil {
		t.Errorf("the volume is still mounted at %s", target)
	}
}
