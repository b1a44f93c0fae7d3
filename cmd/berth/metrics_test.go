package main

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMetricsAreShown: a server shows its numbers with its API, and any process
// where its configuration says.
func TestMetricsAreShown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	api, raft := ports(t)
	metrics, _ := ports(t)
	file := filepath.Join(dir, "server.hcl")
	if err := os.WriteFile(file, []byte("server {\n  enabled = true\n}\ntelemetry {\n  metrics_address = \""+metrics+"\"\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, 0, "agent", "--config", file, "--data-dir", filepath.Join(dir, "d"), "--http-address", api, "--raft-address", raft)
	r.says("leadership won")
	// It leads a moment before it is ready.
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for _, address := range []string{api, metrics} {
		late := time.After(limit)
		for text := scrape(t, address); !strings.Contains(text, "\nberth_consensus_leader 1\n"); text = scrape(t, address) {
			select {
			case <-look.C:
			case <-late:
				t.Fatalf("%s never says that the server leads:\n%s", address, text)
			}
		}
	}
	if out, status := r.interrupt(); status != 0 {
		t.Errorf("it ended with %d:\n%s", status, out)
	}
	again := start(t, 0, "agent", "--config", file, "--data-dir", filepath.Join(dir, "d"), "--http-address", metrics, "--raft-address", raft)
	out, status := again.wait()
	if status != 1 || !strings.Contains(out, "(see telemetry.metrics_address)") && !strings.Contains(out, "listen for the API") {
		t.Errorf("on a port that is taken: %d\n%s", status, out)
	}
}

// scrape reads all metrics that are shown at an address.
func scrape(t *testing.T, address string) string {
	t.Helper()
	resp, err := http.Get("http://" + address + "/v1/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s (%v)\n%s", address, resp.Status, err, text)
	}
	return string(text)
}
