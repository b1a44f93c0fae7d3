package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/berth-dev/berth/internal/server"
)

// hangup is ctx until a development agent's terminal is closed: it ends then as it
// does with Ctrl-C, and leaves nothing behind. One that is to outlive its
// terminal (nohup) does.
func hangup(ctx context.Context, dev bool) (until context.Context, stop func()) {
	if !dev || signal.Ignored(syscall.SIGHUP) {
		return ctx, func() {}
	}
	return signal.NotifyContext(ctx, syscall.SIGHUP)
}

// reloads tells when the configuration is to be read again. A development agent
// ends with its terminal instead.
func reloads(dev bool) (again <-chan os.Signal, stop func()) {
	if dev {
		return nil, func() {}
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}

// reload reads the configuration again, and takes over what a running process
// can. The configuration that runs is replaced as a whole, and only if the new
// one is without a fault.
func (p *process) reload() {
	next, err := p.read()
	if err != nil {
		p.log.Error("configuration is not reloaded, and nothing has changed", "error", err)
		return
	}
	merged, change := p.cfg.Reload(next)
	p.cfg = merged
	p.level.Set(merged.LogLevel)
	changed := func(block string) bool {
		return slices.ContainsFunc(change.Live, func(field string) bool { return strings.HasPrefix(field, block) })
	}
	if p.serves != nil && changed("server.") {
		p.serves.Reload(p.settings())
	}
	if p.agent != nil && (changed("client.") || changed("driver") || changed("host_volume")) {
		p.allow()
		p.agent.Describe(p.profile(), p.hostVolumes())
	}
	p.log.Info("configuration is reloaded", "changed", change.Live)
	if len(change.Restart) > 0 {
		p.log.Warn("configuration has changes that need a restart", "fields", change.Restart)
	}
}

// settings are those of a server that can change while it runs.
func (p *process) settings() server.Settings {
	return server.Settings{Keep: keep(p.cfg.Server.Keep), Calls: p.calls(), SweepEvery: p.cfg.Server.SweepEvery()}
}
