package api

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// CSIPlugin makes a task the instance of a CSI plugin: the agent gives it a
// socket to serve, and calls it for volumes.
type CSIPlugin struct {
	// ID is the plugin's, which volumes name. Several jobs may serve one plugin.
	ID PluginID `json:"id"`
	// Type says which services it serves. A driver may be two tasks, one for
	// each.
	Type InstanceType `json:"type"`
	// MountDir is where the task finds the directory of its socket, csi.sock;
	// DefaultPluginMountDir if empty. CSI_ENDPOINT names the socket.
	MountDir string `json:"mount_dir,omitempty"`
	// StagePublishBaseDir is where the task finds the directory below which
	// volumes are staged and published; DefaultPluginBaseDir if empty. On the host
	// it is the plugin's, and outlives its allocations.
	StagePublishBaseDir string `json:"stage_publish_base_dir,omitempty"`
	// HealthTimeout is for how long the instance may not be healthy, from its
	// start or later, before its task is started again as the restart policy
	// says; DefaultPluginHealthTimeout if 0.
	HealthTimeout Duration `json:"health_timeout,omitempty"`
	// AllowUnmounted accepts that the driver publishes a volume without a mount
	// at the target path.
	AllowUnmounted bool `json:"allow_unmounted,omitempty"`
	// Exclusive: the driver cannot be there twice on a node, so that an update
	// stops the older instance before the newer one is started.
	Exclusive bool `json:"exclusive,omitempty"`
}

// What holds for a plugin that does not say.
const (
	DefaultPluginMountDir      = "/csi"
	DefaultPluginBaseDir       = "/local/csi"
	DefaultPluginHealthTimeout = Duration(30 * time.Second)
)

// maxPluginDir bounds the base directory: what is staged below it has a path
// of at most 128 bytes (CSI spec, Size Limits).
const maxPluginDir = 64

// InstanceTypes lists all types, for validation and documentation.
func InstanceTypes() []InstanceType {
	return []InstanceType{InstanceNode, InstanceController, InstanceMonolith}
}

// SocketDir is where the task finds the directory of its socket.
func (c *CSIPlugin) SocketDir() string { return path.Clean(cmp.Or(c.MountDir, DefaultPluginMountDir)) }

// BaseDir is where the task finds the directory of its volumes.
func (c *CSIPlugin) BaseDir() string {
	return path.Clean(cmp.Or(c.StagePublishBaseDir, DefaultPluginBaseDir))
}

// Patience is for how long the instance may not be healthy.
func (c *CSIPlugin) Patience() time.Duration {
	return time.Duration(cmp.Or(c.HealthTimeout, DefaultPluginHealthTimeout))
}

// ServesPlugins reports whether one of the group's tasks is a CSI plugin.
func (g *TaskGroup) ServesPlugins() bool {
	for i := range g.Tasks {
		if g.Tasks[i].CSIPlugin != nil {
			return true
		}
	}
	return false
}

// validatePlugins reports what is wrong with the csi_plugin blocks of a group.
func (g *TaskGroup) validatePlugins(p *Problems, group string, kind JobType) {
	type service struct {
		id   PluginID
		kind InstanceType
	}
	seen := map[service]string{}
	for i := range g.Tasks {
		t := &g.Tasks[i]
		c := t.CSIPlugin
		if c == nil {
			continue
		}
		task := fmt.Sprintf("%s.task[%q]", group, t.Name)
		at := task + ".csi_plugin"
		if kind.Ends() {
			p.Addf(at, "use a job of type system for a node plugin, and of type service for a controller",
				"makes no sense in a %s job, whose tasks end", kind)
		}
		if !t.Main() && !t.Sidecar() {
			p.Add(at, "makes no sense in a task that runs to its end", "remove the task's lifecycle, or set sidecar = true in it")
		}
		c.validate(p, at)
		if t.Driver == "raw_exec" && t.User != "" && !slices.Contains([]string{"root", "0"}, strings.SplitN(t.User, ":", 2)[0]) {
			p.Addf(task+".user", `leave it out, or use the driver exec or docker, which give the task the directories`,
				"is %q, who with driver raw_exec cannot enter the directories of the agent, where the plugin is to listen", t.User)
		}
		for _, m := range t.VolumeMounts {
			for _, dir := range []string{c.SocketDir(), c.BaseDir()} {
				if below(path.Clean(m.Destination), dir) {
					p.Addf(task+".volume_mount", "mount the volume elsewhere", "has the destination %s, which is in the plugin's directory %s", m.Destination, dir)
				}
			}
		}
		is := service{c.ID, c.Type}
		if other, twice := seen[is]; twice {
			p.Addf(at+".id", "give the other plugin an id of its own, or another type",
				"is %q, and task %q of the group serves the same plugin as %s", c.ID, other, c.Type)
		}
		seen[is] = t.Name
	}
}

func (c *CSIPlugin) validate(p *Problems, at string) {
	p.Name(at+".id", string(c.ID))
	oneOf(p, at+".type", c.Type, InstanceTypes()...)
	if c.MountDir != "" {
		p.destination(at+".mount_dir", c.MountDir)
	}
	if c.StagePublishBaseDir != "" {
		p.destination(at+".stage_publish_base_dir", c.StagePublishBaseDir)
	}
	socket, base := c.SocketDir(), c.BaseDir()
	for _, dir := range []struct{ field, path string }{{"mount_dir", socket}, {"stage_publish_base_dir", base}} {
		first, rest, _ := strings.Cut(strings.TrimPrefix(dir.path, "/"), "/")
		switch {
		case slices.Contains([]string{"dev", "proc", "sys"}, first):
			p.Addf(at+"."+dir.field, `give a directory such as "/csi"`, "is %s, and /%s is the kernel's", dir.path, first)
		case rest == "" && slices.Contains(TaskDirs(), first):
			p.Addf(at+"."+dir.field, fmt.Sprintf("give a directory in it, such as \"/%s/csi\"", first), "is %s, and would hide the task's own directory", dir.path)
		}
	}
	switch {
	case below(base, socket):
		p.Addf(at+".stage_publish_base_dir", `give a directory beside it, such as "/local/csi"`,
			"is %s, which is not beside mount_dir %s: the socket's directory ends with the allocation, and volumes stay", base, socket)
	case below(socket, base):
		p.Addf(at+".mount_dir", `give a directory beside it, such as "/csi"`,
			"is %s, which is in stage_publish_base_dir %s: that directory is shared by all instances of the plugin", socket, base)
	}
	if len(base) > maxPluginDir {
		p.Addf(at+".stage_publish_base_dir", "choose a shorter path",
			"is %d bytes long, and CSI drivers need paths below it of no more than 128: it may have %d", len(base), maxPluginDir)
	}
	if c.HealthTimeout < 0 {
		p.Add(at+".health_timeout", "is negative", `give a duration such as "30s"`)
	}
}

// below reports whether a clean path is dir or lies in it.
func below(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}
