package spec

import (
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/berth-dev/berth/api"
)

// hoistedPorts are what the tasks of a group say of its ports in the form that
// Nomad's files had before groups had a network.
type hoistedPorts struct {
	list []api.Port
	// to is what a task's port_map says.
	to map[string]int
}

// olderNetwork is a network block in the resources of a task.
var olderNetwork = field[api.Resources]{
	name: "network", kind: kindBlock, below: networkTable.describe,
	doc: "As in the group, whose ports these are. It is the older form.",
	read: func(d *decoder, path string, it item, _ *api.Resources) {
		if d.hoist == nil || !d.unlabelled(path, it) {
			return
		}
		d.warnings.add(it.at, path, "is the older form of the group's network", "move it into the group")
		for _, p := range networkTable.read(d, path, it) {
			d.mark(keyed(join(d.hoist.path, "network.port"), p.Name), it.at)
			d.ports.list = append(d.ports.list, p)
		}
	},
}

// olderPortMap takes port_map out of the config of docker: a port of the group
// says itself what it is in the container, and ports names those of the task.
func olderPortMap(d *decoder, path string, _ item, t *api.Task) {
	older, found := t.Config["port_map"]
	if d.hoist == nil || t.Driver != "docker" || !found {
		return
	}
	at, to := join(join(path, "config"), "port_map"), map[string]int{}
	if list, repeated := older.([]any); repeated && len(list) == 1 {
		older = list[0]
	}
	names, _ := older.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		n, number := names[name].(float64)
		if text, quoted := names[name].(string); quoted {
			n, _ = strconv.ParseFloat(text, 64)
			number = true
		}
		if !number || n != math.Trunc(n) || n < 1 || n > 65535 {
			d.fail(keyed(at, name), d.ranges[path+".config"], "is no port", "give a number from 1 to 65535")
		}
		to[name] = int(n)
	}
	if len(to) == 0 {
		return // for the driver to refuse
	}
	d.warnings.add(d.ranges[path+".config"], at, "is the older form of ports in config, and of to in the group's port",
		`write ports = ["..."], and port "..." { to = 8080 } in the group's network`)
	delete(t.Config, "port_map")
	if _, both := t.Config["ports"]; !both {
		ports := []any{}
		for _, name := range slices.Sorted(maps.Keys(to)) {
			ports = append(ports, name)
		}
		t.Config["ports"] = ports
	}
	if d.ports.to == nil {
		d.ports.to = map[string]int{}
	}
	maps.Copy(d.ports.to, to)
}

// olderPorts gives a group the ports that its tasks have in the older form.
func olderPorts(d *decoder, _ string, _ item, g *api.TaskGroup) {
	g.Ports = append(g.Ports, d.ports.list...)
	for i, p := range g.Ports {
		if to, mapped := d.ports.to[p.Name]; mapped && p.To == 0 {
			g.Ports[i].To = to
		}
	}
	d.ports = hoistedPorts{}
}
