package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

// fenceCommand is an operator's word that a machine is off.
func (a *app) fenceCommand() *cobra.Command {
	var yes bool
	var ask api.FenceRequest
	cmd := &cobra.Command{
		Use:   "fence NODE",
		Short: "Say that a node is off or cut off from its storage, and let go of all that it holds",
		Long: "While a node is down nobody knows what still runs there, so its allocations are not replaced and its volumes are not\n" +
			"moved. This is your word that the machine is switched off, or cut off from its storage: its allocations are lost and\n" +
			"replaced elsewhere, and its volumes are detached without its word. If the machine still writes, data are destroyed:\n" +
			"switch it off first. Your word is kept, with --reason, in the history of all that moves by it. A node that comes back\n" +
			"ends and unmounts what it ran before it gets anything new.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, n, err := a.findNode(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if n.Status.Fence == nil && !yes {
				a.holds(&n)
				if err := a.confirm("Is node " + string(n.ID) + " off or cut off from its storage?"); err != nil {
					return err
				}
			}
			if ask.By == "" {
				ask.By = a.user()
			}
			fenced, err := c.FenceNode(cmd.Context(), n.ID, ask)
			if err != nil || a.json {
				return a.orJSON(fenced, err)
			}
			if n.Status.Fence != nil {
				a.progress("node %s is fenced already: %s", n.ID, n.Status.Fence)
				return nil
			}
			a.progress("node %s is fenced: what it ran is lost, and its volumes are detached without its word", n.ID)
			return nil
		},
	}
	cmd.Flags().StringVar(&ask.Reason, "reason", "", "how you know that it can write to nothing any more, for the record; it must be given")
	cmd.Flags().StringVar(&ask.By, "by", "", "who says so, for the record (default: who you are on this machine)")
	cmd.Flags().BoolVar(&ask.Force, "force", false, "also while its agent is in contact, which then ends all that it runs")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// forgetCommand removes a node that is gone.
func (a *app) forgetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "forget NODE",
		Short: "Remove a node that is gone for good and holds nothing",
		Long: "Removes a node from the cluster. It is refused while its agent is in contact, and while the node may still run or have\n" +
			"mounted anything, unless it was fenced. What is still to be detached from it goes on. If its agent comes back, it\n" +
			"registers again, and ends what is left from before first. With --json it prints nothing: nothing is left.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, n, err := a.findNode(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := c.ForgetNode(cmd.Context(), n.ID, 0); err != nil {
				return err
			}
			a.progress("node %s is forgotten", n.ID)
			return nil
		},
	}
}

// findNode reads a node by its id, or the beginning of it.
func (a *app) findNode(ctx context.Context, word string) (*client.Client, api.NodeInfo, error) {
	c, err := a.client()
	if err != nil {
		return nil, api.NodeInfo{}, err
	}
	n, err := find(ctx, search{a, c, "node"}, word, func(id string) (api.NodeInfo, error) {
		n, _, err := c.Node(ctx, api.NodeID(id), client.Query{})
		return n, err
	})
	return c, n, err
}

// holds says what a fence would release.
func (a *app) holds(n *api.NodeInfo) {
	fmt.Fprintf(a.Stderr, "Node %s is %s. To fence it\n", plain(string(n.ID)), plain(n.Condition()))
	for _, al := range n.Allocations {
		if !al.Terminal() {
			fmt.Fprintf(a.Stderr, "  loses allocation %s %s\n", plain(al.ID.Short()), plain(al.Name()))
		}
	}
	var volumes []string
	for _, p := range n.Publications {
		volumes = append(volumes, string(p.Namespace)+"/"+string(p.VolumeID))
	}
	slices.Sort(volumes)
	for _, v := range volumes {
		fmt.Fprintf(a.Stderr, "  releases volume %s\n", plain(v))
	}
}

// confirm asks a person on a terminal. Where none is, nobody can have meant it.
func (a *app) confirm(question string) error {
	if a.LiveColumns == nil || a.LiveColumns() == 0 {
		return Usage(errors.New("this asks for your confirmation, and there is no terminal to ask on: give --yes"))
	}
	fmt.Fprintf(a.Stderr, "%s Write yes to go on: ", plain(question))
	answer, err := bufio.NewReader(a.Stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if strings.TrimSpace(answer) != "yes" {
		return errors.New("nothing was done: the answer was not yes")
	}
	return nil
}
