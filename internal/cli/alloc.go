package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

func (a *app) allocCommand() *cobra.Command {
	return group("alloc", "Allocations: instances of jobs on nodes",
		&cobra.Command{Use: "list", Short: "List the allocations of the namespace", Args: cobra.NoArgs, RunE: a.listAllocs},
		&cobra.Command{Use: "status ID", Short: "Show an allocation, its tasks and volumes, and what it waits for", Args: cobra.ExactArgs(1), RunE: a.showAlloc},
		a.explainCommand("alloc", "an allocation", a.explainAlloc),
		a.logsCommand(),
		a.signalCommand(),
		a.execCommand(),
		&cobra.Command{
			Use: "stats ID", Short: "Show what an allocation's tasks use of processors and memory", Args: cobra.ExactArgs(1), RunE: a.allocStats,
			Long: "Asks the allocation's node, which watches the tasks for half a second. 100 % is one processor. Memory is what a task\n" +
				"holds, without files that the kernel can forget at once.",
		},
		&cobra.Command{
			Use: "restart ID [ID|TASK]...", Short: "Start the tasks of allocations again where they are", Args: cobra.MinimumNArgs(1), RunE: a.restartAllocs,
			Long: "Starts all of an allocation's tasks again that run, or only TASK: on the same node, with the same volumes. Each is asked\n" +
				"to end first, as its kill_signal and kill_timeout say. The node does it as soon as it hears of it, and once, whatever\n" +
				"is restarted meanwhile. It does not count for the job's restart policy. Of several allocations all tasks are started\n" +
				"again: all are looked up before the first is. A second word that is the name of one of the first one's tasks is that.",
		},
	)
}

func (a *app) listAllocs(cmd *cobra.Command, _ []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	allocs, _, err := c.Allocations(cmd.Context(), client.Query{Namespace: a.ns()})
	if err != nil || a.json {
		return a.orJSON(allocs, err)
	}
	sortAllocs(allocs)
	ids := allocIDs(allocs)
	if a.columns() > 0 {
		ids = shortAllocIDs(allocs)
	}
	a.list(allocHeading, allocRows(allocs, ids, a.when), a.inNamespace("allocations"))
	return nil
}

func (a *app) showAlloc(cmd *cobra.Command, args []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	al, err := a.findAlloc(cmd.Context(), c, args[0])
	if err != nil || a.json {
		return a.orJSON(al, err)
	}
	problem := ""
	if p := al.Status.Problem; p != nil {
		problem = strings.TrimPrefix(p.Code+": ", ": ") + p.Message
		problem = p.Step + ": " + problem
	}
	why := ""
	if al.Terminal() && problem == "" {
		why = al.Status.Why()
	}
	a.facts("ID", string(al.ID), "Name", al.Name(), "Namespace", string(al.Namespace), "Node", string(al.NodeID),
		"Desired", strings.TrimSuffix(fmt.Sprintf("%s (%s)", al.Desired, al.DesiredReason), " ()"),
		"State", string(al.Status.State), "Problem", problem, "Because", why, "Age", age(al.CreateTime))
	if len(al.Status.Tasks) > 0 {
		a.section("Tasks")
		var rows [][]string
		for _, name := range slices.Sorted(maps.Keys(al.Status.Tasks)) {
			t := al.Status.Tasks[name]
			rows = append(rows, []string{name, string(t.State), strconv.Itoa(t.Restarts), pid(t), a.started(t), a.ending(t), orDash(t.Dir)})
		}
		a.table("TASK STATE RESTARTS?3 PID?1 STARTED?2 ENDED-WITH~ DIRECTORY~?2", rows)
	}
	if len(al.Status.Events) > 0 {
		a.section("Events")
		var rows [][]string
		for _, e := range al.Status.Events {
			rows = append(rows, []string{e.Time.UTC().Format(time.DateTime), orDash(e.Task), e.Message})
		}
		a.table("TIME TASK MESSAGE~", rows)
	}
	a.checks(&al)
	a.ports(&al)
	if len(al.Attachments) > 0 {
		a.section("Volumes")
		var rows [][]string
		for _, at := range al.Attachments {
			rows = append(rows, []string{at.Name, string(at.VolumeID), writes(at), string(at.Status.State), orDash(at.Status.TargetPath)})
		}
		a.table("REQUEST VOLUME USE?1 STATE MOUNTED-AT~?2", rows)
	}
	a.waits(al.Waits)
	return nil
}

