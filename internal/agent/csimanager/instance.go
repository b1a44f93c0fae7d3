package csimanager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
	"github.com/berth-dev/berth/internal/agent/dynamicplugins"
	"github.com/berth-dev/berth/internal/supervise"
)

// How often a plugin is looked at. One that is not healthy is looked at sooner.
const (
	fingerprintInterval = 30 * time.Second
	fingerprintTimeout  = 30 * time.Second
	firstRetry          = 50 * time.Millisecond
	lastRetry           = 5 * time.Second
	// drainLimit is how long the calls of an instance that ends may take.
	drainLimit = 30 * time.Second
)

// instance is one driver on this node, as its fingerprint shows it.
type instance struct {
	ctx     context.Context //nolint:containedctx // it is the instance's life
	stop    context.CancelFunc
	managed context.Context //nolint:containedctx // it is the manager's life
	plugin  *dynamicplugins.Plugin
	manager *Manager
	base    *csi.Client

	mu    sync.Mutex // guards below
	last  api.InstanceStatus
	speak *csi.Client // base, knowing the driver's capabilities
}

func newInstance(managed context.Context, p *dynamicplugins.Plugin, m *Manager) *instance {
	ctx, stop := context.WithCancel(managed)
	base := csi.New(p.Dial, csi.Config{Called: m.measure(p.ID)}, m.log.With("plugin", p.ID))
	return &instance{
		ctx: ctx, stop: stop, managed: managed, plugin: p, manager: m, base: base, speak: base,
		last: api.InstanceStatus{Type: p.Type, Reason: unanswered},
	}
}

// believe takes over what the plugin told to an earlier agent. It is not
// healthy until it has answered this one.
func (i *instance) believe(s api.InstanceStatus) {
	s.Healthy, s.Reason = false, i.last.Reason
	i.last = s
}

// run fingerprints the driver until the instance ends.
func (i *instance) run() {
	defer i.end()
	pause := firstRetry
	for {
		s := i.fingerprint()
		if i.ctx.Err() != nil {
			return
		}
		i.note(s)
		if s.Healthy {
			pause = firstRetry
			if !supervise.Sleep(i.ctx, fingerprintInterval) {
				return
			}
			continue
		}
		if !supervise.Sleep(i.ctx, pause) {
			return
		}
		pause = min(2*pause, lastRetry)
	}
}

// end has nobody find the instance any more, and lets the calls end that are on
// their way, as long as the manager goes on.
func (i *instance) end() {
	i.manager.gone(i)
	ctx, cancel := context.WithTimeout(i.managed, drainLimit)
	defer cancel()
	i.base.Drain(ctx)
	_ = i.base.Close() // an ended instance has no use for the error
	i.manager.drained(i)
}

// note keeps a fingerprint. What an unhealthy driver does not tell any more is
// still believed: its capabilities do not go away with its health.
func (i *instance) note(s api.InstanceStatus) {
	i.mu.Lock()
	if !s.Healthy && i.last.Driver != "" {
		kept := i.last
		kept.Healthy, kept.Reason = false, s.Reason
		s = kept
	}
	changed := !same(&i.last, &s)
	health := i.last.Healthy != s.Healthy || i.last.Reason != s.Reason
	i.last = s
	i.speak = i.base.WithCapabilities(s.ControllerCapabilities, s.NodeCapabilities)
	i.mu.Unlock()
	if health {
		i.manager.log.Info("plugin health changed", "plugin", i.plugin.ID, "type", i.plugin.Type, "healthy", s.Healthy, "reason", s.Reason)
	}
	turned := changed && i.manager.fingerprinted(i, s)
	if (turned || health && s.Healthy) && i.manager.turned != nil {
		i.manager.turned(i.plugin.ID)
	}
}

func same(a, b *api.InstanceStatus) bool { return fmt.Sprintf("%+v", *a) == fmt.Sprintf("%+v", *b) }

func (i *instance) status() api.InstanceStatus {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.last
}

// sees is a path on the host as the driver knows it.
func (i *instance) sees(path string) string {
	if rest, in := strings.CutPrefix(path, i.plugin.HostDir+"/"); in && i.plugin.HostDir != "" {
		return i.plugin.Dir + "/" + rest
	}
	return path
}

func (i *instance) client() *csi.Client {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.speak
}

// fingerprint asks the driver who it is and what it can (CSI spec, Plugin
// Lifecycle).
func (i *instance) fingerprint() api.InstanceStatus {
	ctx, cancel := context.WithTimeout(i.ctx, fingerprintTimeout)
	defer cancel()
	s := api.InstanceStatus{Type: i.plugin.Type}
	if err := i.ask(ctx, &s); err != nil {
		s.Reason = err.Error()
		return s
	}
	s.Healthy = true
	return s
}

func (i *instance) ask(ctx context.Context, s *api.InstanceStatus) error {
	if i.plugin.Withdrawn != "" {
		return errors.New(i.plugin.Withdrawn)
	}
	ready, err := i.base.Probe(ctx)
	if err != nil {
		return err
	}
	if !ready {
		return errors.New("it is still starting")
	}
	info, err := i.base.Info(ctx)
	if err != nil {
		return err
	}
	if err := i.manager.stranger(i, info.Name); err != nil {
		return err
	}
	s.Driver, s.VendorVersion = info.Name, info.VendorVersion
	if s.PluginCapabilities, err = i.base.PluginCapabilities(ctx); err != nil {
		return err
	}
	if s.ServesController() {
		if s.ControllerCapabilities, err = i.base.ControllerCapabilities(ctx); err != nil {
			return err
		}
	}
	if !s.ServesNode() {
		return nil
	}
	if s.NodeCapabilities, err = i.base.NodeCapabilities(ctx); err != nil {
		return err
	}
	return i.askNode(ctx, s)
}

// askNode asks for the node's name at the provider. Only drivers that attach
// volumes or know topologies must tell (CSI spec, NodeGetInfo).
func (i *instance) askNode(ctx context.Context, s *api.InstanceStatus) error {
	node, err := i.base.NodeInfo(ctx)
	if err != nil {
		needed := s.Can(api.CapPublishUnpublish) || slices.Contains(s.PluginCapabilities, api.CapAccessibility)
		if csi.CodeOf(err) == csi.CodeUnimplemented && !needed {
			return nil
		}
		return err
	}
	s.ExternalNodeID, s.MaxVolumes, s.Topology = node.ID, node.MaxVolumes, node.Topology
	return nil
}
