package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/test/host"
)

// example is a file of the examples, with words of it replaced by those of this
// machine. Each of them is in it.
func example(t *testing.T, name string, replaced ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "examples", name))
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for i := 0; i < len(replaced); i += 2 {
		if !strings.Contains(text, replaced[i]) {
			t.Fatalf("%s has no %s", name, replaced[i])
		}
		text = strings.ReplaceAll(text, replaced[i], replaced[i+1])
	}
	return text
}

// TestExample_Plugin: a volume lives on the driver that the example runs.
func TestExample_Plugin(t *testing.T) {
	t.Parallel()
	b := host.Start(t, host.Options{})
	b.Apply(example(t, "plugin.hcl", "/usr/local/bin/berth", b.Binary(), "/var/lib/disk", filepath.Join(filepath.Dir(b.DataDir), "disk")))
	b.Apply(diskVolume)
	b.Apply(jobFile)
	var info api.VolumeInfo
	b.JSON(&info, "volume", "status", "pg")
	wrote(t, b, info.Attachments[0].Status.TargetPath)
	endUnharmed(t, b, runningTask(t, b, "db", "writer"), "plugin-disk")
}

// TestExample_Checks: the web server that the example runs is found as healthy,
// and serves what its template says. It is one that every machine of the tests
// has.
func TestExample_Checks(t *testing.T) {
	t.Parallel()
	b := host.Start(t, host.Options{})
	b.Apply(example(t, "checks.hcl", "/usr/bin/python3", "/usr/bin/busybox",
		`["-m", "http.server", "${BERTH_PORT_http}", "--directory", "/local/site"]`, `["httpd", "-f", "-p", "${BERTH_PORT_http}", "-h", "/local/site"]`))
	b.Eventually("the service is healthy, and serves", limit, func() error {
		var found api.ServiceInfo
		b.JSON(&found, "service", "status", "web")
		if len(found.Instances) != 1 || !found.Instances[0].Healthy {
			return fmt.Errorf("found: %+v", found)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", found.Instances[0].Port), nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil && (resp.StatusCode != http.StatusOK || string(body) != "It works.\n") {
			err = fmt.Errorf("served %s %q", resp.Status, body)
		}
		return err
	})
	b.Run("job", "stop", "web")
}
