package spec

import (
	"slices"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/cron"
)

// volumeTable is a volume, in a block of its own or as the whole file.
var volumeTable = &table[Volume]{
	doc: "A volume: a piece of storage that a CSI plugin makes.",
	fields: []field[Volume]{
		text("id", "The volume's name in its namespace, where the file is the volume. A volume block has it as its name.",
			func(v *Volume) *api.VolumeID { return &v.ID }),
		text("namespace", "The namespace that the volume belongs to.",
			func(v *Volume) *api.NamespaceID { return &v.Namespace }).standing("what the command says, or default"),
		text("name", "A label for people.",
			func(v *Volume) *string { return &v.Spec.Name }).standing("the id"),
		choice("type", "The kind of volume.", []string{api.VolumeTypeCSI}, []string{"host"},
			func(*Volume) *string { return new(string) }).standing(api.VolumeTypeCSI),
		text("plugin_id", "The CSI plugin that makes the volume, by the name that its operator gave it.",
			func(v *Volume) *api.PluginID { return &v.Spec.PluginID }).required(`plugin_id = "..."`),
		size("capacity_min", "The least size that will do. The plugin may make more. To raise it is to expand the volume.",
			func(v *Volume) *int64 { return &v.Spec.CapacityMin }).standing("left to the plugin"),
		size("capacity_max", "The most that the plugin may make.",
			func(v *Volume) *int64 { return &v.Spec.CapacityMax }).standing("left to the plugin"),
		blocks("capability", "A way in which the volume may be used; one block for each.", capabilityTable,
			func(v *Volume) *[]api.Capability { return &v.Spec.Capabilities }).
			validated(`capability { access_mode = "single-node-writer" attachment_mode = "file-system" }`),
		block("mount_options", "How the volume is mounted.", mountOptionsTable,
			func(v *Volume) **api.MountOptions { return &v.Spec.MountOptions }),
		textMap("parameters", "What the plugin wants to know to make the volume. The plugin's documentation names the keys.", false,
			func(v *Volume) *map[string]string { return &v.Spec.Parameters }),
		textMap("mutable_parameters", "What the plugin is told of the volume that can be changed later, such as its speed. The plugin's documentation names the keys.", false,
			func(v *Volume) *map[string]string { return &v.Spec.MutableParameters }),
		block("topology_request", "Where the volume must and should be reachable.", topologyRequestTable,
			func(v *Volume) **api.TopologyRequest { return &v.Spec.TopologyRequest }),
		text("external_id", "The plugin's id of a volume that exists already: it is registered, and nothing is made.",
			func(v *Volume) *string { return &v.Spec.ExternalID }),
		textMap("context", "What the plugin wants to know to use a volume that exists already. The plugin's documentation names the keys.", false,
			func(v *Volume) *map[string]string { return &v.Spec.Context }),
		text("snapshot_id", "The snapshot that the new volume begins as: one of the namespace and the plugin, else one by the plugin's own id.",
			func(v *Volume) *string { return &v.Spec.SnapshotID }).standing("the volume is made empty"),
		text("clone_id", "The volume that the new one begins as a copy of: one of the namespace and the plugin, else one by the plugin's own id.",
			func(v *Volume) *string { return &v.Spec.CloneID }).standing("the volume is made empty"),
		block("snapshot_schedule", "Has snapshots of the volume made by the clock. It can be changed at any time.", snapshotScheduleTable,
			func(v *Volume) **api.SnapshotSchedule { return &v.Spec.SnapshotSchedule }),
		textMap("secrets", "What the plugin gets with each call, and nobody else: sealed by the servers, and never shown. "+
			"A file without secrets leaves those that there are; secrets {} removes them.", false,
			func(v *Volume) *map[string]string { return &v.Spec.Secrets }),
		older("access_mode", api.AccessModes(), func(c *api.Capability) *api.AccessMode { return &c.AccessMode }),
		older("attachment_mode", attachmentModes(), func(c *api.Capability) *api.AttachmentMode { return &c.AttachmentMode }),
	},
	foreign: []foreign{
		{names: "node_id node_pool constraint host_path capacity", why: hostVolumes},
	},
}

// hostVolumes is why a volume file has nothing of volumes that are a machine's.
const hostVolumes = "a directory of a machine is named in its agent's configuration, host_volume \"name\" { path = \"...\" }, and one of its own size comes from a CSI plugin, such as the local driver"

var capabilityTable = &table[api.Capability]{
	doc: "A way in which a volume may be used.",
	fields: []field[api.Capability]{
		accessMode(func(c *api.Capability) *api.AccessMode { return &c.AccessMode }),
		attachmentMode(func(c *api.Capability) *api.AttachmentMode { return &c.AttachmentMode }),
	},
}

func accessMode[T any](at func(*T) *api.AccessMode) field[T] {
	return choice("access_mode", "How many nodes and writers may use the volume at once.", api.AccessModes(), nil, at).
		required(`access_mode = "single-node-writer"`)
}

func attachmentMode[T any](at func(*T) *api.AttachmentMode) field[T] {
	return choice("attachment_mode", "What a task finds at the mount: a directory or a device.",
		attachmentModes(), nil, at).
		required(`attachment_mode = "file-system"`)
}

