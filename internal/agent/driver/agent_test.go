package driver_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"github.com/berth-dev/berth/internal/agent/driver"
)

// errand is what a killable agent is to do.
type errand struct {
	Config driver.Config
	Raw    bool
	Calls  []string
	Spec   driver.Spec
}

// agent starts a process that does the errand, says so, and waits to be killed.
func (w *world) agent(e errand) *exec.Cmd {
	w.t.Helper()
	e.Config = w.config
	b, err := json.Marshal(e)
	if err != nil {
		w.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	return exec.Command(self, "agent", string(b))
}

// playAgent does the errand and says how it went.
func playAgent(text string) string {
	var e errand
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return err.Error()
	}
	var d driver.Driver
	d, err := driver.NewExec(e.Config, slog.New(slog.DiscardHandler))
	if e.Raw {
		d, err = driver.NewRawExec(e.Config, slog.New(slog.DiscardHandler))
	}
	for _, call := range e.Calls {
		switch {
		case err != nil:
		case call == "start":
			err = d.Start(context.Background(), e.Spec)
		case call == "stop":
			err = d.Stop(context.Background(), e.Spec.ID, "SIGTERM", time.Second)
		case call == "destroy":
			err = d.Destroy(context.Background(), e.Spec.ID)
		}
	}
	if err != nil {
		return err.Error()
	}
	return "done"
}
