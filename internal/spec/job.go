package spec

import "github.com/berth-dev/berth/api"

var jobTable = &table[Job]{
	doc:     "A job: what to run.",
	initial: Job{Spec: api.JobSpec{Type: api.JobService}},
	fields: []field[Job]{
		text("namespace", "The namespace that the job belongs to.",
			func(j *Job) *api.NamespaceID { return &j.Namespace }).standing("what the command says, or default"),
		choice("type", "How the job ends: a service runs until it is stopped, a batch until its tasks have succeeded. "+
			"A system job is a service on every node that fits, a sysbatch job a batch on every one.", api.JobTypes(), nil,
			func(j *Job) *api.JobType { return &j.Spec.Type }).standing(string(api.JobService)),
		integer("priority", "From 1 to 100: which job gets a volume first that several wait for. Among equals it is the one that has waited longest.",
			func(j *Job) *int { return &j.Spec.Priority }).standing("50"),
		constraints("job", func(j *Job) *[]api.Constraint { return &j.Spec.Constraints }),
		spreads(func(j *Job) *[]api.Spread { return &j.Spec.Spreads }),
		updates(func(j *Job) **api.Update { return &j.Spec.Update }),
		migrates(func(j *Job) **api.Migrate { return &j.Spec.Migrate }),
		reschedules(func(j *Job) **api.Reschedule { return &j.Spec.Reschedule }),
		metadata(func(j *Job) *map[string]string { return &j.Spec.Meta }),
		named("group", "Tasks that share a node and volumes; one block for each group.", groupTable,
			func(j *Job) *[]api.TaskGroup { return &j.Spec.Groups },
			func(g *api.TaskGroup) *string { return &g.Name }).required(`group "name" { ... }`),
	},
	foreign: []foreign{
		{names: "datacenters region", why: "there is one cluster", harmless: true},
		{names: "id name", why: "the job's name is the block's"},
		{names: "all_at_once", why: "an allocation is placed as soon as it can be", harmless: true},
		{names: "periodic parameterized", why: "a job runs when it is applied"},
		{names: "multiregion", why: "there is one cluster"},
		{names: "consul_token vault_token ui", why: "nothing would use it"},
		placement, wishes, integrations,
	},
}

var groupTable = &table[api.TaskGroup]{
	doc:     "Tasks that run on the same node and share volumes.",
	initial: api.TaskGroup{Count: 1},
	fields: []field[api.TaskGroup]{
		integer("count", "How many allocations of the group run; in a system job 0 or 1, and 1 means on every node.",
			func(g *api.TaskGroup) *int { return &g.Count }).standing("1"),
		constraints("group", func(g *api.TaskGroup) *[]api.Constraint { return &g.Constraints }),
		spreads(func(g *api.TaskGroup) *[]api.Spread { return &g.Spreads }),
		updates(func(g *api.TaskGroup) **api.Update { return &g.Update }),
		migrates(func(g *api.TaskGroup) **api.Migrate { return &g.Migrate }),
		reschedules(func(g *api.TaskGroup) **api.Reschedule { return &g.Reschedule }),
		metadata(func(g *api.TaskGroup) *map[string]string { return &g.Meta }),
		group("network", "The ports that every allocation gets.", networkTable,
			func(g *api.TaskGroup) *[]api.Port { return &g.Ports }),
		blocks("service", "A name under which the allocations can be found; one block for each.", serviceTable,
			func(g *api.TaskGroup) *[]api.Service { return &g.Services }),
		named("volume", "A volume that every allocation of the group gets; one block for each.", requestTable,
			func(g *api.TaskGroup) *[]api.VolumeRequest { return &g.Volumes },
			func(r *api.VolumeRequest) *string { return &r.Name }),
		block("restart", "When the group's tasks are started again on their node, with the same volumes.", restartTable,
			func(g *api.TaskGroup) **api.RestartPolicy { return &g.Restart }),
		hoists(named("task", "A process; one block for each.", taskTable,
			func(g *api.TaskGroup) *[]api.Task { return &g.Tasks },
			func(t *api.Task) *string { return &t.Name }).required(`task "name" { ... }`)),
	},
	foreign: []foreign{
		{names: "ephemeral_disk", why: "disk space is not counted, and a task's own directories stay on their node; data belongs into a volume", harmless: true},
		{names: "scaling", why: "nothing scales by itself; use berth job scale"},
		{names: "disconnect max_client_disconnect stop_after_client_disconnect prevent_reschedule_on_lost",
			why: "what happens to a lost node is not the job's choice"},
		{names: "shutdown_delay", why: "tasks are stopped at once"},
		placement, wishes, integrations,
	},
	finish: olderPorts,
}

