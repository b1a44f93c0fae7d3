package docker_test

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/internal/agent/driver/docker"
)

// TestATornRecord of an image, as a power cut leaves it, keeps nothing from being
// pulled, and makes the image somebody else's.
func TestATornRecord(t *testing.T) {
	t.Parallel()
	for name, there := range map[string]bool{"ImageIsThere": true, "ImageIsNot": false} {
		for _, torn := range []string{"", "\x00\x00\x00", `{"image":"app:1","i`, "{}"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				dir, socket := fakeEngine(t, func(w http.ResponseWriter, _ *http.Request) {
					if there {
						_, _ = w.Write([]byte(`{"Id":"sha256:1"}`))
						return
					}
					w.WriteHeader(http.StatusNotFound)
					_, _ = w.Write([]byte(`{"message":"no such image"}`))
				})
				d, err := docker.New(docker.Config{Endpoint: socket, Agent: dir, StateDir: dir}, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				path := d.RecordPath("app:1")
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(torn), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := d.BeginPull(t.Context(), "app:1"); err != nil {
					t.Errorf("after %q: %v", torn, err)
				}
				left, err := os.ReadFile(path)
				if there && !os.IsNotExist(err) || !there && string(left) != `{"image":"app:1"}` {
					t.Errorf("after %q it is recorded: %q (%v)", torn, left, err)
				}
			})
		}
	}
}

// TestStaleRecord: of an image that somebody else removed nothing is remembered,
// also where images stay for ever: it is theirs if they put it there again.
func TestStaleRecord(t *testing.T) {
	t.Parallel()
	dir, socket := fakeEngine(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/containers/json") {
			_, _ = w.Write([]byte("[]"))
			return
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"message":"no such image"}`))
	})
	d, err := docker.New(docker.Config{Endpoint: socket, Agent: dir, StateDir: dir, ImageDelay: -1}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.BeginPull(t.Context(), "app:1"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.RecordPath("app:1")); err != nil {
		t.Fatal(err)
	}
	if err := d.TidyImages(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(d.RecordPath("app:1")); !os.IsNotExist(err) {
		t.Errorf("of an image that is gone there is a record (%v)", err)
	}
}
