package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

func (a *app) snapshotCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List the snapshots of the namespace, or those that a plugin has",
		Long: "Lists the snapshots of the namespace. With --plugin the plugin is asked for all snapshots that it has, also those that the\n" +
			"cluster does not know; EXTERNAL-ID is what snapshot_id of a volume's file takes for them. Nothing is recorded.",
		Args: cobra.NoArgs,
	}
	volume := list.Flags().String("volume", "", "only those of the `volume` with this id")
	plugin := list.Flags().String("plugin", "", "those that this `plugin` has, as it says now")
	list.RunE = func(cmd *cobra.Command, _ []string) error {
		if *plugin != "" {
			return a.pluginSnapshots(cmd, api.PluginID(*plugin), *volume)
		}
		return a.listSnapshots(cmd, *volume)
	}
	return group("snapshot", "Snapshots: points in time of volumes",
		a.createSnapshotCommand(),
		list,
		&cobra.Command{Use: "status ID", Short: "Show a snapshot, what was done, and what it waits for", Args: cobra.ExactArgs(1), RunE: a.showSnapshot},
		a.deleteSnapshotCommand(),
	)
}

func (a *app) createSnapshotCommand() *cobra.Command {
	var wait *waiting
	var when restsOn
	var keep string
	var parameters map[string]string
	create := &cobra.Command{
		Use:   "create VOLUME [NAME]",
		Short: "Make a snapshot of a volume, and wait until it can be used",
		Long: "Makes a snapshot of a volume as its plugin does, and waits until a volume can be made from it (snapshot_id in a volume\n" +
			"file). Without a name it gets the volume's and the time, in UTC. It stays until it is deleted, also when its volume\n" +
			"goes, or for the time that --keep gives it. With a name it can be repeated: the same again changes nothing.",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			kept, err := days(keep)
			if err != nil {
				return Usage(err)
			}
			id := api.SnapshotID(args[0] + "-" + time.Now().UTC().Format("20060102-150405"))
			if len(args) == 2 {
				id = api.SnapshotID(args[1])
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			creation := api.SnapshotCreation{VolumeID: api.VolumeID(args[0]), Spec: api.SnapshotSpec{Keep: api.Duration(kept), Parameters: parameters}}
			s, err := when.client(c).CreateSnapshot(cmd.Context(), a.ns(), id, creation)
			if err != nil {
				return search{a, c, "volume"}.notFound(cmd.Context(), args[0], when.orRepeat(err))
			}
			if !wait.detach {
				ctx, cancel := wait.limit(cmd.Context())
				defer cancel()
				err = a.wait(ctx, func(ctx context.Context) error {
					s, err = a.awaitSnapshot(ctx, c, a.ns(), id)
					return err
				})
			}
			if a.json || err != nil {
				return a.orJSON(s, err)
			}
			if wait.detach {
				a.progress("snapshot %s/%s is to be made", a.ns(), id)
			}
			return nil
		},
	}
	createFlag(create, &when.createOnly)
	create.Flags().StringVar(&keep, "keep", "", "delete it after this `time`, such as 30d or 12h (default: it stays)")
	create.Flags().StringToStringVar(&parameters, "parameter", nil, "a `key=value` for the plugin; may be repeated")
	wait = waitFlags(create)
	return create
}

// days reads a duration that may be one of days or weeks: 30d, 2w.
func days(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	const day = 24 * time.Hour
	d, err := time.ParseDuration(text)
	for unit, length := range map[string]time.Duration{"d": day, "w": 7 * day} {
		if number, ok := strings.CutSuffix(text, unit); ok {
			var n int
			n, err = strconv.Atoi(number)
			d = time.Duration(n) * length
		}
	}
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("--keep is %q; give a time such as 30d, 2w or 12h", text)
	}
	return d, nil
}

func (a *app) deleteSnapshotCommand() *cobra.Command {
	var wait *waiting
	remove := &cobra.Command{
		Use:   "delete ID",
		Short: "Delete a snapshot, and wait until it is gone",
		Long: "Deletes a snapshot at its plugin, and waits until it is gone. While a volume is being made from it that is refused. Where\n" +
			"the plugin does not delete what volumes depend on, it waits, says for which, and goes on by itself.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			id := api.SnapshotID(args[0])
			if err := c.DeleteSnapshot(cmd.Context(), a.ns(), id, 0); err != nil {
				return search{a, c, "snapshot"}.notFound(cmd.Context(), args[0], orRepeat(err))
			}
			if wait.detach {
				a.progress("snapshot %s/%s is to be deleted", a.ns(), id)
				return nil
			}
			ctx, cancel := wait.limit(cmd.Context())
			defer cancel()
			return a.wait(ctx, func(ctx context.Context) error { return a.awaitSnapshotGone(ctx, c, a.ns(), id) })
		},
	}
	wait = waitFlags(remove)
	return remove
}

func snapshotReader(c *client.Client, ns api.NamespaceID, id api.SnapshotID) func(context.Context, client.Query) (api.SnapshotInfo, uint64, error) {
	return func(ctx context.Context, q client.Query) (api.SnapshotInfo, uint64, error) {
		return c.Snapshot(ctx, ns, id, q)
	}
}

