package docker_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/driver/docker"
)

// TestALimitWhoseControllerIsAbsent was thrown away by the engine, which warns of
// it and goes on: the task is not started, and the controller is named.
func TestALimitWhoseControllerIsAbsent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		info   string
		limits *api.Resources
		want   string
	}{
		"Memory":  {`{"CPUShares":true}`, &api.Resources{CPU: 100, MemoryMB: 16}, `resources.memory needs the cgroup controller "memory"`},
		"CPU":     {`{"MemoryLimit":true}`, &api.Resources{CPU: 100, MemoryMB: 16}, `resources.cpu needs the cgroup controller "cpu"`},
		"Unasked": {`{"CPUShares":true}`, &api.Resources{CPU: 100}, ""},
		"None":    {`{}`, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, socket := fakeEngine(t, func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/info") {
					_, _ = w.Write([]byte(c.info))
					return
				}
				w.WriteHeader(http.StatusNotFound)
				_, _ = w.Write([]byte(`{"message":"nothing is here"}`))
			})
			d, err := docker.New(docker.Config{Endpoint: socket, Agent: dir, StateDir: dir}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			err = d.Start(t.Context(), driver.Spec{ID: "a/t", Dir: dir, Task: api.Task{
				Name: "t", Driver: "docker", Config: map[string]any{"image": "x"}, Resources: c.limits,
			}})
			fatal := api.CodeOf(err) == api.CodeInvalid
			if err == nil || fatal != (c.want != "") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("it is answered with %v, not %q", err, c.want)
			}
		})
	}
}
