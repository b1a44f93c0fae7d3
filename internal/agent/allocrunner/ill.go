package allocrunner

import (
	"cmp"
	"maps"
	"slices"

	"github.com/berth-dev/berth/api"
)

// SetIll says how a plugin is of which the allocation has a mounted volume: p is
// why it is not healthy, nil if it is. That it turned is told to people once, and
// why it is not is the allocation's problem: its volume works, perhaps, and nothing
// can be done with it.
func (s *Step) SetIll(plugin api.PluginID, p *api.Problem) {
	s.mu.Lock()
	_, was := s.ill[plugin]
	said := ""
	switch {
	case p != nil:
		s.ill[plugin] = *p
		if !was {
			said = p.Message
		}
	case was:
		delete(s.ill, plugin)
		said = "plugin " + string(plugin) + " is healthy again"
	}
	s.mu.Unlock()
	if said != "" {
		s.Say("", said)
	}
}

// Ill is why a plugin of the allocation's volumes is not healthy, nil if all are:
// of several, the one that is first by name.
func (s *Step) Ill() *api.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return first(s.ill)
}

// first is the problem of what is first by name, nil if there is none.
func first[K cmp.Ordered](problems map[K]api.Problem) *api.Problem {
	for _, name := range slices.Sorted(maps.Keys(problems)) {
		p := problems[name]
		return &p
	}
	return nil
}

// SetLate says which call for a volume, by the request's name, its plugin does not
// answer, nil if it answered or was given up. It is the allocation's problem at
// once: a hook that waits for it says nothing else.
func (s *Step) SetLate(name string, p *api.Problem) {
	s.mu.Lock()
	was, late := s.late[name]
	said := ""
	switch {
	case p != nil:
		s.late[name] = *p
		if !late || was.Step != p.Step || !was.Since.Equal(p.Since) {
			said = p.Step + ": " + p.Message
		}
	case late:
		delete(s.late, name)
		said = was.Step + " is not waited for any more"
	}
	s.mu.Unlock()
	if said != "" {
		s.Say("", said)
	}
}

// Late is the call that is not answered, nil if there is none: of several, that of
// the volume whose request is first by name.
func (s *Step) Late() *api.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return first(s.late)
}
