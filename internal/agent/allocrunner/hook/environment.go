package hook

import (
	"context"
	"maps"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/driver"
)

// spec is what the driver needs to run a task. An error is the job's.
func (t *Tasks) spec(ctx context.Context, s *allocrunner.Step, a *api.AllocAssignment, task api.Task) (driver.Spec, error) {
	mounts := s.Mounts()
	place, plugin := s.Plugin(task.Name)
	env := t.environment(a, &task, s.Dir, mounts, place)
	made, err := t.make(ctx, s, a, &task, env)
	if err != nil {
		return driver.Spec{}, err
	}
	task.Config = t.expandConfig(task.Config, env)
	spec := driver.Spec{Task: task, Dir: TaskDir(s.Dir, task.Name), AllocDir: AllocDir(s.Dir), Files: files(made), Env: env}
	for _, p := range a.Allocation.Ports {
		spec.Ports = append(spec.Ports, driver.Port{Name: p.Name, Number: p.Number, To: a.Group.PortTo(p.Name)})
	}
	for _, m := range task.VolumeMounts {
		readOnly, group := m.ReadOnly, 0
		for i := range a.Attachments {
			if at := &a.Attachments[i].Attachment; at.Name == m.Volume {
				readOnly, group = readOnly || !at.Writes(), at.FSGroup
			}
		}
		host := false
		for i := range a.Group.Volumes {
			if r := &a.Group.Volumes[i]; r.Name == m.Volume && r.Host() {
				host, readOnly = true, readOnly || r.ReadOnly
			}
		}
		spec.Mounts = append(spec.Mounts, driver.Mount{
			Source: mounts[m.Volume], Destination: m.Destination, ReadOnly: readOnly, Propagation: propagation(m.PropagationMode), Kept: host, Group: group,
		})
	}
	if plugin && place.Mounted {
		spec.Mounts = append(spec.Mounts, pluginMounts(task.CSIPlugin, place)...)
	}
	return spec, nil
}

// pluginMounts are the directories of a task that is a plugin. What it mounts
// below its base directory shows on the host, and the other way round.
func pluginMounts(c *api.CSIPlugin, place allocrunner.PluginPlace) []driver.Mount {
	mounts := []driver.Mount{{Source: place.HostSocketDir, Destination: place.SocketDir, Trusted: true}}
	if c.Type != api.InstanceController {
		mounts = append(mounts, driver.Mount{
			Source: place.HostBaseDir, Destination: place.BaseDir, Trusted: true, Propagation: driver.PropagationBidirectional,
		})
	}
	return mounts
}

// environment is what a task finds: who it is, where its volumes are, and the
// job's own variables, which may refer to the others.
func (t *Tasks) environment(a *api.AllocAssignment, task *api.Task, allocDir string, mounts map[string]string, place allocrunner.PluginPlace) map[string]string {
	alloc, node := a.Allocation, t.node()
	env := map[string]string{
		"BERTH_ALLOC_ID":    string(alloc.ID),
		"BERTH_ALLOC_NAME":  alloc.Name(),
		"BERTH_ALLOC_INDEX": strconv.Itoa(alloc.Index),
		"BERTH_GROUP_NAME":  alloc.Group,
		"BERTH_JOB_ID":      string(alloc.JobID),
		"BERTH_NAMESPACE":   string(alloc.Namespace),
		"BERTH_NODE_ID":     string(node.ID),
		"BERTH_NODE_NAME":   node.Name,
		"BERTH_TASK_NAME":   task.Name,
	}
	for _, m := range task.VolumeMounts {
		env["BERTH_VOLUME_"+m.Volume] = m.Destination
	}
	for name, path := range mounts {
		if _, mounted := env["BERTH_VOLUME_"+name]; !mounted {
			env["BERTH_VOLUME_"+name] = path
		}
	}
	for _, p := range alloc.Ports {
		number := strconv.Itoa(p.Number)
		env["BERTH_PORT_"+p.Name] = number
		if address := node.Status.Profile.Address; address != "" {
			env["BERTH_IP_"+p.Name] = address
			env["BERTH_ADDR_"+p.Name] = net.JoinHostPort(address, number)
		}
	}
	if r := task.Resources; r != nil {
		env["BERTH_CPU"] = strconv.Itoa(r.CPU)
		env["BERTH_MEMORY"] = strconv.FormatInt(r.Limit()>>20, 10)
	}
	for _, meta := range []map[string]string{a.Meta, a.Group.Meta, task.Meta} {
		for k, v := range meta {
			env["BERTH_META_"+k] = v
		}
	}
	if task.CSIPlugin != nil {
		env["CSI_ENDPOINT"] = place.Endpoint()
		env["BERTH_CSI_DIR"] = place.BaseDir
	}
	root := "/"
	if at, ok := t.drivers[task.Driver].(driver.OnHost); ok {
		root = at.Root(TaskDir(allocDir, task.Name))
	}
	env["BERTH_TASK_DIR"], env["BERTH_SECRETS_DIR"] = filepath.Join(root, "local"), filepath.Join(root, "secrets")
	env["BERTH_ALLOC_DIR"] = "/alloc"
	if root != "/" {
		env["BERTH_ALLOC_DIR"] = AllocDir(allocDir)
	}
	addAliases(env)
	known := maps.Clone(env)
	for _, k := range slices.Sorted(maps.Keys(task.Env)) {
		env[k] = t.expand(task.Env[k], known)
	}
	return env
}

