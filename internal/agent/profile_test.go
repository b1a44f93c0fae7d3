package agent_test

import (
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
)

func TestProfileIsToldAtRegistration(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.config.Profile = api.Profile{Class: "fast", Address: "10.0.0.5", CPU: 1500, Meta: map[string]string{"rack": "r1"}}
		_, stop := w.start()
		defer stop()
		after(time.Second)
		got := w.server.registered().Profile
		if got.Address != "10.0.0.5" || got.CPU != 1500 {
			w.t.Errorf("address %q, %d MHz", got.Address, got.CPU)
		}
		if got.Class != "fast" || got.Meta["rack"] != "r1" {
			w.t.Errorf("class %q, meta %v", got.Class, got.Meta)
		}
		for name, want := range map[string]string{"cpu.arch": runtime.GOARCH, "kernel.name": "linux", "berth.version": "test"} {
			if got.Attributes[name] != want {
				w.t.Errorf("attribute %s = %q, want %q", name, got.Attributes[name], want)
			}
		}
		for _, name := range []string{"kernel.version", "os.name", "unique.hostname"} {
			if got.Attributes[name] == "" {
				w.t.Errorf("attribute %s is empty", name)
			}
		}
		for name := range got.Attributes {
			if !slices.Contains(api.Attributes(), name) {
				w.t.Errorf("attribute %s is found, and files that name it are refused: add it to api.Attributes", name)
			}
		}
		if n, err := strconv.ParseUint(got.Attributes["memory.totalbytes"], 10, 64); err != nil || n < 1<<26 {
			w.t.Errorf("memory: %q", got.Attributes["memory.totalbytes"])
		} else if got.MemoryMB != int(n>>20) {
			w.t.Errorf("%d MiB of %d bytes are for tasks", got.MemoryMB, n)
		}
	})
}