var requestTable = &table[api.VolumeRequest]{
	doc: "A request for a volume. It has a name, by which tasks mount it.",
	fields: []field[api.VolumeRequest]{
		choice("type", "The kind of volume: one of a CSI plugin's, or a directory that the configuration of nodes names.", []string{api.VolumeTypeCSI, api.VolumeTypeHost}, nil,
			func(r *api.VolumeRequest) *string { return &r.Type }).required(`type = "csi"`),
		text("source", "The id of the volume; the name of the host volume.",
			func(r *api.VolumeRequest) *api.VolumeID { return &r.Source }).validated(`source = "..."`),
		block("ephemeral", "Instead of a source: each allocation gets a new volume of its own, which is deleted when the allocation has let go of it.", ephemeralTable,
			func(r *api.VolumeRequest) **api.EphemeralVolume { return &r.Ephemeral }),
		flag("per_alloc", "Each allocation gets a volume of its own: the one whose id is the source and the allocation's index, such as pg[0]. "+
			"What is not there is made like the volume with [0].",
			func(r *api.VolumeRequest) *bool { return &r.PerAlloc }),
		flag("read_only", "The allocation only reads the volume.",
			func(r *api.VolumeRequest) *bool { return &r.ReadOnly }),
		accessMode(func(r *api.VolumeRequest) *api.AccessMode { return &r.AccessMode }).validated(`access_mode = "single-node-writer"`),
		attachmentMode(func(r *api.VolumeRequest) *api.AttachmentMode { return &r.AttachmentMode }).validated(`attachment_mode = "file-system"`),
		block("mount_options", "What to change of the volume's mount options.", mountOptionsTable,
			func(r *api.VolumeRequest) **api.MountOptions { return &r.MountOptions }),
		integer("fs_group", "The number of a group. What is on the volume is given to it, with the rights that its owner has, and tasks that mount the volume are in it.",
			func(r *api.VolumeRequest) *int { return &r.FSGroup }).standing("what is on the volume stays as it is"),
		choice("fs_group_policy", "When: always is each time that the volume is mounted; on-root-mismatch when the volume's root is not the group's yet.", api.FSGroupPolicies(), nil,
			func(r *api.VolumeRequest) *api.FSGroupPolicy { return &r.FSGroupPolicy }).standing(string(api.GroupOnRootMismatch)),
		duration("wait_timeout", "For how long a place in the group waits for the volume. Then it gives up, until the job is applied again.",
			func(r *api.VolumeRequest) *api.Duration { return &r.WaitTimeout }).standing("it waits as long as it takes"),
	},
	foreign: []foreign{
		{names: "sticky", why: "a replacement goes to the node of its predecessor where it can, and per_alloc gives each allocation a volume of its own", harmless: true},
	},
}

var ephemeralTable = &table[api.EphemeralVolume]{
	doc: "A volume that is made for an allocation and goes with it. It is used as its request says.",
	fields: []field[api.EphemeralVolume]{
		text("plugin_id", "The CSI plugin that makes the volume.",
			func(e *api.EphemeralVolume) *api.PluginID { return &e.PluginID }).required(`plugin_id = "..."`),
		size("capacity", "The size, no less and no more: capacity_min and capacity_max in one.",
			func(e *api.EphemeralVolume) *int64 { return &e.CapacityMin }).
			sets(func(e *api.EphemeralVolume, _ value) { e.CapacityMax = e.CapacityMin }).standing("as capacity_min and capacity_max say"),
		size("capacity_min", "The least size that will do. The plugin may make more.",
			func(e *api.EphemeralVolume) *int64 { return &e.CapacityMin }).standing("left to the plugin"),
		size("capacity_max", "The most that the plugin may make.",
			func(e *api.EphemeralVolume) *int64 { return &e.CapacityMax }).standing("left to the plugin"),
		textMap("parameters", "What the plugin wants to know to make the volume. The plugin's documentation names the keys.", false,
			func(e *api.EphemeralVolume) *map[string]string { return &e.Parameters }),
		text("snapshot_id", "The snapshot that each volume begins as: one of the namespace and the plugin, else one by the plugin's own id.",
			func(e *api.EphemeralVolume) *string { return &e.SnapshotID }).standing("the volume is made empty"),
	},
	finish: func(d *decoder, path string, _ item, _ *api.EphemeralVolume) {
		at, named := d.ranges[join(path, "capacity")]
		for _, other := range []string{"capacity_min", "capacity_max"} {
			if _, both := d.ranges[join(path, other)]; named && both {
				d.fail(join(path, "capacity"), at, "is there beside "+other+", which it includes", "remove one of them")
			}
		}
	},
}