// addAliases adds the names that published job files use.
func addAliases(env map[string]string) {
	named := map[string]string{
		"ALLOC_ID": "ALLOC_ID", "ALLOC_NAME": "ALLOC_NAME", "ALLOC_INDEX": "ALLOC_INDEX", "GROUP_NAME": "GROUP_NAME",
		"JOB_ID": "JOB_ID", "JOB_NAME": "JOB_ID", "NAMESPACE": "NAMESPACE", "TASK_NAME": "TASK_NAME",
		"TASK_DIR": "TASK_DIR", "SECRETS_DIR": "SECRETS_DIR", "ALLOC_DIR": "ALLOC_DIR", "CPU_LIMIT": "CPU", "MEMORY_LIMIT": "MEMORY",
	}
	for theirs, ours := range named {
		if v, ok := env["BERTH_"+ours]; ok {
			env["NOMAD_"+theirs] = v
		}
	}
	if id := env["BERTH_ALLOC_ID"]; len(id) >= 8 {
		env["NOMAD_SHORT_ALLOC_ID"] = id[:8]
	}
	for _, k := range slices.Collect(maps.Keys(env)) {
		for _, prefix := range []string{"PORT_", "IP_", "ADDR_"} {
			if name, found := strings.CutPrefix(k, "BERTH_"+prefix); found {
				env["NOMAD_"+prefix+name], env["NOMAD_HOST_"+prefix+name] = env[k], env[k]
			}
		}
		if name, found := strings.CutPrefix(k, "BERTH_META_"); found {
			env["NOMAD_META_"+name] = env[k]
		}
	}
}

// propagation is what the driver calls it.
func propagation(m api.PropagationMode) driver.Propagation {
	switch m {
	case api.PropagateHostToTask:
		return driver.PropagationHostToTask
	case api.PropagateBidirectional:
		return driver.PropagationBidirectional
	case api.PropagatePrivate, "":
	}
	return driver.PropagationPrivate
}

var reference = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_.-]*)\}`)

// expand replaces ${NAME} by the variable of that name, and ${attr.name} and the
// like by what the node has. What is neither stays as it is: it may be meant
// for the task's shell.
func (t *Tasks) expand(s string, env map[string]string) string {
	return reference.ReplaceAllStringFunc(s, func(ref string) string { return t.value(ref, env) })
}

// value is what a ${...} is replaced by.
func (t *Tasks) value(ref string, env map[string]string) string {
	if v, ok := env[ref[2:len(ref)-1]]; ok {
		return v
	}
	if v, ok := t.node().Lookup(ref); ok {
		return v
	}
	return ref
}

// expandConfig expands every string of a driver's config.
func (t *Tasks) expandConfig(config map[string]any, env map[string]string) map[string]any {
	out := make(map[string]any, len(config))
	for k, v := range config {
		out[k] = t.expandValue(v, env)
	}
	return out
}

func (t *Tasks) expandValue(v any, env map[string]string) any {
	switch v := v.(type) {
	case string:
		return t.expand(v, env)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = t.expandValue(e, env)
		}
		return out
	case map[string]any:
		return t.expandConfig(v, env)
	}
	return v
}
