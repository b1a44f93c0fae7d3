package telemetry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/internal/telemetry"
)

// TestLogInJSON: every line is one object, whatever is logged, with the keys
// that a collector looks for.
func TestLogInJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := telemetry.NewLogger(&out, "debug", "json").With("node", "n1")
	log.Debug("volume staged", "volume", "default/pg", "took", 1500*time.Millisecond)
	log.Error("two\nlines", "error", errors.New("a \"quote\"\nand \x1b[31mred"), "list", []string{"a", "b"})
	log.Info("not UTF-8", slog.Group("plugin", "id", "\xff"), "nothing", nil)
	var got []map[string]any
	for line := range strings.Lines(out.String()) {
		var one map[string]any
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%q is no JSON: %v", line, err)
		}
		if _, err := time.Parse(time.RFC3339Nano, fmt.Sprint(one["time"])); err != nil {
			t.Errorf("time of %q: %v", line, err)
		}
		delete(one, "time")
		got = append(got, one)
	}
	want := []map[string]any{
		{"level": "DEBUG", "msg": "volume staged", "node": "n1", "volume": "default/pg", "took": 1.5e9},
		{"level": "ERROR", "msg": "two\nlines", "node": "n1", "error": "a \"quote\"\nand \x1b[31mred", "list": []any{"a", "b"}},
		{"level": "INFO", "msg": "not UTF-8", "node": "n1", "plugin": map[string]any{"id": "\ufffd"}, "nothing": nil},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLogInText is one line for each, also of what has several.
func TestLogInText(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	telemetry.NewLogger(&out, "info", "text").Info("two\nlines", "error", errors.New("a\nb"))
	_, rest, _ := strings.Cut(out.String(), " ")
	if want := "level=INFO msg=\"two\\nlines\" error=\"a\\nb\"\n"; rest != want {
		t.Errorf("got %q, want %q", rest, want)
	}
}

// TestLevels: a logger follows its level, and what is unknown is info.
func TestLevels(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer
		level := telemetry.NewLevel("warn")
		log := telemetry.NewLeveledLogger(&out, level, format).With("a", 1)
		for _, at := range []string{"warn", "debug", "nonsense", "error"} {
			level.Set(at)
			log.Debug("line", "which", at+"-d")
			log.Info("line", "which", at+"-i")
			log.Warn("line", "which", at+"-w")
			log.Error("line", "which", at+"-e")
		}
		var got []string
		for _, want := range []string{"warn-", "debug-", "nonsense-", "error-"} {
			for _, level := range []string{"d", "i", "w", "e"} {
				if strings.Contains(out.String(), want+level) {
					got = append(got, want+level)
				}
			}
		}
		want := []string{"warn-w", "warn-e", "debug-d", "debug-i", "debug-w", "debug-e", "nonsense-i", "nonsense-w", "nonsense-e", "error-e"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", format, diff)
		}
	}
}
