package csimanager

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

// lateAfter is how long a plugin may take for a call before people are told. It
// is given up much later: many a driver is slow, and what it does would come to
// its effect all the same.
const lateAfter = 10 * time.Second

// underway are the calls for volumes that have no answer yet, one for each volume
// at most: who makes it has the volume's lock. The zero value is ready.
type underway struct {
	mu      sync.Mutex // guards below
	calls   map[string]*call
	changed chan struct{} // closed and replaced when a call becomes late, or ends that was
}

// call is one call of a plugin.
type call struct {
	step   string
	plugin api.PluginID
	since  time.Time
	late   bool
}

// begin notes a call for the volume of that key. The returned function notes its
// end.
func (u *underway) begin(key string, c call, log *slog.Logger) (end func()) {
	c.since = time.Now().UTC().Round(0)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.calls == nil {
		u.calls = map[string]*call{}
	}
	u.calls[key] = &c
	timer := time.AfterFunc(lateAfter, func() {
		if u.overdue(key, &c) {
			log.Warn("plugin does not answer", "plugin", c.plugin, "method", c.step, "since", c.since)
		}
	})
	return func() {
		timer.Stop()
		if u.over(key, &c) {
			log.Info("call that took long has ended", "plugin", c.plugin, "method", c.step, "since", c.since)
		}
	}
}

// overdue notes that a call is late, and reports whether it is still under way.
func (u *underway) overdue(key string, c *call) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.calls[key] != c {
		return false
	}
	c.late = true
	u.wake()
	return true
}

// over forgets a call, and reports whether it was late.
func (u *underway) over(key string, c *call) (late bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.calls, key)
	if c.late {
		u.wake()
	}
	return c.late
}

// wake wakes who asks for calls that are late. The caller holds mu.
func (u *underway) wake() {
	if u.changed != nil {
		close(u.changed)
		u.changed = nil
	}
}

// late is the call for a volume that has been without an answer for long, or nil,
// with a channel that is closed when that may have changed.
func (u *underway) late(key string) (p *api.Problem, changed <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.changed == nil {
		u.changed = make(chan struct{})
	}
	if c := u.calls[key]; c != nil && c.late {
		p = &api.Problem{Step: c.step, Since: c.since, Message: fmt.Sprintf(
			"plugin %s has not answered since %s; the call is given up after %s, and made again", c.plugin, c.since.Format(time.TimeOnly+" MST"), callTimeout)}
	}
	return p, u.changed
}

// Late says which call for an attachment's volume its plugin has not answered for
// long, or nil: the attachment's own, or that of another which it waits for. The
// channel is closed when that may have changed.
func (m *Mounter) Late(a *api.AttachmentAssignment) (p *api.Problem, changed <-chan struct{}) {
	return m.underway.late(localdb.StagingKey(a.Attachment.Namespace, a.Attachment.VolumeID))
}

// call makes a call of a plugin for a volume.
func (m *Mounter) call(ctx context.Context, s *localdb.Staging, step string, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	defer m.underway.begin(s.Key(), call{step: step, plugin: s.PluginID}, m.log)()
	return do(ctx)
}