// restartAllocs restarts allocations. With --json it prints the one, or a list of
// several.
func (a *app) restartAllocs(cmd *cobra.Command, args []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	all, task, err := a.toRestart(cmd.Context(), c, args)
	if err != nil {
		return err
	}
	counted, what := api.AllTasks, "all tasks"
	if task != "" {
		counted, what = task, "task "+task
	}
	done := make([]*api.Allocation, 0, len(all))
	for _, al := range all {
		// With a number, a request that is sent again over a broken connection
		// restarts nothing twice.
		now, err := c.RestartAllocation(cmd.Context(), al.ID, api.RestartRequest{Task: task, Number: al.Asked[counted] + 1})
		if err != nil {
			return err
		}
		if !a.json {
			a.print(fmt.Sprintf("%s of allocation %s: restart asked for", what, al.ID.Short()))
		}
		done = append(done, now)
	}
	switch {
	case !a.json:
		return nil
	case len(done) == 1:
		return a.printJSON(done[0])
	}
	return a.printJSON(done)
}

// toRestart are the allocations that words name, and the task, "" for all. The
// second of two words is a task where the first names an allocation that has one of
// that name, or where nothing else is called so.
func (a *app) toRestart(ctx context.Context, c *client.Client, words []string) (all []api.AllocationInfo, task string, err error) {
	named := map[api.AllocID]bool{}
	for i, word := range words {
		if i == 1 && len(words) == 2 {
			if _, there := all[0].Status.Tasks[word]; there {
				return all, word, nil
			}
		}
		al, err := a.findAlloc(ctx, c, word)
		switch {
		case i == 1 && len(words) == 2 && api.CodeOf(err) == api.CodeNotFound:
			return all, word, nil // the servers know what tasks it has
		case err != nil:
			return nil, "", err
		case !named[al.ID]:
			all = append(all, al)
		}
		named[al.ID] = true
	}
	return all, "", nil
}

// findAlloc reads an allocation by the beginning of its id.
func (a *app) findAlloc(ctx context.Context, c *client.Client, word string) (api.AllocationInfo, error) {
	return find(ctx, search{a, c, "alloc"}, word, func(id string) (api.AllocationInfo, error) {
		al, _, err := c.Allocation(ctx, id, client.Query{})
		return al, err
	})
}

// started is since when a task runs.
func (a *app) started(t api.TaskStatus) string {
	if t.State != api.TaskRunning || t.Started.IsZero() {
		return "-"
	}
	return a.when(t.Started)
}

// pid is the process of a task that runs.
func pid(t api.TaskStatus) string {
	if t.State != api.TaskRunning || t.PID == 0 {
		return "-"
	}
	return strconv.Itoa(t.PID)
}

// ending is how a task ended, or how it did before it was started again.
func (a *app) ending(t api.TaskStatus) string {
	switch {
	case t.State == api.TaskEnded:
		return endedWith(t.End())
	case t.Last.Ended.IsZero(): // of one that is to be started again, also: not yet
		return "-"
	case t.State == api.TaskPending && a.columns() > 0:
		return endedWith(t.Last) + ", starts " + until(t.Next)
	}
	return endedWith(t.Last) + " before"
}

func endedWith(e api.TaskEnd) string {
	switch {
	case e.Reason != "":
		return e.Reason
	case e.Signal != 0:
		return fmt.Sprintf("signal %d", e.Signal)
	}
	return fmt.Sprintf("exit %d", e.ExitCode)
}

func heldVolumes(attachments []*api.Attachment) []string {
	var held []string
	for _, at := range attachments {
		if at.Holds() {
			held = append(held, string(at.VolumeID))
		}
	}
	return held
}

func (a *app) allocStats(cmd *cobra.Command, args []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	al, err := a.findAlloc(cmd.Context(), c, args[0])
	if err != nil {
		return err
	}
	f, err := c.AllocFigures(cmd.Context(), al.ID)
	if err != nil || a.json {
		return a.orJSON(f, err)
	}
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(f.Tasks)) {
		t := f.Tasks[name]
		if t.Problem != "" {
			rows = append(rows, []string{name, "-", "-", "-", "-", "-", t.Problem})
			continue
		}
		limit := "-"
		if t.MemoryLimitBytes > 0 {
			limit = bytesOf(t.MemoryLimitBytes)
		}
		rows = append(rows, []string{
			name, fmt.Sprintf("%d%%", t.CPUPercent), fmt.Sprintf("%d.%ds", t.CPUMilliseconds/1000, t.CPUMilliseconds%1000/100), bytesOf(t.MemoryBytes), limit, strconv.Itoa(t.Processes), "-",
		})
	}
	a.table("TASK CPU CPU-TIME MEMORY LIMIT PROCESSES?1 PROBLEM~", rows)
	return nil
}
