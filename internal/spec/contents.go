package spec

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/berth-dev/berth/api"
)

// contents is what has been read of a file so far.
type contents struct {
	file File
	// seen is where each volume and job stands, by its kind, namespace and id.
	seen map[string]hcl.Range
}

// fileTable is a file in the block form.
var fileTable = &table[contents]{
	doc: "A file holds volume and job blocks, or it is one volume itself: all that a volume block may hold, with the volume's id.",
	fields: []field[contents]{
		{name: "volume", kind: kindNamed, repeats: true, doc: "A volume; its name is its id.",
			below: volumeTable.describe, read: readVolume},
		{name: "job", kind: kindNamed, repeats: true, doc: "A job; its name is its id.",
			below: jobTable.describe, read: readJob},
		// These two are taken out before the table is read.
		{name: "variable", kind: kindNamed, repeats: true, doc: "A value that the file's user may choose; its name is what it is called in var.NAME.",
			below: variableTable.describe},
		{name: "locals", kind: kindMap, repeats: true, doc: "Names for values of this file: elsewhere local.NAME, or ${local.NAME} within a text. " +
			"A value may rest on variables and on other locals."},
	},
}

// contents reads all items of a file in whichever form it has.
func (d *decoder) contents(items []item, in *Inputs) contents {
	d.home = map[string]map[string][]string{
		"": homes(Reference()), "volume": homes(volumeTable.describe("volume")), "job": homes(jobTable.describe("job")),
	}
	items = d.resolved(items, in)
	whole := item{at: hcl.Range{Start: hcl.InitialPos}, value: value{items: items}}
	if len(items) == 0 {
		d.nothing(whole.at)
		return contents{}
	}
	whole.at = items[0].at
	if i := slices.IndexFunc(items, fromNomadsAPI); i >= 0 {
		d.fail(items[i].name, items[i].at, "is a name of Nomad's API, and Berth reads the files that people write",
			"use the job or volume file that this was made from")
		return contents{}
	}
	inBlocks := slices.ContainsFunc(items, func(it item) bool {
		return fileTable.field(it.name) != nil || len(it.labels) > 0 && volumeTable.field(it.name) == nil
	})
	if !inBlocks {
		return d.flatVolume(whole)
	}
	outside := func(it item) bool { return fileTable.field(it.name) == nil && volumeTable.field(it.name) != nil }
	if i := slices.IndexFunc(items, outside); i >= 0 {
		// Once is enough: the others stand where this one stands.
		d.problems.add(items[i].at, items[i].name, "stands outside of any block, and the file has blocks",
			`put it in volume "name" { ... }`)
		whole.value.items = slices.DeleteFunc(items, outside)
	}
	return fileTable.read(d, "", whole)
}

// fromNomadsAPI reports whether an item of a JSON file is one that Nomad's own
// API sends, and no file has.
func fromNomadsAPI(it item) bool {
	return it.json && slices.Contains([]string{"Job", "ID", "TaskGroups", "Volumes", "PluginID"}, it.name)
}

// nothing reports a file that holds nothing.
func (d *decoder) nothing(at hcl.Range) {
	d.fail("", at, "holds no volume and no job", `write job "name" { ... }, or volume "name" { ... }`)
}

// flatVolume reads a file that is one volume.
func (d *decoder) flatVolume(whole item) contents {
	d = d.object("volume")
	v := d.volume(whole)
	switch at, named := d.ranges["id"]; {
	case d.broken["id"]:
	case !named:
		d.fail("id", whole.at, "is missing", `add id = "..."`)
	default:
		d.volumeID("id", string(v.ID), at)
	}
	d.namespace(v.Namespace)
	return contents{file: File{Volumes: []Volume{v}}}
}

func readVolume(d *decoder, path string, it item, into *contents) {
	label, ok := d.label(path, it)
	if ok {
		d.volumeID(keyed(path, label), label, it.at)
	}
	d = d.object(it.name)
	v := d.volume(it)
	if !ok {
		return
	}
	if !d.broken["id"] && v.ID != "" && string(v.ID) != label {
		d.fail("id", d.ranges["id"], fmt.Sprintf("is %q, and the block's name is %q", clip(string(v.ID)), label), "remove it")
	}
	v.ID = api.VolumeID(label)
	d.namespace(v.Namespace)
	if into.first(d, path, v.Namespace, label, it) {
		into.file.Volumes = append(into.file.Volumes, v)
	}
}

func readJob(d *decoder, path string, it item, into *contents) {
	label, ok := d.label(path, it)
	if ok {
		d.name(keyed(path, label), label, it.at)
	}
	d = d.object(it.name)
	j := jobTable.read(d, "", it)
	if !ok {
		return
	}
	j.ID = api.JobID(label)
	nameServices(&j)
	d.namespace(j.Namespace)
	d.validated(j.Spec.Validate(), it.at)
	if into.first(d, path, j.Namespace, label, it) {
		into.file.Jobs = append(into.file.Jobs, j)
	}
}

// first reports a second object of the same kind, namespace and name.
func (c *contents) first(d *decoder, kind string, ns api.NamespaceID, label string, it item) bool {
	key := fmt.Sprintf("%s %q %q", kind, cmp.Or(ns, api.DefaultNamespace), label)
	earlier, again := c.seen[key]
	if again {
		d.fail(keyed(kind, label), it.at, fmt.Sprintf("is there twice, first at line %d", earlier.Start.Line), "rename one")
		return false
	}
	if c.seen == nil {
		c.seen = map[string]hcl.Range{}
	}
	c.seen[key] = it.at
	return true
}

// namespace checks the name of a namespace, if one is named.
func (d *decoder) namespace(ns api.NamespaceID) {
	if at, named := d.ranges["namespace"]; named && !d.broken["namespace"] {
		d.name("namespace", string(ns), at)
	}
}

// name checks a name by which a volume or a job is known. It is not part of the
// spec, so that the spec's validator does not see it.
func (d *decoder) name(path, name string, at hcl.Range) {
	var p api.Problems
	p.Name(path, name)
	d.mark(path, at)
	d.validated(p.Err("the name"), at)
}

// volumeID checks the name of a volume, which may be one of a family.
func (d *decoder) volumeID(path, id string, at hcl.Range) {
	var p api.Problems
	p.VolumeID(path, id)
	d.mark(path, at)
	d.validated(p.Err("the name"), at)
}
