package tracing_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/feed"
	"github.com/berth-dev/berth/internal/server/tracing"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// TestACollectorThatDoesNotAnswerHoldsNothingUp: more is made than is kept for a
// collector, and what happens is followed all the same; so is the wish to end.
func TestACollectorThatDoesNotAnswerHoldsNothingUp(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(slow.Close)
	t.Cleanup(func() { close(over) })
	const away = "http://127.0.0.1:1" // nobody listens there
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	t.Cleanup(refuses.Close)
	for name, url := range map[string]string{"Slow": slow.URL, "Away": away, "Full": refuses.URL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exporter, err := tracing.Collector(t.Context(), url+"/v1/traces")
			if err != nil {
				t.Fatal(err)
			}
			store, events := statetest.Load(t, published), feed.New()
			store.Observe(events)
			tracer := tracing.New(exporter, "s1", "test", slog.New(slog.DiscardHandler))
			const commits = 400 // of nine spans each; 2048 are kept
			var seen atomic.Int64
			followed, ended := make(chan struct{}), make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				ended <- tracer.Follow(ctx, events, func() state.View {
					if seen.Add(1) == commits {
						close(followed)
					}
					return store.View()
				})
			}()
			for index := uint64(100); !closed(followed); index++ {
				tx := store.Begin(index, statetest.Now())
				a := *tx.Allocation("a1")
				runs(&a, nil)
				tx.PutAllocation(&a)
				tx.Commit()
				runtime.Gosched()
			}
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Follow: %v", err)
			}
			bounded, stop := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer stop()
			if err := tracer.Close(bounded); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
