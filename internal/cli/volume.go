package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

func (a *app) volumeCommand() *cobra.Command {
	var wait *waiting
	var reclaim string
	remove := &cobra.Command{
		Use:   "delete ID",
		Short: "Delete a volume, and wait until it is gone",
		Long: "Deletes a volume with its data, and waits until it is gone. Of a volume that was registered with external_id the\n" +
			"data stay at the provider, and only the cluster forgets it. --reclaim says otherwise, either way. With --json it\n" +
			"prints nothing: nothing is left.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			id := api.VolumeID(args[0])
			deleted, err := c.ReclaimVolume(cmd.Context(), a.ns(), id, api.Reclaim(reclaim))
			if err != nil {
				return search{a, c, "volume"}.notFound(cmd.Context(), args[0], orRepeat(err))
			}
			if wait.detach {
				a.progress("volume %s/%s is to be %s", a.ns(), id, goneAs(deleted))
				return nil
			}
			ctx, cancel := wait.limit(cmd.Context())
			defer cancel()
			return a.wait(ctx, func(ctx context.Context) error { return a.awaitGone(ctx, c, a.ns(), id, goneAs(deleted)) })
		},
	}
	remove.Flags().StringVar(&reclaim, "reclaim", "", "what becomes of the data: `delete or retain`")
	wait = waitFlags(remove)
	return group("volume", "Volumes: storage that the cluster knows",
		&cobra.Command{Use: "list", Short: "List the volumes of the namespace", Args: cobra.NoArgs, RunE: a.listVolumes},
		&cobra.Command{Use: "status ID", Short: "Show a volume, who holds it, what was done, and what it waits for", Args: cobra.ExactArgs(1), RunE: a.showVolume},
		a.explainCommand("volume", "a volume", a.explainVolume),
		a.detachCommand(),
		a.leaksCommand(),
		a.importCommand(),
		a.adoptCommand(),
		a.deregisterCommand(),
		a.initVolumeCommand(),
		a.expandVolumeCommand(),
		a.modifyVolumeCommand(),
		remove,
	)
}

// goneAs is how a deleted volume goes.
func goneAs(v api.VolumeInfo) string {
	if v.Volume != nil && v.Retained() {
		return "forgotten, and its data stay at the provider"
	}
	return "deleted"
}

func (a *app) listVolumes(cmd *cobra.Command, _ []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	volumes, _, err := c.Volumes(cmd.Context(), client.Query{Namespace: a.ns()})
	if err != nil || a.json {
		return a.orJSON(volumes, err)
	}
	rows := make([][]string, 0, len(volumes))
	for _, v := range volumes {
		rows = append(rows, []string{string(v.ID), string(v.Status.State), string(v.Spec.PluginID), a.bytes(v.Status.Capacity), a.when(v.CreateTime)})
	}
	a.list("ID STATE PLUGIN?2 CAPACITY?3 AGE?1", rows, a.inNamespace("volumes"))
	return nil
}

// owner is the allocation that a volume was made for, and goes with.
func owner(v *api.Volume) string {
	if v == nil || v.Owner == "" {
		return ""
	}
	return "allocation " + v.Owner.Short() + ", with which it goes"
}

// orJSON prints v if there is no error.
func (a *app) orJSON(v any, err error) error {
	if err != nil {
		return err
	}
	return a.printJSON(v)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (a *app) showVolume(cmd *cobra.Command, args []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	v, err := a.findVolume(cmd.Context(), c, args[0])
	if err != nil || a.json {
		return a.orJSON(v, err)
	}
	a.facts(
		"ID", string(v.ID), "Namespace", string(v.Namespace), "Name", v.Spec.Name, "Owner", owner(v.Volume),
		"State", string(v.Status.State), "Reason", v.Status.Reason,
		"Plugin", string(v.Spec.PluginID), "External ID", v.Status.ExternalID, "Origin", origin(&v.Spec), "Secrets", strings.Join(v.Secrets, ", "),
		"Capacity", size(v.Status.Capacity), "Expansion", expansion(v.Volume),
		"Parameters", pairs(v.Status.MutableParameters), "Modification", modification(v.Volume), "Capabilities", capabilities(v.Spec.Capabilities),
		"Topology", topologies(v.Status.AccessibleTopology), "Snapshots", schedule(v.Volume), "Age", age(v.CreateTime),
	)
	if len(v.Attachments) > 0 {
		a.section("Held by")
		rows := make([][]string, 0, len(v.Attachments))
		for _, at := range v.Attachments {
			rows = append(rows, []string{at.AllocID.Short(), string(at.JobID), string(at.NodeID), at.Name,
				writes(at), string(at.Status.State), orDash(at.Status.TargetPath)})
		}
		a.table("ALLOCATION JOB?4 NODE!?5 REQUEST?1 USE?2 STATE MOUNTED-AT~?3", rows)
	}
	if len(v.Publications) > 0 {
		a.section("On nodes")
		rows := make([][]string, 0, len(v.Publications))
		for _, p := range v.Publications {
			rows = append(rows, []string{string(p.NodeID), attached(p), yes(p.Status.Staged), orDash(p.Status.ExternalNodeID)})
		}
		a.table("NODE! ATTACHED STAGED?2 EXTERNAL-NODE?1", rows)
		a.growth(v.Publications)
	}
	a.usages(cmd, c, &v)
	a.snapshots(&v)
	a.findings(v.Findings)
	a.operations(v.Operations)
	a.waits(v.Waits)
	return nil
}

// findVolume reads a volume by its id, or the beginning of it.
func (a *app) findVolume(ctx context.Context, c *client.Client, word string) (api.VolumeInfo, error) {
	return find(ctx, search{a, c, "volume"}, word, func(id string) (api.VolumeInfo, error) {
		v, _, err := c.Volume(ctx, a.ns(), api.VolumeID(id), client.Query{})
		return v, err
	})
}

// origin is what the volume was before anybody wrote to it, if it was anything.
func origin(s *api.VolumeSpec) string {
	switch {
	case s.Registered():
		return "registered"
	case s.SnapshotID != "":
		return "made from snapshot " + s.SnapshotID
	case s.CloneID != "":
		return "made as a copy of " + s.CloneID
	}
	return ""
}

func writes(at *api.Attachment) string {
	if at.Writes() {
		return "read-write"
	}
	return "read-only"
}

// attached is what the provider is known to have done. A plugin that attaches
// nothing was never asked.
func attached(p *api.Publication) string {
	if p.Status.Outcome == api.OutcomeNone {
		return "-"
	}
	return string(p.Status.Outcome)
}

func capabilities(list []api.Capability) string {
	words := make([]string, len(list))
	for i, c := range list {
		words[i] = fmt.Sprintf("%s/%s", c.AccessMode, c.AttachmentMode)
	}
	return strings.Join(words, ", ")
}
