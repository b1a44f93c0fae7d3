package telemetry_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/internal/telemetry"
)

// shown are the lines of a registry that begin with berth_test.
func shown(t *testing.T, r *telemetry.Registry) []string {
	t.Helper()
	w := httptest.NewRecorder()
	r.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	var found []string
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "berth_test") && !strings.Contains(line, "_bucket") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	r := telemetry.NewRegistry("1.2.3")
	counted := telemetry.Metric{Name: "berth_test_total", Kind: telemetry.Counter, Labels: []string{"of"}, Help: "Things"}
	r.Read(counted, func(emit telemetry.Emit) { emit(1, "old") })
	r.Read(counted, func(emit telemetry.Emit) { emit(2, "a"); emit(3, "b") })
	for range 2 {
		r.Durations("berth_test_seconds", "How long", "of").Observe(1500*time.Millisecond, "a")
		r.Sizes("berth_test_sizes", "How many").Observe(7)
	}
	want := []string{
		`berth_test_seconds_sum{of="a"} 3`, `berth_test_seconds_count{of="a"} 2`,
		"berth_test_sizes_sum 14", "berth_test_sizes_count 2",
		`berth_test_total{of="a"} 2`, `berth_test_total{of="b"} 3`,
	}
	if diff := cmp.Diff(want, shown(t, r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	const page = "| name | kind | labels | what it is |\n|---|---|---|---|\n" +
		"| `berth_build_info` | gauge | version | Always 1, with the program's version |\n" +
		"| `berth_test_seconds` | histogram | of | How long |\n" +
		"| `berth_test_sizes` | histogram |  | How many |\n" +
		"| `berth_test_total` | counter | of | Things |\n"
	if diff := cmp.Diff(page, r.Page()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestNothingIsMeasured where there is no registry, and nothing fails.
func TestNothingIsMeasured(t *testing.T) {
	t.Parallel()
	var r *telemetry.Registry
	r.Read(telemetry.Metric{Name: "berth_test_total"}, func(telemetry.Emit) { t.Error("it was read") })
	r.Durations("berth_test_seconds", "How long").Observe(time.Second)
	r.Sizes("berth_test_sizes", "How many").Observe(7)
}