func attachmentModes() []api.AttachmentMode {
	return []api.AttachmentMode{api.FileSystem, api.BlockDevice}
}

// older is a mode outside of a capability block, as Nomad had it before 1.1: the
// two are one capability.
func older[S ~string](name string, words []S, at func(*api.Capability) *S) field[Volume] {
	f := choice(name, "Half of a capability, as volume files had it before they had capability blocks. Use a block.", words, nil, at)
	return field[Volume]{name: f.name, kind: f.kind, doc: f.doc, words: f.words, read: func(d *decoder, path string, it item, _ *Volume) {
		if d.older == nil {
			d.older = &api.Capability{}
		}
		f.read(d, path, it, d.older)
		d.warnings.add(it.at, path, "is the older form of a capability block", `write capability { access_mode = "..." attachment_mode = "..." }`)
	}}
}

// volume reads what a volume's block holds, and validates it.
func (d *decoder) volume(it item) Volume {
	v := volumeTable.read(d, "", it)
	switch c := d.older; {
	case c == nil, d.broken["access_mode"], d.broken["attachment_mode"]:
	case c.AccessMode == "":
		d.fail("access_mode", it.at, "is missing beside attachment_mode", `add access_mode = "single-node-writer"`)
	case c.AttachmentMode == "":
		d.fail("attachment_mode", it.at, "is missing beside access_mode", `add attachment_mode = "file-system"`)
	case !slices.Contains(v.Spec.Capabilities, *c):
		v.Spec.Capabilities = append(v.Spec.Capabilities, *c)
	}
	d.broken["capability"] = d.broken["capability"] || d.broken["access_mode"] || d.broken["attachment_mode"]
	d.validated(v.Spec.Validate(), it.at)
	if s := v.Spec.SnapshotSchedule; s != nil && s.Cron != "" {
		var p api.Problems
		if message, mend := cron.Problem(s.Cron); message != "" {
			p.Add("snapshot_schedule.cron", message, mend)
		}
		d.validated(p.Err("the volume"), it.at)
	}
	for name, id := range map[string]string{"external_id": v.Spec.ExternalID, "snapshot_id": v.Spec.SnapshotID, "clone_id": v.Spec.CloneID} {
		// A name that a program should have filled in would make an empty volume.
		if at, named := d.ranges[name]; named && id == "" && !d.broken[name] {
			d.fail(name, at, "is empty", "give the plugin's id, or remove the line")
		}
	}
	if !v.Spec.Registered() {
		return v
	}
	for _, name := range []string{"capacity_min", "capacity_max", "parameters"} {
		if at, named := d.ranges[name]; named {
			d.warnings.add(at, name, "changes nothing: external_id names a volume that is there already", "remove it")
		}
	}
	return v
}

var snapshotScheduleTable = &table[api.SnapshotSchedule]{
	doc: "When snapshots of a volume are made, and how many of them stay.",
	fields: []field[api.SnapshotSchedule]{
		text("cron", "When, in UTC: minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly, @monthly, @yearly.",
			func(s *api.SnapshotSchedule) *string { return &s.Cron }).required(`cron = "0 3 * * *"`),
		integer("keep", "How many of the schedule's snapshots stay, the newest ones, counting those that are ready. A user's own are never deleted by it.",
			func(s *api.SnapshotSchedule) *int { return &s.Keep }).required("keep = 7"),
		textMap("parameters", "What the plugin wants to know to make a snapshot. The plugin's documentation names the keys.", false,
			func(s *api.SnapshotSchedule) *map[string]string { return &s.Parameters }),
	},
}

var mountOptionsTable = &table[api.MountOptions]{
	doc: "How a volume is mounted. In a job, fs_type replaces the volume's if set, and mount_flags replace all of the volume's.",
	fields: []field[api.MountOptions]{
		text("fs_type", "The file system: ext4, xfs, ...",
			func(o *api.MountOptions) *string { return &o.FSType }).standing("left to the plugin"),
		texts("mount_flags", "Options for mount(8): noatime, ...",
			func(o *api.MountOptions) *[]string { return &o.MountFlags }),
	},
}

var topologyRequestTable = &table[api.TopologyRequest]{
	doc: "Where a new volume must and should be reachable.",
	fields: []field[api.TopologyRequest]{
		group("required", "The volume must be reachable from at least one of these.", topologiesTable,
			func(r *api.TopologyRequest) *[]api.Topology { return &r.Required }),
		group("preferred", "The plugin tries these first, in this order.", topologiesTable,
			func(r *api.TopologyRequest) *[]api.Topology { return &r.Preferred }),
	},
}

var topologiesTable = &table[[]api.Topology]{
	doc: "A list of places.",
	fields: []field[[]api.Topology]{
		blocks("topology", "One place; one block for each.", topologyTable,
			func(list *[]api.Topology) *[]api.Topology { return list }).
			elided().required(`topology { segments { "zone" = "a" } }`),
	},
}

var topologyTable = &table[api.Topology]{
	doc: "A place, in the plugin's own words. A node is there if it has all of the segments.",
	fields: []field[api.Topology]{
		textMap("segments", "The plugin's keys and values.", false,
			func(t *api.Topology) *map[string]string { return (*map[string]string)(t) }).
			required(`segments { "zone" = "a" }`),
	},
}
