package allocrunner

import "path/filepath"

// PluginPlace is where a task that is a CSI plugin has its directories: on the
// host, and as the task finds them. Without a root file system of its own it
// finds them where they are.
type PluginPlace struct {
	// HostSocketDir and SocketDir hold the driver's socket.
	HostSocketDir, SocketDir string
	// HostBaseDir and BaseDir are where volumes are staged and published.
	HostBaseDir, BaseDir string
	// Mounted: the task has a root file system of its own, into which they are
	// mounted.
	Mounted bool
}

// socketName is what drivers are told to call their socket.
const socketName = "csi.sock"

// HostSocket is the driver's socket on the host.
func (p PluginPlace) HostSocket() string { return filepath.Join(p.HostSocketDir, socketName) }

// Endpoint is the driver's socket as the task knows it, CSI_ENDPOINT.
func (p PluginPlace) Endpoint() string { return "unix://" + filepath.Join(p.SocketDir, socketName) }

// SetPlugin hands on where a task that is a plugin has its directories.
func (s *Step) SetPlugin(task string, p PluginPlace) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plugins[task] = p
}

// Plugin is where it has them; ok is false for a task that is no plugin.
func (s *Step) Plugin(task string) (p PluginPlace, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok = s.plugins[task]
	return p, ok
}

// failing is a run of a task that is to end, because it is of no use.
type failing struct {
	run    int
	reason string
}

// SetFailing says that a run of a task has failed although it still runs: it is
// to be stopped, and what follows is what its restart policy says.
func (s *Step) SetFailing(task string, run int, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing[task] = failing{run, reason}
}

// Failing is why a run of a task has failed, or "".
func (s *Step) Failing(task string, run int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.failing[task]; f.run == run {
		return f.reason
	}
	return ""
}
