package suggest_test

import (
	"strings"
	"testing"

	"github.com/berth-dev/berth/internal/suggest"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"volume", "job", "node", "plugin_id", "status", "notes-2"}
	for word, want := range map[string]string{
		"volum":                 "volume",
		"Volume":                "volume",
		"pluginid":              "plugin_id",
		"plugin-id":             "plugin_id",
		"staus":                 "status",
		"sattus":                "status",
		"notes_2":               "notes-2",
		"ndoe":                  "node",
		"frobnicate":            "",
		"x":                     "",
		"":                      "",
		strings.Repeat("v", 99): "",
	} {
		if got := suggest.Nearest(word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
