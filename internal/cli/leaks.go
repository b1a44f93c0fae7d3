package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

func (a *app) leaksCommand() *cobra.Command {
	var now bool
	var plugin, remove string
	var wait *waiting
	cmd := &cobra.Command{
		Use:   "leaks",
		Short: "List what differs between plugins and what the cluster knows",
		Long: "Lists what the servers found when they compared what plugins say that they have with what the cluster knows: volumes\n" +
			"that this cluster made and does not know (leak), or left to the plugin (retained), volumes that the plugin has no more\n" +
			"(vanished) or calls abnormal, and attachments that only one of the two knows (attached, detached). They look every few\n" +
			"minutes, and list what was there twice. Nothing is done about it: adopt a volume with 'berth volume adopt', or have it\n" +
			"deleted with --delete.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			if remove != "" {
				v, err := c.DeleteFound(cmd.Context(), api.FindingID(remove))
				if err != nil {
					return orList(err, "volume leaks")
				}
				return a.going(cmd.Context(), c, wait, volumeName{v.Namespace, v.ID}, goneAs(v))
			}
			if now {
				if err := a.sweepNow(cmd, c, api.PluginID(plugin)); err != nil {
					return err
				}
			}
			return a.leaks(cmd, c, api.PluginID(plugin))
		},
	}
	cmd.Flags().BoolVar(&now, "now", false, "have the servers look now")
	cmd.Flags().StringVar(&remove, "delete", "", "have the plugin delete the volume of this `finding`, a leak or a retained one, with its data")
	wait = waitFlags(cmd)
	cmd.Flags().StringVar(&plugin, "plugin", "", "only what concerns this `plugin`")
	return cmd
}

// sweepNow has the servers compare, and says what they could not.
func (a *app) sweepNow(cmd *cobra.Command, c *client.Client, plugin api.PluginID) error {
	reports, err := c.Sweep(cmd.Context(), plugin)
	if err != nil {
		return err
	}
	for i := range reports {
		r := &reports[i]
		if a.json {
			continue
		}
		note := ""
		if r.Waiting > 0 {
			note = fmt.Sprintf("; %d differ for the first time, and are looked at again %s", r.Waiting, until(r.Next))
		}
		a.progress("plugin %s has %d volumes, of which the cluster does not know %d%s", r.PluginID, r.Volumes, r.Unknown, note)
		for _, problem := range r.Problems {
			a.progress("  plugin %s: %s", r.PluginID, problem)
		}
	}
	return nil
}

func (a *app) leaks(cmd *cobra.Command, c *client.Client, plugin api.PluginID) error {
	q := client.Query{}
	if plugin != "" {
		q.Filters = []string{client.Where("plugin_id", "==", plugin)}
	}
	found, _, err := c.Findings(cmd.Context(), q)
	if err != nil || a.json {
		return a.orJSON(found, err)
	}
	rows := make([][]string, 0, len(found))
	for _, f := range found {
		rows = append(rows, []string{string(f.ID), string(f.PluginID), volumeOf(f), f.ExternalID, a.bytes(f.Capacity), a.when(f.Since), detail(f)})
	}
	reports, err := c.SweepReports(cmd.Context())
	if err != nil {
		return err
	}
	a.list("ID PLUGIN?3 VOLUME?4 EXTERNAL-ID CAPACITY?2 AGE?1 FOUND~", rows, "nothing was found")
	for i := range reports {
		if r := &reports[i]; r.Unknown > 0 && (plugin == "" || plugin == r.PluginID) {
			a.none(plain(fmt.Sprintf("volumes of plugin %s that the cluster does not know: %d; 'berth plugin volumes %s --unknown' lists them", r.PluginID, r.Unknown, r.PluginID)))
		}
	}
	return nil
}

// volumeOf is the volume of a finding, if it is or was one.
func volumeOf(f *api.Finding) string {
	if f.VolumeID == "" {
		return "-"
	}
	return string(f.Namespace) + "/" + string(f.VolumeID)
}

// found is what was found with a volume, as one line.
func found(f *api.Finding) string {
	line := string(f.Kind) + ": " + f.Message
	if node := findingNode(f); node != "" {
		line += " (node " + node + ")"
	}
	return line
}

func findingNode(f *api.Finding) string {
	if f.NodeID != "" {
		return string(f.NodeID)
	}
	return f.ExternalNodeID
}

// findings shows what the plugin says of a volume that the cluster did not
// expect.
func (a *app) findings(all []*api.Finding) {
	if len(all) == 0 {
		return
	}
	a.section("Found")
	for _, f := range all {
		a.print("  " + plain(found(f)+since(f.Since)))
	}
}

func since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return ", for " + age(t)
}

// detail is what was found, with the nodes that it concerns.
func detail(f *api.Finding) string {
	switch {
	case len(f.Nodes) > 0:
		return f.Message + "; it is attached to " + strings.Join(f.Nodes, ", ")
	case findingNode(f) != "":
		return "node " + findingNode(f) + ": " + f.Message
	}
	return f.Message
}
