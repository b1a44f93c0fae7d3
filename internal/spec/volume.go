package spec

import "github.com/berth-dev/berth/api"

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
		size("capacity_min", "The least size that will do. The plugin may make more.",
			func(v *Volume) *int64 { return &v.Spec.CapacityMin }).standing("left to the plugin"),
		size("capacity_max", "The most that the plugin may make.",
			func(v *Volume) *int64 { return &v.Spec.CapacityMax }).standing("left to the plugin"),
		blocks("capability", "A way in which the volume may be used; one block for each.", capabilityTable,
			func(v *Volume) *[]api.Capability { return &v.Spec.Capabilities }).
			required(`capability { access_mode = "single-node-writer" attachment_mode = "file-system" }`),
		block("mount_options", "How the volume is mounted.", mountOptionsTable,
			func(v *Volume) **api.MountOptions { return &v.Spec.MountOptions }),
		textMap("parameters", "What the plugin wants to know to make the volume. The plugin's documentation names the keys.", false,
			func(v *Volume) *map[string]string { return &v.Spec.Parameters }),
		block("topology_request", "Where the volume must and should be reachable.", topologyRequestTable,
			func(v *Volume) **api.TopologyRequest { return &v.Spec.TopologyRequest }),
	},
	foreign: []foreign{
		{names: "external_id context", why: "a volume that exists already cannot be registered"},
		{names: "secrets", why: "plugins get no secrets of a volume"},
		{names: "snapshot_id clone_id", why: "volumes are made empty"},
		{names: "node_id node_pool constraint host_path capacity", why: "there are no host volumes"},
	},
}

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
		[]api.AttachmentMode{api.FileSystem, api.BlockDevice}, nil, at).
		required(`attachment_mode = "file-system"`)
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
