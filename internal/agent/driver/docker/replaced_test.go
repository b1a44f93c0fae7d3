package docker_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver/docker"
)

// TestEngineReplaced: an engine is upgraded below a running agent, to one that
// does not speak the version of the API that was agreed on.
func TestEngineReplaced(t *testing.T) {
	t.Parallel()
	var newest, oldest atomic.Pointer[string]
	say := func(from, to string) { oldest.Store(&from); newest.Store(&to) }
	say("1.24", "1.41")
	engine := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Api-Version", *newest.Load())
		version, path, versioned := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v"), "/")
		switch {
		case strings.HasSuffix(r.URL.Path, "/_ping"):
			_, _ = w.Write([]byte("OK"))
		case versioned && older(version, *oldest.Load()):
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, `{"message":"client version %s is too old. Minimum supported API version is %s"}`, version, *oldest.Load())
		case versioned && older(*newest.Load(), version):
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, `{"message":"client version %s is too new. Maximum supported API version is %s"}`, version, *newest.Load())
		case path == "version":
			_, _ = fmt.Fprintf(w, `{"Version":"engine-%s","Os":"linux","ApiVersion":%q}`, *newest.Load(), *newest.Load())
		case path == "info":
			_, _ = w.Write([]byte(`{}`))
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"message":"no such container"}`))
		}
	}))
	dir := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	engine.Listener = listener
	engine.Start()
	defer engine.Close()
	d := newDriver(t, docker.Config{Endpoint: filepath.Join(dir, "s"), Agent: dir, StateDir: dir})
	for _, versions := range [][2]string{{"1.24", "1.41"}, {"1.44", "1.52"}, {"1.24", "1.43"}} {
		say(versions[0], versions[1])
		// The first answer may be that of the old agreement; it says nothing of tasks.
		if _, err := d.Status(t.Context(), "a/main"); err != nil && api.CodeOf(err) != api.CodeUnavailable {
			t.Errorf("at the change to %s: %v", versions[1], err)
		}
		if is := d.Fingerprint(t.Context()); !is.Healthy || is.Version != "engine-"+versions[1] {
			t.Errorf("of %s it says %+v", versions[1], is)
		}
		if _, err := d.Status(t.Context(), "a/main"); err != nil {
			t.Errorf("of %s: %v", versions[1], err)
		}
	}
}

// older reports whether an API version comes before another one.
func older(a, b string) bool {
	var x, y int
	_, _ = fmt.Sscanf(a, "1.%d", &x)
	_, _ = fmt.Sscanf(b, "1.%d", &y)
	return x < y
}
