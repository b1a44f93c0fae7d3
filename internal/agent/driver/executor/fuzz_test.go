package executor_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-dev/berth/internal/agent/driver/executor"
)

// FuzzRecorded: whatever a supervisor that was killed, or another version, left of
// a task, the agent can say how the task is, or that it cannot be read.
func FuzzRecorded(f *testing.F) {
	const state = `{"supervisor":{"pid":4194303,"start":1},"task":{"pid":4194302,"start":2},"started":"2026-01-01T00:00:00Z"}`
	for _, seed := range [][2]string{
		{state, `{"ended":"2026-01-01T00:00:01Z","exit_code":3}`}, {state, ""}, {"", ""}, {"{}", "{}"}, {`{"failure":{"code":"invalid","message":"m"}}`, ""},
		{`{"task":{"pid":-1}}`, "null"}, {state[:40], "{"},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, state, exit []byte) {
		dir := t.TempDir()
		for name, content := range map[string][]byte{"state.json": state, "exit.json": exit} {
			if len(content) == 0 {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		status, err := executor.Recorded(dir)
		switch {
		case err != nil:
		case status.State != executor.StateUnknown && status.State != executor.StateRunning && status.State != executor.StateEnded:
			t.Errorf("the task is %+v", status)
		case status.State != executor.StateUnknown && status.PID == 0:
			t.Errorf("it ran as no process: %+v", status)
		case status.State == executor.StateEnded && len(exit) == 0:
			t.Errorf("it has ended, and nothing says how: %+v", status)
		}
	})
}
