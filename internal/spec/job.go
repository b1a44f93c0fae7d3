package spec

import "github.com/berth-dev/berth/api"

var jobTable = &table[Job]{
	doc:     "A job: what to run.",
	initial: Job{Spec: api.JobSpec{Type: api.JobService}},
	fields: []field[Job]{
		text("namespace", "The namespace that the job belongs to.",
			func(j *Job) *api.NamespaceID { return &j.Namespace }).standing("what the command says, or default"),
		choice("type", "How the job ends: a service runs until it is stopped, a batch until its tasks have succeeded.",
			[]api.JobType{api.JobService, api.JobBatch}, []string{"system", "sysbatch"},
			func(j *Job) *api.JobType { return &j.Spec.Type }).standing(string(api.JobService)),
		named("group", "Tasks that share a node and volumes; one block for each group.", groupTable,
			func(j *Job) *[]api.TaskGroup { return &j.Spec.Groups },
			func(g *api.TaskGroup) *string { return &g.Name }).required(`group "name" { ... }`),
	},
	foreign: []foreign{
		{names: "datacenters region", why: "there is one cluster", harmless: true},
		{names: "id name", why: "the job's name is the block's"},
		{names: "priority all_at_once", why: "jobs are equal"},
		{names: "periodic parameterized", why: "a job runs when it is applied"},
		{names: "multiregion", why: "there is one cluster"},
		{names: "consul_token vault_token ui", why: "nothing would use it"},
		placement, restarts, integrations, meta,
	},
}

var groupTable = &table[api.TaskGroup]{
	doc:     "Tasks that run on the same node and share volumes.",
	initial: api.TaskGroup{Count: 1},
	fields: []field[api.TaskGroup]{
		integer("count", "How many allocations of the group run.",
			func(g *api.TaskGroup) *int { return &g.Count }).standing("1"),
		named("volume", "A volume that every allocation of the group gets; one block for each.", requestTable,
			func(g *api.TaskGroup) *[]api.VolumeRequest { return &g.Volumes },
			func(r *api.VolumeRequest) *string { return &r.Name }),
		named("task", "A process; one block for each.", taskTable,
			func(g *api.TaskGroup) *[]api.Task { return &g.Tasks },
			func(t *api.Task) *string { return &t.Name }).required(`task "name" { ... }`),
	},
	foreign: []foreign{
		{names: "network", why: "tasks have the node's network"},
		{names: "ephemeral_disk", why: "disk space is not counted"},
		{names: "scaling", why: "count is fixed"},
		{names: "disconnect max_client_disconnect stop_after_client_disconnect prevent_reschedule_on_lost",
			why: "what happens to a lost node is not the job's choice"},
		{names: "shutdown_delay", why: "tasks are stopped at once"},
		placement, restarts, integrations, meta,
	},
}

var requestTable = &table[api.VolumeRequest]{
	doc: "A request for a volume. It has a name, by which tasks mount it.",
	fields: []field[api.VolumeRequest]{
		choice("type", "The kind of volume.", []string{api.VolumeTypeCSI}, []string{"host"},
			func(r *api.VolumeRequest) *string { return &r.Type }).required(`type = "csi"`),
		text("source", "The id of the volume.",
			func(r *api.VolumeRequest) *api.VolumeID { return &r.Source }).required(`source = "..."`),
		flag("read_only", "The allocation only reads the volume.",
			func(r *api.VolumeRequest) *bool { return &r.ReadOnly }),
		accessMode(func(r *api.VolumeRequest) *api.AccessMode { return &r.AccessMode }),
		attachmentMode(func(r *api.VolumeRequest) *api.AttachmentMode { return &r.AttachmentMode }),
		block("mount_options", "What to change of the volume's mount options.", mountOptionsTable,
			func(r *api.VolumeRequest) **api.MountOptions { return &r.MountOptions }),
	},
	foreign: []foreign{
		{names: "per_alloc sticky", why: "all allocations of the group get the same volume"},
	},
}

var taskTable = &table[api.Task]{
	doc: "A process.",
	fields: []field[api.Task]{
		text("driver", "The task driver that runs it: exec, raw_exec, ...",
			func(t *api.Task) *string { return &t.Driver }).required(`driver = "exec"`),
		text("user", "The user that it runs as.",
			func(t *api.Task) *string { return &t.User }).standing("left to the driver"),
		anyMap("config", "What the driver wants to know: exec and raw_exec take command and args. ${NAME} is filled in on the node.",
			func(t *api.Task) *map[string]any { return &t.Config }),
		textMap("env", "Environment variables. ${NAME} is filled in on the node.", true,
			func(t *api.Task) *map[string]string { return &t.Env }),
		blocks("volume_mount", "A place at which the task finds one of the group's volumes; one block for each.", mountTable,
			func(t *api.Task) *[]api.VolumeMount { return &t.VolumeMounts }),
		choice("kill_signal", "The signal that asks the task to end.", api.Signals(), nil,
			func(t *api.Task) *string { return &t.KillSignal }).standing("SIGINT"),
		duration("kill_timeout", "How long the task may take to end before it is killed.",
			func(t *api.Task) *api.Duration { return &t.KillTimeout }).standing("5s"),
	},
	foreign: []foreign{
		{names: "resources numa device", why: "CPU, memory and devices are not counted"},
		{names: "template artifact dispatch_payload", why: "a task finds only what its volumes hold"},
		{names: "csi_plugin", why: "a task cannot be a plugin"},
		{names: "lifecycle leader", why: "all tasks of a group start and end together"},
		{names: "logs", why: "logs are kept in one way"},
		{names: "identity secret schedule action kind", why: "nothing would use it"},
		{names: "scaling", why: "count is fixed"},
		{names: "shutdown_delay", why: "tasks are stopped at once"},
		placement, restarts, integrations, meta,
	},
}

var mountTable = &table[api.VolumeMount]{
	doc: "A place at which a task finds one of its group's volumes.",
	fields: []field[api.VolumeMount]{
		text("volume", "The name of the group's volume block.",
			func(m *api.VolumeMount) *string { return &m.Volume }).required(`volume = "..."`),
		text("destination", "The absolute path in the task.",
			func(m *api.VolumeMount) *string { return &m.Destination }).required(`destination = "/data"`),
		flag("read_only", "The task only reads the volume.",
			func(m *api.VolumeMount) *bool { return &m.ReadOnly }),
	},
	foreign: []foreign{
		{names: "propagation_mode selinux_label", why: "mounts are private"},
	},
}

// What Nomad has in jobs, groups and tasks alike.
var (
	placement    = foreign{names: "constraint affinity spread node_pool", why: "any node that has the drivers and the volumes may run it"}
	restarts     = foreign{names: "restart reschedule update migrate", why: "how allocations are replaced is not the job's choice"}
	integrations = foreign{names: "service consul vault connect", why: "Berth talks to neither Consul nor Vault"}
	meta         = foreign{names: "meta", why: "nothing would use it; env carries values to a task"}
)