func (a *app) snapshotWatcher(ns api.NamespaceID, id api.SnapshotID) *watcher {
	return &watcher{app: a, what: fmt.Sprintf("snapshot %s/%s", ns, id), look: "snapshot status " + string(id) + in(ns)}
}

func (a *app) awaitSnapshot(ctx context.Context, c *client.Client, ns api.NamespaceID, id api.SnapshotID) (api.SnapshotInfo, error) {
	w := a.snapshotWatcher(ns, id)
	return await(ctx, w, snapshotReader(c, ns, id), func(s api.SnapshotInfo, err error) (bool, error) {
		if err != nil {
			return false, err
		}
		switch s.Status.State {
		case api.SnapshotReady:
			made := ""
			if s.Status.Size > 0 {
				made = " (" + size(s.Status.Size) + ")"
			}
			w.reached(string(s.Status.State), made)
			return true, nil
		case api.SnapshotFailed:
			return false, fmt.Errorf("it could not be made: %s", s.Status.Reason)
		case api.SnapshotDeleting:
			return false, errors.New("it is being deleted")
		case api.SnapshotCreating:
			w.waits(string(s.Status.State), s.Waits)
		}
		return false, nil
	})
}

func (a *app) awaitSnapshotGone(ctx context.Context, c *client.Client, ns api.NamespaceID, id api.SnapshotID) error {
	w := a.snapshotWatcher(ns, id)
	_, err := await(ctx, w, snapshotReader(c, ns, id), func(s api.SnapshotInfo, err error) (bool, error) {
		switch {
		case api.CodeOf(err) == api.CodeNotFound:
			w.reached("deleted", "")
			return true, nil
		case err != nil:
			return false, err
		}
		w.waits(string(s.Status.State), s.Waits)
		return false, nil
	})
	return err
}

func (a *app) listSnapshots(cmd *cobra.Command, volume string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	all, _, err := c.Snapshots(cmd.Context(), client.Query{Namespace: a.ns(), Volume: api.VolumeID(volume)})
	if err != nil || a.json {
		return a.orJSON(all, err)
	}
	a.list(snapshotHeading, snapshotRows(all, a.bytes, a.when), a.inNamespace("snapshots"))
	return nil
}

const snapshotHeading = "ID STATE VOLUME?4 OWNER?2 SIZE?3 AGE?1"

func snapshotRows(all []*api.Snapshot, bytes func(int64) string, when func(time.Time) string) [][]string {
	rows := make([][]string, 0, len(all))
	for _, s := range all {
		rows = append(rows, []string{string(s.ID), string(s.Status.State), string(s.VolumeID), string(s.Owner), bytes(s.Status.Size), when(s.CreateTime)})
	}
	return rows
}

func (a *app) showSnapshot(cmd *cobra.Command, args []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	s, err := find(cmd.Context(), search{a, c, "snapshot"}, args[0], func(id string) (api.SnapshotInfo, error) {
		s, _, err := c.Snapshot(cmd.Context(), a.ns(), api.SnapshotID(id), client.Query{})
		return s, err
	})
	if err != nil || a.json {
		return a.orJSON(s, err)
	}
	expires, scheduled, cut := "", "", ""
	if e := s.Expires(); !e.IsZero() {
		expires = until(e)
	}
	if !s.Scheduled.IsZero() {
		scheduled = s.Scheduled.UTC().Format(time.RFC3339)
	}
	if !s.Status.Created.IsZero() {
		cut = s.Status.Created.UTC().Format(time.RFC3339)
	}
	volumes := make([]string, len(s.Volumes))
	for i, v := range s.Volumes {
		volumes[i] = string(v)
	}
	a.facts(
		"ID", string(s.ID), "Namespace", string(s.Namespace), "Volume", string(s.VolumeID), "Plugin", string(s.PluginID),
		"State", string(s.Status.State), "Reason", s.Status.Reason, "Owner", string(s.Owner), "Scheduled", scheduled,
		"External ID", s.Status.ExternalID, "Size", size(s.Status.Size), "Cut at", cut, "Expires", expires,
		"Topology", topologies(s.Status.AccessibleTopology), "Volumes from it", strings.Join(volumes, ", "), "Age", age(s.CreateTime),
	)
	a.operations(s.Operations)
	a.waits(s.Waits)
	return nil
}

// snapshots prints a section of a volume's snapshots, and where its schedule is.
func (a *app) snapshots(v *api.VolumeInfo) {
	if len(v.Snapshots) == 0 {
		return
	}
	a.section("Snapshots")
	a.table(snapshotHeading, snapshotRows(v.Snapshots, size, age))
}

// schedule is a volume's snapshot schedule in words.
func schedule(v *api.Volume) string {
	s := v.Spec.SnapshotSchedule
	if s == nil {
		return ""
	}
	text := fmt.Sprintf("%s UTC, keep %d", s.Cron, s.Keep)
	is := v.Status.Schedule
	if is == nil || is.Next.IsZero() {
		return text
	}
	text += ", next " + until(is.Next)
	if is.Missed > 0 {
		text += fmt.Sprintf("; %s stands for %d more times: %s", is.Snapshot, is.Missed, is.Reason)
	}
	if is.Skipped > 0 {
		text += fmt.Sprintf("; %d times passed without one: %s", is.Skipped, is.Reason)
	}
	return text
}
