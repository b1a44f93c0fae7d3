package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

// listPage is how many rows are asked for at a time, of a list that may be of
// any length.
const listPage = 500

func (a *app) pluginVolumesCommand() *cobra.Command {
	var unknown bool
	cmd := &cobra.Command{
		Use:   "volumes PLUGIN",
		Short: "List the volumes that a plugin has, and which of them the cluster knows",
		Long: "Asks the plugin for all volumes that it has, and shows each with the volume of the cluster that it is. What the cluster\n" +
			"does not know can be taken over with 'berth volume import'. ORIGIN says what is known of where such a volume comes\n" +
			"from: ours bears a name that this cluster gave, another-cluster one of another cluster of Berth. Nothing is recorded.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.pluginVolumes(cmd, api.PluginID(args[0]), unknown)
		},
	}
	cmd.Flags().BoolVar(&unknown, "unknown", false, "show only what the cluster does not know")
	return cmd
}

func (a *app) pluginVolumes(cmd *cobra.Command, id api.PluginID, unknown bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	all := []api.ListedVolume{}
	var problems []string
	for page := (&client.Page{Size: listPage}); ; {
		rows, err := c.PluginVolumes(cmd.Context(), id, page)
		if err != nil {
			return err
		}
		for _, v := range rows {
			switch {
			case v.Problem != "":
				problems = append(problems, v.Problem)
			case !unknown || v.VolumeID == "":
				all = append(all, v)
			}
		}
		if page.Next == "" {
			break
		}
	}
	if a.json {
		if err := a.printJSON(all); err != nil {
			return err
		}
	} else {
		a.listedVolumes(all)
	}
	if len(problems) > 0 {
		return fmt.Errorf("the list is not whole: %s", strings.Join(problems, "; "))
	}
	return nil
}

func (a *app) listedVolumes(all []api.ListedVolume) {
	rows := make([][]string, 0, len(all))
	for i := range all {
		v := &all[i]
		name := "-"
		if v.VolumeID != "" {
			name = string(v.Namespace) + "/" + string(v.VolumeID)
		}
		rows = append(rows, []string{v.ExternalID, name, orDash(string(v.Origin)), a.bytes(v.Capacity), orDash(strings.Join(v.Nodes, ",")), condition(v.Condition)})
	}
	a.list("EXTERNAL-ID VOLUME ORIGIN?1 CAPACITY?3 PUBLISHED-TO?2 CONDITION~?4", rows, "the plugin has no such volumes")
}

// pluginSnapshots lists what a plugin has, of one volume if it is named.
func (a *app) pluginSnapshots(cmd *cobra.Command, id api.PluginID, volume string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	all := []api.ListedSnapshot{}
	var problems []string
	for page := (&client.Page{Size: listPage}); ; {
		found, err := c.PluginSnapshots(cmd.Context(), id, page)
		if err != nil {
			return err
		}
		for _, s := range found {
			switch {
			case s.Problem != "":
				problems = append(problems, s.Problem)
			case volume == "" || s.Namespace == a.ns() && string(s.VolumeID) == volume:
				all = append(all, s)
			}
		}
		if page.Next == "" {
			break
		}
	}
	if a.json {
		err = a.printJSON(all)
	} else {
		a.listedSnapshots(all)
	}
	if err == nil && len(problems) > 0 {
		err = fmt.Errorf("the list is not whole: %s", strings.Join(problems, "; "))
	}
	return err
}

func (a *app) listedSnapshots(all []api.ListedSnapshot) {
	rows := make([][]string, 0, len(all))
	for i := range all {
		s := &all[i]
		names := []string{"-", "-"}
		for at, name := range []string{string(s.SnapshotID), string(s.VolumeID)} {
			if name != "" {
				names[at] = string(s.Namespace) + "/" + name
			}
		}
		rows = append(rows, []string{s.ExternalID, names[0], names[1], s.SourceID, a.bytes(s.Size), yes(s.Ready), a.when(s.Created)})
	}
	a.list("EXTERNAL-ID SNAPSHOT VOLUME?2 SOURCE?4 SIZE?3 READY AGE?1", rows, "the plugin has no such snapshots")
}

// condition is what a plugin thinks of a volume.
func condition(c *api.VolumeCondition) string {
	switch {
	case c == nil:
		return "-"
	case !c.Abnormal:
		return "well"
	case c.Message == "":
		return "abnormal"
	}
	return "abnormal: " + c.Message
}

// usages shows how full a volume is on the nodes that have it mounted. That is
// a question to their agents, which takes no longer than a few seconds; who asks
// for JSON asks it himself.
func (a *app) usages(cmd *cobra.Command, c *client.Client, v *api.VolumeInfo) {
	mounted := false
	for _, at := range v.Attachments {
		mounted = mounted || at.Status.State == api.NodePublished
	}
	if !mounted {
		return
	}
	all, err := c.VolumeUsage(cmd.Context(), v.Namespace, v.ID)
	if err != nil {
		all = []api.VolumeUsage{{Unknown: err.Error()}}
	}
	rows := make([][]string, 0, len(all))
	for i := range all {
		u := &all[i]
		rows = append(rows, []string{orDash(string(u.NodeID)), used(u.Bytes, bytesOf), used(u.Inodes, plainNumber), well(u)})
	}
	a.section("Usage")
	a.table("NODE! BYTES INODES?1 CONDITION~?2", rows)
}

func bytesOf(n int64) string {
	if n == 0 {
		return "0B"
	}
	return size(n)
}

func plainNumber(n int64) string { return strconv.FormatInt(n, 10) }

// used is a usage for people. A plugin need not say more than the total.
func used(u *api.Usage, show func(int64) string) string {
	switch {
	case u == nil:
		return "-"
	case u.Used == 0 && u.Available == 0:
		return "of " + show(u.Total)
	case u.Total == 0:
		return show(u.Used) + " used"
	}
	return fmt.Sprintf("%s of %s (%d%%)", show(u.Used), show(u.Total), u.Used*100/u.Total)
}

func well(u *api.VolumeUsage) string {
	if u.Unknown != "" {
		return "unknown: " + u.Unknown
	}
	return condition(u.Condition)
}

func (a *app) pluginCapacityCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "capacity PLUGIN",
		Short: "Show how much room a plugin has, in each of its topologies",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			all, err := c.PluginCapacity(cmd.Context(), api.PluginID(args[0]))
			if err != nil || a.json {
				return a.orJSON(all, err)
			}
			rows := make([][]string, 0, len(all))
			for i := range all {
				p := &all[i]
				where := "everywhere"
				if len(p.Topology) > 0 {
					where = topologies([]api.Topology{p.Topology})
				}
				available, note := bytesOf(p.Available), "-"
				if p.Problem != "" {
					available, note = "-", "unknown: "+p.Problem
				}
				rows = append(rows, []string{where, available, orDash(size(p.Maximum)), orDash(size(p.Minimum)), note})
			}
			a.list("TOPOLOGY AVAILABLE LARGEST?1 SMALLEST?2 NOTE~?3", rows, "the plugin does not say")
			return nil
		},
	}
}
