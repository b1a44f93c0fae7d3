package hook

import (
	"fmt"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/mount"
)

// HostVolume is a directory of the node that jobs may ask for.
type HostVolume struct {
	Path     string
	ReadOnly bool
}

// Host makes these the node's host volumes, by name: for tasks that are started
// from now on. They are not to be changed afterwards.
func (t *Tasks) Host(volumes map[string]HostVolume) { t.host.Store(&volumes) }

// lacks is why a task cannot be started for want of a volume. At first it needs
// all of its group, and when it is started again only its own: then others may be
// in use that cannot be looked at now.
func (t *Tasks) lacks(s *allocrunner.Step, a *api.AllocAssignment, task *api.Task) error {
	again := s.Tasks()[task.Name].Restarts > 0
	needs := func(name string) bool { return !again || has(t.drivers[task.Driver], task, name) }
	lacking := map[string]error{}
	for name, err := range s.Lacking() {
		if needs(name) {
			lacking[name] = err
		}
	}
	if err := worst(lacking); err != nil {
		return err
	}
	return t.hostVolumes(s, a, needs)
}

// hostVolumes hands on the directories that the group asks for, and looks at
// those that are needed.
func (t *Tasks) hostVolumes(s *allocrunner.Step, a *api.AllocAssignment, needs func(name string) bool) error {
	var volumes map[string]HostVolume
	if v := t.host.Load(); v != nil {
		volumes = *v
	}
	for i := range a.Group.Volumes {
		r := &a.Group.Volumes[i]
		if !r.Host() {
			continue
		}
		host, known := volumes[string(r.Source)]
		if known {
			s.SetMount(r.Name, host.Path)
		}
		if !needs(r.Name) {
			continue
		}
		if !known {
			return &allocrunner.Waiting{Reason: fmt.Sprintf("this node has no host volume %s any more", r.Source)}
		}
		if err := host.look(r); err != nil {
			return err
		}
	}
	return nil
}

// look finds the directory that a group asks for. One that is gone was perhaps
// not mounted yet: it is not made, and waited for.
func (h HostVolume) look(r *api.VolumeRequest) error {
	if h.ReadOnly && !r.ReadOnly {
		return &allocrunner.Fatal{Err: fmt.Errorf("host volume %s is read only on this node, and volume %q is not", r.Source, r.Name)}
	}
	info, err := mount.Stat(h.Path)
	if err != nil {
		return fmt.Errorf("look at host volume %s: %w", r.Source, err)
	}
	if !info.IsDir() {
		return fmt.Errorf("look at host volume %s: %s is no directory", r.Source, h.Path)
	}
	return nil
}
