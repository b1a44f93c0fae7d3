package csimanager

import (
	"fmt"
	"time"

	"github.com/berth-dev/berth/api"
)

// unanswered is how an instance is that was not asked yet.
const unanswered = "it has not answered yet"

// judge notes whether a plugin serves the node, and reports whether that has
// turned. Of several instances one that is healthy is enough, and one that has not
// answered yet leaves it as it was. The caller holds mu.
func (m *Manager) judge(id api.PluginID) (turned bool) {
	was, ill := m.ill[id]
	reason, unsure := "this node does not run it any more", false
	var newest *instance
	for key, i := range m.instances {
		s := i.status()
		switch {
		case key.ID != id || !s.ServesNode():
		case s.Healthy:
			delete(m.ill, id)
			return ill
		case s.Reason == unanswered:
			unsure = true
		case newest == nil || i.plugin.Newer(newest.plugin):
			newest, reason = i, s.Reason
		}
	}
	if unsure {
		return false
	}
	p := api.Problem{Step: api.StepPlugin, Message: fmt.Sprintf("plugin %s is not healthy on this node: %s", id, reason), Since: was.Since}
	if !ill {
		p.Since = time.Now().UTC().Round(0)
	}
	m.ill[id] = p
	return !ill
}

// Ill is why a plugin that has served this node does not any more, and since when;
// nil if it does, or has not been asked. What is mounted may work all the same.
func (m *Manager) Ill(id api.PluginID) *api.Problem {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ill := m.ill[id]; ill {
		return &p
	}
	return nil
}

// Ill is why the plugin of volumes does not serve this node any more, or nil.
func (m *Mounter) Ill(id api.PluginID) *api.Problem { return m.manager.Ill(id) }
