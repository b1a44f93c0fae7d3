package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

func (a *app) systemCommand() *cobra.Command {
	var force bool
	confirm := &cobra.Command{
		Use:   "confirm",
		Short: "Let a restored cluster go on",
		Long: "After a restore the servers may believe what is no longer so. Until this command they start, stop, detach and\n" +
			"delete nothing. It is refused while nodes have not reported; --force goes on without them. First the nodes end\n" +
			"what the restored state does not know; then the cluster goes on.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			rec, err := c.Recovery(cmd.Context())
			if err != nil {
				return err
			}
			rec, err = c.ConfirmRecovery(cmd.Context(), rec.Generation.Number, force)
			return a.showRecovery(rec, err)
		},
	}
	confirm.Flags().BoolVar(&force, "force", false, "go on although some nodes have not reported")
	recovery := &cobra.Command{
		Use:   "recovery",
		Short: "Show where a restored cluster is on its way back",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			return a.showRecovery(c.Recovery(cmd.Context()))
		},
	}
	recovery.AddCommand(confirm)
	gc := &cobra.Command{
		Use:   "gc",
		Short: "Remove now what has ended: operations, freed attachments, allocations, stopped jobs, failed snapshots, lost nodes",
		Long: "Removes what has ended and nobody needs, whatever its age: operations, allocations that have a successor or need none, the\n" +
			"attachments that they have freed, jobs that were stopped, snapshots that were never made, and nodes that have been down for\n" +
			"an hour and have nothing. The servers do the same by themselves after the times of server.keep in their configuration. What\n" +
			"holds a volume, runs or may run is never removed, nor is a snapshot that was made.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			n, err := c.CollectGarbage(cmd.Context())
			if err != nil || a.json {
				return a.orJSON(n, err)
			}
			fmt.Fprintf(a.Stdout, "removed: operations %d, attachments %d, allocations %d, jobs %d, snapshots %d, nodes %d\n",
				n.Operations, n.Attachments, n.Allocations, n.Jobs, n.Snapshots, n.Nodes)
			return nil
		},
	}
	return group("system", "The servers' own state",
		gc,
		group("snapshot", "Save and restore the servers' state",
			&cobra.Command{Use: "save FILE", Short: "Save the state to a file", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
				c, err := a.client()
				if err != nil {
					return err
				}
				if err := saveState(cmd.Context(), c, args[0]); err != nil {
					return fmt.Errorf("save state to %s: %w", args[0], err)
				}
				a.progress("state saved to %s", args[0])
				return nil
			}},
			&cobra.Command{Use: "restore FILE", Short: "Replace the state by a saved one; nothing moves until 'berth system recovery confirm'", Args: cobra.ExactArgs(1), RunE: a.restoreState},
		),
		recovery,
	)
}

// saveState writes a file that is whole or not there.
func saveState(ctx context.Context, c *client.Client, path string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".berth-state-*")
	if err != nil {
		return Usage(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	err = errors.Join(c.SaveState(ctx, f), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func (a *app) restoreState(cmd *cobra.Command, args []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	f, err := os.Open(args[0])
	if err != nil {
		return Usage(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	return a.showRecovery(c.RestoreState(cmd.Context(), f))
}

func (a *app) showRecovery(rec api.Recovery, err error) error {
	if err != nil || a.json {
		return a.orJSON(rec, err)
	}
	a.facts("Generation", strconv.FormatUint(rec.Generation.Number, 10), "Recovering", yes(rec.Generation.Recovering),
		"Reason", rec.Generation.Reason)
	for _, n := range rec.Missing {
		fmt.Fprintf(a.Stdout, "node %s has not reported\n", plain(string(n)))
	}
	for _, n := range rec.Clearing {
		fmt.Fprintf(a.Stdout, "node %s is to end what the restored state does not know\n", plain(string(n)))
	}
	switch {
	case !rec.Generation.Recovering:
	case rec.Generation.Confirmed:
		fmt.Fprintln(a.Stdout, "confirmed: the cluster goes on when they have; to go on without them, use 'berth system recovery confirm --force' again")
	case len(rec.Missing) > 0:
		fmt.Fprintln(a.Stdout, "bring them back, or go on without them by 'berth system recovery confirm --force'")
	default:
		fmt.Fprintln(a.Stdout, "all nodes have reported: look at them, then run 'berth system recovery confirm'")
	}
	return nil
}
