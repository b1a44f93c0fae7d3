package spec

import (
	"time"

	"github.com/berth-dev/berth/api"
)

var restartTable = &table[api.RestartPolicy]{
	doc: "How often a task that ended, and should not have, is started again where it is: in the same allocation, on the same node, with its volumes. " +
		"A batch should end with success; a service should not end at all.",
	fields: []field[api.RestartPolicy]{
		integer("attempts", "How often within interval; 0 for never.", func(r *api.RestartPolicy) *int {
			r.Attempts = new(int)
			return r.Attempts
		}).standing("2, in batch and sysbatch jobs 3"),
		duration("interval", "The time in which attempts are counted.", func(r *api.RestartPolicy) *api.Duration {
			r.Interval = new(api.Duration)
			return r.Interval
		}).standing("30m, in batch and sysbatch jobs 24h"),
		duration("delay", "How long after its end it is started.", func(r *api.RestartPolicy) *api.Duration {
			r.Delay = new(api.Duration)
			return r.Delay
		}).standing("15s"),
		choice("mode", "What happens when the attempts are used up: fail ends the allocation, which the servers replace; "+
			"delay waits until the interval is over, and begins another. A poststop task has mode fail.", api.RestartModes(), nil,
			func(r *api.RestartPolicy) *api.RestartMode { return &r.Mode }).standing(string(api.RestartFail)),
	},
	foreign: []foreign{
		{names: "render_templates", why: "templates are rendered before every start", harmless: true},
	},
}

var lifecycleTable = &table[api.Lifecycle]{
	doc: "When a task runs that is there for the group's main tasks, which are those without this block. The main tasks are started when all prestart tasks have " +
		"succeeded, the sidecars among them run; poststart tasks when the main ones run. When the main tasks have ended, what still runs is stopped, prestart sidecars last. " +
		"Then, however it came to that, poststop tasks run to their end, with the volumes still mounted; how they end changes nothing about how the allocation has ended.",
	fields: []field[api.Lifecycle]{
		choice("hook", "When it is started.", api.LifecycleHooks(), nil,
			func(l *api.Lifecycle) *api.LifecycleHook { return &l.Hook }).required(`hook = "prestart"`),
		flag("sidecar", "It runs on beside the main tasks, and is started again also if it ends with success. Otherwise it runs to its end.",
			func(l *api.Lifecycle) *bool { return &l.Sidecar }),
	},
}

var csiPluginTable = &table[api.CSIPlugin]{
	doc: "Makes the task an instance of a CSI plugin: a driver that listens on the socket which CSI_ENDPOINT names. With the driver raw_exec, and any other without " +
		"a root file system of its own, the task finds its socket and its volumes where they are on the host, and mount_dir and stage_publish_base_dir say nothing.",
	fields: []field[api.CSIPlugin]{
		text("id", "The plugin that it serves; volumes name it as plugin_id. Several jobs may serve one plugin.",
			func(c *api.CSIPlugin) *api.PluginID { return &c.ID }).required(`id = "..."`),
		choice("type", "What it serves: calls for the volumes of its node, calls of the controller, or both.", api.InstanceTypes(), nil,
			func(c *api.CSIPlugin) *api.InstanceType { return &c.Type }).required(`type = "node"`),
		text("mount_dir", "Where the task finds the directory in which it makes its socket, csi.sock.",
			func(c *api.CSIPlugin) *string { return &c.MountDir }).standing(api.DefaultPluginMountDir),
		text("stage_publish_base_dir", "Where the task finds the directory below which volumes are staged and published. On the host it is the plugin's own: "+
			"all instances on a node share it, and it stays when they end.",
			func(c *api.CSIPlugin) *string { return &c.StagePublishBaseDir }).standing(api.DefaultPluginBaseDir),
		duration("health_timeout", "How long it may be without health, from its start or later, before the task is started again as its restart policy says.",
			func(c *api.CSIPlugin) *api.Duration { return &c.HealthTimeout }).standing(time.Duration(api.DefaultPluginHealthTimeout).String()),
		flag("allow_unmounted", "Accept that the driver publishes a volume without a mount at the target path.",
			func(c *api.CSIPlugin) *bool { return &c.AllowUnmounted }),
		flag("exclusive", "The driver cannot be there twice on a node: an update stops the older instance before it starts the newer one.",
			func(c *api.CSIPlugin) *bool { return &c.Exclusive }),
	},
}
