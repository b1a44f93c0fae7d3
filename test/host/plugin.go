package host

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Plugin is the local driver as a process of its own, which can be killed
// without the agent.
type Plugin struct {
	tb testing.TB
	// Root holds its volumes, and Socket is where it listens.
	Root, Socket string
	// Boot is where it runs when it is started the next time.
	Boot *Boot

	cmd    *exec.Cmd
	exited chan struct{}
}

// StartPlugin starts the driver. It ends with the test.
func StartPlugin(tb testing.TB, boot *Boot) *Plugin {
	tb.Helper()
	before := look(tb)
	dir, err := os.MkdirTemp("/tmp", "plugin")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Plugin{tb: tb, Root: filepath.Join(dir, "volumes"), Socket: filepath.Join(dir, "csi.sock"), Boot: boot}
	p.Start()
	tb.Cleanup(func() {
		p.end(syscall.SIGTERM)
		before.compare(tb, dir)
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	return p
}

// Start starts the process, and returns when it listens.
func (p *Plugin) Start() {
	p.tb.Helper()
	if err := os.Remove(p.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		p.tb.Fatal(err)
	}
	p.cmd = p.Boot.enter(Binary(p.tb), "plugin", "local",
		"--root", p.Root, "--endpoint", "unix://"+p.Socket, "--node-id", "machine", "--log-level", "warn")
	p.cmd.Stderr = os.Stderr
	p.exited = listens(p.tb, "the plugin", p.cmd, p.Socket, nil)
}

// Kill kills the process with SIGKILL.
func (p *Plugin) Kill() { p.end(syscall.SIGKILL) }

func (p *Plugin) end(sig syscall.Signal) {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.tb.Error(err)
	}
	<-p.exited
}
