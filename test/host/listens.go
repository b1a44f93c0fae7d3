package host

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
	"time"
)

// listens starts a process, and returns when it listens on a socket: a channel
// that is closed when the process has ended. What it wrote is shown if it ends
// before; nil has nothing.
func listens(tb testing.TB, what string, cmd *exec.Cmd, socket string, output *bytes.Buffer) chan struct{} {
	tb.Helper()
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
		close(exited)
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 3000 {
		if info, err := os.Stat(socket); err == nil && info.Mode().Type() == os.ModeSocket {
			return exited
		}
		select {
		case <-tick.C:
		case <-exited:
			wrote := ""
			if output != nil {
				wrote = output.String()
			}
			tb.Fatalf("%s ended: %s\n%s", what, cmd.ProcessState, wrote)
		}
	}
	tb.Fatalf("%s does not listen", what)
	return nil
}
