package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

// drainCommand empties a node.
func (a *app) drainCommand() *cobra.Command {
	var ask api.DrainRequest
	var deadline time.Duration
	var disable, keep, ignoreSystem bool
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Empty a node: what it runs moves away, with its volumes",
		Long: "The node gets nothing new, and what it runs moves to other nodes: services one after the other, as the migrate block of\n" +
			"their job says, each when another node has room for it; batches may run to their end; then system jobs are stopped, and\n" +
			"last the plugins that other tasks' volumes need. A volume moves with its allocation, as soon as the node has let go of\n" +
			"it. At the deadline what is still there is stopped, also if it has nowhere to go. The command shows what is still there\n" +
			"and what each waits for, until the node is empty; the drain goes on without it. The node then stays ineligible:\n" +
			"'berth node eligibility --enable' brings it back. Of a node that is being drained, flags change what they say,\n" +
			"and without any the command only shows how far it is.",
		Args: cobra.ExactArgs(1),
	}
	var w *waiting
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := drainMisuse(cmd.Flags().Changed, deadline); err != nil {
			return Usage(err)
		}
		c, n, err := a.findNode(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if disable {
			return a.stopDrain(cmd.Context(), c, &n, keep)
		}
		if cmd.Flags().Changed("deadline") {
			ask.Deadline = api.Duration(deadline)
		}
		if cmd.Flags().Changed("ignore-system") {
			ask.IgnoreSystem = &ignoreSystem
		}
		drained, err := a.beginDrain(cmd.Context(), c, n, ask)
		if err != nil {
			return err
		}
		if !w.detach {
			return a.watchDrain(cmd.Context(), c, w, drained)
		}
		if a.json {
			return a.printJSON(drained)
		}
		if d := drained.Status.Drained; drained.Spec.Drain == nil && d != nil && d.Complete {
			a.progress("node %s is drained%s", n.ID, comesBack(drained.Node))
			return nil
		}
		a.progress("node %s is being drained%s", n.ID, endsBy(drained.Node))
		return nil
	}
	cmd.Flags().DurationVar(&deadline, "deadline", time.Duration(api.DefaultDrain), "stop what is still there after this `duration`")
	cmd.Flags().BoolVar(&ask.NoDeadline, "no-deadline", false, "wait as long as it takes")
	cmd.Flags().BoolVar(&ask.Force, "force", false, "stop all at once, whether or not it has anywhere to go")
	cmd.Flags().BoolVar(&ignoreSystem, "ignore-system", false, "leave system and sysbatch jobs there")
	cmd.Flags().BoolVar(&disable, "disable", false, "call the node's drain off; what has moved does not come back by itself")
	cmd.Flags().BoolVar(&keep, "keep-ineligible", false, "with --disable: the node gets nothing new nevertheless")
	cmd.Flags().StringVar(&ask.Reason, "reason", "", "why, for the record")
	cmd.Flags().StringVar(&ask.By, "by", "", "who asks, for the record (default: who you are on this machine)")
	w = waitFlags(cmd)
	return cmd
}

// beginDrain asks for a drain, unless one goes on of which nothing is to change.
func (a *app) beginDrain(ctx context.Context, c *client.Client, n api.NodeInfo, ask api.DrainRequest) (api.NodeInfo, error) {
	if n.Spec.Drain != nil && ask == (api.DrainRequest{}) {
		return n, nil
	}
	if ask.By == "" {
		ask.By = a.user()
	}
	return c.DrainNode(ctx, n.ID, ask, 0)
}

// drainMisuse says which flags do not go together.
func drainMisuse(set func(string) bool, deadline time.Duration) error {
	given := 0
	for _, name := range []string{"deadline", "no-deadline", "force"} {
		if set(name) {
			given++
		}
	}
	switch {
	case set("disable") && (given > 0 || set("ignore-system")):
		return errors.New("--disable calls a drain off: it takes no --deadline, --no-deadline, --force or --ignore-system")
	case set("keep-ineligible") && !set("disable"):
		return errors.New("--keep-ineligible goes with --disable: a node that is drained stays ineligible")
	case given > 1:
		return errors.New("give one of --deadline, --no-deadline and --force")
	case deadline <= 0:
		return fmt.Errorf("--deadline is %s; give a duration such as 1h, or --force to stop all at once", deadline)
	}
	return nil
}

// watchDrain shows a drain until the node is empty.
func (a *app) watchDrain(ctx context.Context, c *client.Client, w *waiting, n api.NodeInfo) error {
	ctx, cancel := w.limit(ctx)
	defer cancel()
	err := a.wait(ctx, func(ctx context.Context) (err error) {
		n, err = a.awaitDrained(ctx, c, n)
		return err
	})
	if err != nil || !a.json {
		return err
	}
	return a.printJSON(n)
}

func (a *app) stopDrain(ctx context.Context, c *client.Client, n *api.NodeInfo, keep bool) error {
	after, err := c.StopDrain(ctx, n.ID, keep, 0)
	if err != nil || a.json {
		return a.orJSON(after, err)
	}
	switch {
	case n.Spec.Drain == nil:
		a.progress("node %s is not being drained%s", n.ID, comesBack(after.Node))
	default:
		a.progress("the drain of node %s is called off%s", n.ID, comesBack(after.Node))
	}
	return nil
}

