package driver_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-dev/berth/internal/agent/driver"
)

func start(t testing.TB, d driver.Driver, spec driver.Spec) {
	t.Helper()
	if err := d.Start(ctx(t), spec); err != nil {
		t.Fatalf("start: %v", err)
	}
}

func status(t testing.TB, d driver.Driver, spec driver.Spec) driver.Status {
	t.Helper()
	s, err := d.Status(ctx(t), spec.ID)
	if err != nil {
		t.Fatalf("status: %v", err)
	}
	return s
}

func wait(t testing.TB, d driver.Driver, spec driver.Spec) driver.Status {
	t.Helper()
	s, err := d.Wait(ctx(t), spec.ID)
	if err != nil {
		t.Fatalf("wait: %v", err)
	}
	return s
}

// run runs a task to its end and returns what it said.
func run(t testing.TB, d driver.Driver, spec driver.Spec) (stdout, stderr string, s driver.Status) {
	t.Helper()
	start(t, d, spec)
	s = wait(t, d, spec)
	return output(t, spec, "stdout"), output(t, spec, "stderr"), s
}

func output(t testing.TB, spec driver.Spec, stream string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(spec.Dir, "logs", spec.Task.Name+"."+stream+".log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// said waits until the task has said a line.
func said(t testing.TB, spec driver.Spec, line string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the task says %q", line), func() bool {
		b, err := os.ReadFile(filepath.Join(spec.Dir, "logs", spec.Task.Name+".stdout.log"))
		return err == nil && slices.Contains(strings.Split(string(b), "\n"), line)
	})
}