var taskTable = &table[api.Task]{
	doc: "A process.",
	fields: []field[api.Task]{
		text("driver", "The task driver that runs it: exec, raw_exec or docker.",
			func(t *api.Task) *string { return &t.Driver }).required(`driver = "exec"`),
		text("user", "The user that it runs as.",
			func(t *api.Task) *string { return &t.User }).standing("left to the driver"),
		configMap("config", "What the driver wants to know: exec and raw_exec take command and args, docker an image and more. ${NAME} is filled in on the node. A block in it is a map, and "+
			"several blocks of one name are a list of maps.",
			func(t *api.Task) *map[string]any { return &t.Config }),
		textMap("env", "Environment variables. ${NAME} is filled in on the node.", true,
			func(t *api.Task) *map[string]string { return &t.Env }),
		constraints("task", func(t *api.Task) *[]api.Constraint { return &t.Constraints }),
		metadata(func(t *api.Task) *map[string]string { return &t.Meta }),
		block("resources", "What the task may use of its node.", resourcesTable,
			func(t *api.Task) **api.Resources { return &t.Resources }),
		blocks("volume_mount", "A place at which the task finds one of the group's volumes; one block for each.", mountTable,
			func(t *api.Task) *[]api.VolumeMount { return &t.VolumeMounts }),
		blocks("template", "A file that is made for the task before each start; one block for each.", templateTable,
			func(t *api.Task) *[]api.Template { return &t.Templates }),
		choice("kill_signal", "The signal that asks the task to end.", api.Signals(), nil,
			func(t *api.Task) *string { return &t.KillSignal }).standing("SIGINT"),
		duration("kill_timeout", "How long the task may take to end before it is killed. A poststop task is not asked to end: it is how long a run of it may take, 5m if absent.",
			func(t *api.Task) *api.Duration { return &t.KillTimeout }).standing("5s"),
		block("restart", "What of the group's restart is different for this task.", restartTable,
			func(t *api.Task) **api.RestartPolicy { return &t.Restart }),
		block("lifecycle", "When the task runs, if it is none of the group's main tasks.", lifecycleTable,
			func(t *api.Task) **api.Lifecycle { return &t.Lifecycle }),
		taskService,
		flag("leader", "The allocation ends when this task has ended for good: the others are stopped after it.",
			func(t *api.Task) *bool { return &t.Leader }),
		block("csi_plugin", "The task is an instance of a CSI plugin. The agent calls it for volumes.", csiPluginTable,
			func(t *api.Task) **api.CSIPlugin { return &t.CSIPlugin }),
	},
	foreign: []foreign{
		{names: "artifact", why: "a task finds only what its image, volumes and templates hold: fetch it in a task with lifecycle { hook = \"prestart\" } into a volume"},
		{names: "dispatch_payload", why: "a job runs when it is applied"},
		{names: "logs", why: "logs are kept in one way", harmless: true},
		{names: "identity secret schedule action kind", why: "nothing would use it"},
		{names: "scaling", why: "nothing scales by itself; use berth job scale"},
		{names: "shutdown_delay", why: "tasks are stopped at once"},
		{names: "update migrate reschedule", why: "they are the group's"},
		placement, wishes, integrations,
	},
	finish: olderPortMap,
}

var mountTable = &table[api.VolumeMount]{
	doc: "A place at which a task finds one of its group's volumes.",
	fields: []field[api.VolumeMount]{
		text("volume", "The name of the group's volume block.",
			func(m *api.VolumeMount) *string { return &m.Volume }).required(`volume = "..."`),
		place("destination", "The absolute path in the task. It may begin with ${NOMAD_TASK_DIR}, ${NOMAD_SECRETS_DIR} or ${NOMAD_ALLOC_DIR}, for /local, /secrets and /alloc. "+
			"A block device may be below /dev.",
			func(m *api.VolumeMount) *string { return &m.Destination }).required(`destination = "/data"`),
		flag("read_only", "The task only reads the volume. It does in any case if the group's volume is read_only.",
			func(m *api.VolumeMount) *bool { return &m.ReadOnly }),
		choice("propagation_mode", "Whether the task sees what the host mounts below the volume later, and the host what the task mounts.", api.PropagationModes(), nil,
			func(m *api.VolumeMount) *api.PropagationMode { return &m.PropagationMode }).standing(string(api.PropagatePrivate)),
	},
	foreign: []foreign{
		{names: "selinux_label", why: "volumes keep the labels that they have"},
	},
}

// What Nomad has in jobs, groups and tasks alike.
var (
	placement    = foreign{names: "node_pool", why: "all nodes are in one", mend: `choose nodes with constraint, such as attribute = "${node.class}"`, unless: "all default"}
	wishes       = foreign{names: "affinity", why: "it is a wish, and nodes are chosen by constraint, spread and load", harmless: true}
	integrations = foreign{
		names: "consul vault connect", why: "Berth talks to neither Consul nor Vault",
		mend: "remove it, and give a task its secrets in a template with ${var.NAME} and --var, or in a volume",
	}
)