// comesBack says how a node that gets nothing is brought back.
func comesBack(n *api.Node) string {
	if !n.Spec.Ineligible {
		return ""
	}
	return fmt.Sprintf("; it gets nothing new until 'berth node eligibility --enable %s'", n.ID)
}

// endsBy says when what a drain has not moved is stopped.
func endsBy(n *api.Node) string {
	if n.Spec.Drain == nil || n.Spec.Drain.Deadline.IsZero() {
		return ""
	}
	return ", until " + n.Spec.Drain.Deadline.UTC().Format(time.RFC3339) + " at the latest"
}

// awaitDrained waits until a node is empty, and shows what is still there.
func (a *app) awaitDrained(ctx context.Context, c *client.Client, n api.NodeInfo) (api.NodeInfo, error) {
	w := &watcher{app: a, what: "node " + string(n.ID), look: "node status " + string(n.ID)}
	started := drainBegan(n.Node)
	there := map[string]*watcher{}
	read := func(ctx context.Context, q client.Query) (api.NodeInfo, uint64, error) { return c.Node(ctx, n.ID, q) }
	return await(ctx, w, read, func(n api.NodeInfo, err error) (bool, error) {
		if err != nil {
			return false, err
		}
		if n.Spec.Drain != nil {
			w.is("being drained", endsBy(n.Node))
			a.stillThere(there, w, n.Waits)
			return false, nil
		}
		a.stillThere(there, w, nil)
		if d := n.Status.Drained; d == nil || !d.Complete || !d.Started.Equal(started) {
			return false, errors.New("its drain was called off")
		}
		w.reached("drained", comesBack(n.Node))
		return true, nil
	})
}

// drainBegan is when the drain of a node began that goes on, or else the last:
// one that finds nothing there is over at once.
func drainBegan(n *api.Node) time.Time {
	switch {
	case n.Spec.Drain != nil:
		return n.Spec.Drain.Started
	case n.Status.Drained != nil:
		return n.Status.Drained.Started
	}
	return time.Time{}
}

// stillThere shows what each thing on a node waits for, and drops what is gone.
func (a *app) stillThere(there map[string]*watcher, node *watcher, waits []api.Wait) {
	now := map[string]bool{}
	for _, w := range waits {
		if w.Subject == node.what || now[w.Subject] {
			continue
		}
		now[w.Subject] = true
		if there[w.Subject] == nil {
			there[w.Subject] = &watcher{app: a, what: w.Subject}
		}
		there[w.Subject].is("there", ": "+w.Reason)
	}
	for subject := range there {
		if !now[subject] {
			a.screen.drop(subject)
			delete(there, subject)
		}
	}
}

// eligibilityCommand says whether a node gets anything new.
func (a *app) eligibilityCommand() *cobra.Command {
	var enable, disable bool
	cmd := &cobra.Command{
		Use:   "eligibility --enable|--disable NODE",
		Short: "Say whether a node gets new allocations",
		Long: "A node that is not eligible gets no new allocations, also none of system jobs. What runs there goes on, and what its\n" +
			"agent does for volumes too. To empty a node, use 'berth node drain'.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if enable == disable {
				return Usage(errors.New("give --enable or --disable"))
			}
			c, n, err := a.findNode(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			after, err := c.SetEligibility(cmd.Context(), n.ID, enable, 0)
			if err != nil || a.json {
				return a.orJSON(after, err)
			}
			if enable {
				a.progress("node %s is eligible: it gets new allocations", n.ID)
			} else {
				a.progress("node %s is not eligible: it gets no new allocations, and what it runs goes on", n.ID)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&enable, "enable", false, "it gets new allocations")
	cmd.Flags().BoolVar(&disable, "disable", false, "it gets none")
	return cmd
}

// draining is a node's drain in a line: the one that goes on, or the last.
func draining(n *api.Node) string {
	d, last := n.Spec.Drain, n.Status.Drained
	switch {
	case d != nil:
		return strings.TrimSuffix(ago(d.Started)+record(d.By, d.Reason)+endsBy(n), " ")
	case last != nil && last.Complete:
		return "done " + ago(last.Ended) + record(last.By, last.Reason)
	case last != nil:
		return calledOff(last)
	}
	return ""
}

// calledOff is how a drain ended that was called off: by whom, and whose it was.
func calledOff(last *api.Drained) string {
	was := record(last.By, last.Reason)
	if last.CalledOffBy == "" {
		return "called off " + ago(last.Ended) + was
	}
	if was != "" {
		was = "; it was begun" + was
	}
	return "called off " + ago(last.Ended) + " by " + last.CalledOffBy + was
}

// eligibility is who said whether a node gets allocations.
func eligibility(n *api.Node) string {
	switch by := n.Spec.EligibilityBy; {
	case by == "":
		return ""
	case n.Spec.Ineligible:
		return "gets no new allocations, said by " + by
	default:
		return "gets new allocations, said by " + by
	}
}

// record is what somebody has said about what they did.
func record(by, reason string) string {
	text := ""
	if by != "" {
		text = " by " + by
	}
	if reason != "" {
		text += ": " + reason
	}
	return text
}
