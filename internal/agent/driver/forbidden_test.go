package driver_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
)

// TestOperatorForbids: a driver that the operator has disabled says so, and
// starts nothing; privileged tasks can be forbidden alone.
func TestOperatorForbids(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	task := api.Task{Name: "t", Config: map[string]any{"command": "/bin/true"}}
	cfg := driver.Config{RunDir: t.TempDir(), Disabled: true}
	exec, err := driver.NewExec(cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := driver.NewRawExec(cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []driver.Driver{exec, raw} {
		const says = "has disabled it"
		if is := d.Fingerprint(t.Context()); is.Healthy || !strings.Contains(is.Reason, says) {
			t.Errorf("%s is %+v", d.Name(), is)
		}
		if err := d.Check(task); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s checks: %v", d.Name(), err)
		}
		if err := d.Start(t.Context(), driver.Spec{ID: "a/t", Task: task, Dir: t.TempDir()}); api.CodeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), says) {
			t.Errorf("%s starts: %v", d.Name(), err)
		}
	}
	if exec, err = driver.NewExec(driver.Config{RunDir: t.TempDir(), DenyPrivileged: true}, log); err != nil {
		t.Fatal(err)
	}
	if err := exec.Check(task); err != nil {
		t.Errorf("a task without privileges: %v", err)
	}
	task.Config["privileged"] = true
	if err := exec.Check(task); err == nil || !strings.Contains(err.Error(), "config.privileged is true") {
		t.Errorf("a privileged task: %v", err)
	}
	exec.Allow(driver.Config{})
	if err := exec.Check(task); err != nil {
		t.Errorf("a privileged task when the operator has changed that: %v", err)
	}
	exec.Allow(driver.Config{Disabled: true})
	if is := exec.Fingerprint(t.Context()); is.Healthy {
		t.Errorf("the driver when the operator has disabled it is %+v", is)
	}
}
