package hook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/tree"
)

// Sharer makes directories ones on which mounts show in other mount namespaces.
type Sharer interface {
	Share(dir string) error
	Unshare(dir string) error
}

// PluginConfig says where plugins that run as tasks have their directories.
type PluginConfig struct {
	// Sockets is below which every instance gets a directory for its socket.
	// Keep it short: a socket's path may have 107 bytes.
	Sockets string
	// BaseDir is where a plugin's volumes are on this node.
	BaseDir func(id api.PluginID) string
	Sharer  Sharer
	Drivers map[string]driver.Driver
}

// Sockets prepares the directories of tasks that are CSI plugins: one for each
// instance's socket, which goes with the allocation, and one for a plugin's
// volumes, which stays.
type Sockets struct {
	cfg PluginConfig
	mu  sync.Mutex // one at a time looks whether others use a plugin's directory
}

// NewSockets returns the hook.
func NewSockets(cfg PluginConfig) *Sockets { return &Sockets{cfg: cfg} }

// Name implements allocrunner.Hook.
func (*Sockets) Name() string { return "sockets" }

// Up implements allocrunner.Hook.
func (k *Sockets) Up(_ context.Context, s *allocrunner.Step) error {
	a := s.Assignment()
	for task := range plugins(a.Group) {
		if k.cfg.Drivers[task.Driver] == nil {
			continue // the hook of tasks says so
		}
		place := k.place(a.ID, task)
		if err := k.prepare(place, task); err != nil {
			return fmt.Errorf("prepare the directories of plugin %s: %w", task.CSIPlugin.ID, err)
		}
		s.SetPlugin(task.Name, place)
	}
	return nil
}

// place is where an instance has its directories. Its names on the host are
// hashes: there may be few bytes left for them.
func (k *Sockets) place(alloc api.AllocID, task *api.Task) allocrunner.PluginPlace {
	c := task.CSIPlugin
	base := k.cfg.BaseDir(c.ID)
	p := allocrunner.PluginPlace{
		HostSocketDir: filepath.Join(k.instances(c.ID), hash(6, string(alloc), task.Name)), HostBaseDir: base,
		Mounted: ownRoot(k.cfg.Drivers[task.Driver]),
	}
	p.SocketDir, p.BaseDir = p.HostSocketDir, p.HostBaseDir
	if p.Mounted {
		p.SocketDir, p.BaseDir = c.SocketDir(), c.BaseDir()
	}
	return p
}

// instances holds the directories of the sockets of a plugin.
func (k *Sockets) instances(id api.PluginID) string {
	return filepath.Join(k.cfg.Sockets, hash(4, string(id)))
}

func hash(length int, parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(p + "\x00"))
	}
	return hex.EncodeToString(h.Sum(nil)[:length])
}

func (k *Sockets) prepare(p allocrunner.PluginPlace, task *api.Task) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, dir := range []string{p.HostSocketDir, p.HostBaseDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if !p.Mounted || task.CSIPlugin.Type == api.InstanceController {
		return nil
	}
	return k.cfg.Sharer.Share(p.HostBaseDir)
}

// Down implements allocrunner.Hook.
func (k *Sockets) Down(ctx context.Context, s *allocrunner.Step) error {
	a := s.Assignment()
	k.mu.Lock()
	defer k.mu.Unlock()
	for task := range plugins(a.Group) {
		all := k.instances(task.CSIPlugin.ID)
		if err := tree.Remove(ctx, all, hash(6, string(a.ID), task.Name)); err != nil {
			return fmt.Errorf("remove the socket of plugin %s: %w", task.CSIPlugin.ID, err)
		}
		left, err := os.ReadDir(all)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("look for other instances of plugin %s: %w", task.CSIPlugin.ID, err)
		}
		if len(left) > 0 {
			continue
		}
		if err := os.Remove(all); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the sockets of plugin %s: %w", task.CSIPlugin.ID, err)
		}
		// Volumes that are still mounted keep the directory as it is.
		if err := k.cfg.Sharer.Unshare(k.cfg.BaseDir(task.CSIPlugin.ID)); err != nil {
			return fmt.Errorf("clean up after plugin %s: %w", task.CSIPlugin.ID, err)
		}
	}
	return nil
}
