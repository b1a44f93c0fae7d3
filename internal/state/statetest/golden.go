package statetest

import (
	"flag"
	"os"
	"path/filepath"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files of the tests that run")

// Updating reports whether golden files are to be rewritten: -update.
func Updating() bool { return *update }

// Golden compares text with a golden file, or rewrites the file under -update.
func Golden(tb TB, file, got string) {
	tb.Helper()
	if Updating() {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			tb.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		tb.Fatalf("read golden file (make it with -update, and read it): %v", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		tb.Errorf("%s differs (-want +got):\n%s", file, diff)
	}
}
