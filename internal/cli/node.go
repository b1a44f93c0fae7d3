package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

func (a *app) nodeCommand() *cobra.Command {
	return group("node", "Nodes: machines with an agent",
		&cobra.Command{Use: "list", Short: "List the nodes", Args: cobra.NoArgs, RunE: a.listNodes},
		&cobra.Command{Use: "status ID", Short: "Show a node with its drivers, plugins and allocations", Args: cobra.ExactArgs(1), RunE: a.showNode},
		a.drainCommand(),
		a.eligibilityCommand(),
		a.fenceCommand(),
		a.forgetCommand(),
	)
}

func (a *app) listNodes(cmd *cobra.Command, _ []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	nodes, _, err := c.Nodes(cmd.Context(), client.Query{})
	if err != nil || a.json {
		return a.orJSON(nodes, err)
	}
	rows := make([][]string, 0, len(nodes))
	for _, n := range nodes {
		rows = append(rows, []string{string(n.ID), n.Condition(), drivers(n), strconv.FormatUint(n.Status.Epoch, 10), n.Status.Version, a.when(n.CreateTime)})
	}
	a.list("ID STATE DRIVERS?4 EPOCH?1 VERSION?3 AGE?2", rows, "there are no nodes: run an agent with client.enabled = true")
	return nil
}

func drivers(n *api.Node) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(n.Status.Drivers)) {
		if n.Status.Drivers[name].Healthy {
			names = append(names, name)
		}
	}
	return orDash(strings.Join(names, ","))
}

func (a *app) showNode(cmd *cobra.Command, args []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	n, err := find(cmd.Context(), search{a, c, "node"}, args[0], func(id string) (api.NodeInfo, error) {
		n, _, err := c.Node(cmd.Context(), api.NodeID(id), client.Query{})
		return n, err
	})
	if err != nil || a.json {
		return a.orJSON(n, err)
	}
	a.facts("ID", string(n.ID), "Name", n.Name, "State", n.Condition(), "Fenced", n.Status.Fence.String(), "Undoing", undoing(n.Node), "Drain", draining(n.Node), "Eligibility", eligibility(n.Node), "Epoch", strconv.FormatUint(n.Status.Epoch, 10),
		"Boot ID", n.Status.BootID, "Version", n.Status.Version, "Registered", ago(n.Status.Session), "Age", age(n.CreateTime))
	a.profile(&n.Status.Profile)
	a.section("Task drivers")
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(n.Status.Drivers)) {
		d := n.Status.Drivers[name]
		rows = append(rows, []string{name, yes(d.Healthy), mounts(d), orDash(d.Reason)})
	}
	a.table("DRIVER HEALTHY MOUNTS-VOLUMES?1 REASON~", rows)
	a.instances(n.Instances)
	if len(n.Allocations) > 0 {
		a.section("Allocations")
		a.allocTable(n.Allocations)
	}
	a.waits(n.Waits)
	return nil
}

// undoing says what a node owes before it gets anything new.
func undoing(n *api.Node) string {
	if !n.Status.Owes {
		return ""
	}
	if n.Status.Remains != "" {
		return "gets nothing new until nothing is left of what it ran before; what cannot be undone yet: " + n.Status.Remains
	}
	return "gets nothing new until its agent says that nothing is left of what it ran before"
}

// profile is what constraints can name.
func (a *app) profile(p *api.Profile) {
	var rows [][]string
	for _, part := range []struct {
		prefix string
		values map[string]string
	}{{"attr.", p.Attributes}, {"meta.", p.Meta}, {"node.", map[string]string{"class": p.Class}}} {
		for _, k := range slices.Sorted(maps.Keys(part.values)) {
			if v := part.values[k]; v != "" {
				rows = append(rows, []string{"${" + part.prefix + k + "}", v})
			}
		}
	}
	if p.Address != "" || p.CPU > 0 || p.MemoryMB > 0 {
		a.section("Resources")
		a.facts("Address", p.Address, "CPU", fmt.Sprintf("%d MHz", p.CPU), "Memory", fmt.Sprintf("%d MiB", p.MemoryMB))
	}
	if len(rows) > 0 {
		a.section("Attributes")
		a.table("NAME VALUE~", rows)
	}
}

func (a *app) instances(list []*api.Instance) {
	if len(list) == 0 {
		return
	}
	a.section("Plugin instances")
	var rows [][]string
	for _, i := range list {
		limit := "-"
		if i.MaxVolumes > 0 {
			limit = strconv.FormatInt(i.MaxVolumes, 10)
		}
		rows = append(rows, []string{string(i.PluginID), string(i.NodeID), string(i.Type), yes(i.Healthy), limit, orDash(i.Reason)})
	}
	a.table("PLUGIN NODE TYPE?2 HEALTHY MAX-VOLUMES?1 REASON~", rows)
}

func (a *app) pluginCommand() *cobra.Command {
	plugins := group("plugin", "Plugins: CSI drivers",
		&cobra.Command{Use: "list", Short: "List the plugins", Args: cobra.NoArgs, RunE: a.listPlugins},
		&cobra.Command{Use: "status ID", Short: "Show a plugin with its instances and capabilities", Args: cobra.ExactArgs(1), RunE: a.showPlugin},
		a.pluginVolumesCommand(),
		a.pluginCapacityCommand(),
	)
	plugins.AddCommand(a.PluginCommands...)
	return plugins
}

func (a *app) listPlugins(cmd *cobra.Command, _ []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	plugins, _, err := c.Plugins(cmd.Context(), client.Query{})
	if err != nil || a.json {
		return a.orJSON(plugins, err)
	}
	rows := make([][]string, 0, len(plugins))
	for _, p := range plugins {
		rows = append(rows, []string{string(p.ID), orDash(p.Driver), orDash(strings.Join(p.VendorVersions, ",")),
			fmt.Sprintf("%d/%d", p.ControllersHealthy, p.ControllersExpected), fmt.Sprintf("%d/%d", p.NodesHealthy, p.NodesExpected)})
	}
	a.list("ID DRIVER?2 VERSION?1 CONTROLLERS NODES", rows, "there are no plugins: add a plugin block to an agent's configuration")
	return nil
}

func (a *app) showPlugin(cmd *cobra.Command, args []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	p, err := find(cmd.Context(), search{a, c, "plugin"}, args[0], func(id string) (*api.Plugin, error) {
		p, _, err := c.Plugin(cmd.Context(), api.PluginID(id), client.Query{})
		return p, err
	})
	if err != nil || a.json {
		return a.orJSON(p, err)
	}
	var one api.Instance // all instances of a driver can do the same
	if len(p.Instances) > 0 {
		one = *p.Instances[0]
	}
	a.facts("ID", string(p.ID), "Driver", p.Driver, "Version", strings.Join(p.VendorVersions, ", "),
		"Controllers", fmt.Sprintf("%d of %d healthy", p.ControllersHealthy, p.ControllersExpected),
		"Nodes", fmt.Sprintf("%d of %d healthy", p.NodesHealthy, p.NodesExpected),
		"Plugin can", strings.Join(one.PluginCapabilities, ", "), "Controller can", strings.Join(one.ControllerCapabilities, ", "),
		"Node can", strings.Join(one.NodeCapabilities, ", "))
	a.instances(p.Instances)
	return nil
}

// mounts is what a driver can do with volumes.
func mounts(d api.Driver) string {
	if d.MountsVolumes && d.NoBlockDevices {
		return "no block devices"
	}
	return yes(d.MountsVolumes)
}
