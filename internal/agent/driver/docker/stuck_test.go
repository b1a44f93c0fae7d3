package docker_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berth-dev/berth/internal/agent/driver/docker"
)

// fakeEngine answers at a socket as an engine of API 1.43 does, what answer says.
func fakeEngine(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) (dir, socket string) {
	t.Helper()
	engine := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Api-Version", "1.43")
		if strings.HasSuffix(r.URL.Path, "/_ping") {
			_, _ = w.Write([]byte("OK"))
			return
		}
		answer(w, r)
	}))
	dir = t.TempDir()
	socket = filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	engine.Listener = listener
	engine.Start()
	t.Cleanup(engine.Close)
	return dir, socket
}

// TestACommandThatIsStuck is not waited for when it was killed. It is remembered,
// counts among the commands of its container, and is forgotten when it has ended.
func TestACommandThatIsStuck(t *testing.T) {
	t.Parallel()
	var ended atomic.Bool
	asked := make(chan struct{}, 1)
	dir, socket := fakeEngine(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/exec/e1/json" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if ended.Load() {
			_, _ = w.Write([]byte(`{"ID":"e1","Running":false,"ExitCode":137}`))
			return
		}
		_, _ = w.Write([]byte(`{"ID":"e1","Running":true,"Pid":0}`))
		select {
		case asked <- struct{}{}:
		default:
		}
	})
	d, err := docker.New(docker.Config{Endpoint: socket, Agent: dir, StateDir: dir}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gaveUp := errors.New("given up")
	go func() {
		<-asked
		cancel(gaveUp)
	}()
	if err := d.AwaitVisit(ctx, "c1", "e1"); !errors.Is(err, gaveUp) {
		t.Errorf("it answers %v", err)
	}
	recorded := func() int {
		files, _ := filepath.Glob(filepath.Join(dir, "visits", "*")) // the pattern is one
		return len(files)
	}
	d.EndStrays(t.Context())
	if recorded() != 1 || d.Visits("c1") != 1 {
		t.Errorf("of a command that is stuck there are %d records, and %d count", recorded(), d.Visits("c1"))
	}
	ended.Store(true)
	d.EndStrays(t.Context())
	if recorded() != 0 || d.Visits("c1") != 0 {
		t.Errorf("of one that has ended there are %d records, and %d count", recorded(), d.Visits("c1"))
	}
}
