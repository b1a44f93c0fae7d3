package cli

import (
	"cmp"
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

func (a *app) jobCommand() *cobra.Command {
	var wait *waiting
	stop := &cobra.Command{
		Use:   "stop ID",
		Short: "Stop a job, and wait until its tasks have ended and its volumes are free",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			id := api.JobID(args[0])
			info, err := c.StopJob(cmd.Context(), a.ns(), id, 0)
			if err != nil {
				return search{a, c, "job"}.notFound(cmd.Context(), args[0], orRepeat(err))
			}
			ctx, cancel := wait.limit(cmd.Context())
			defer cancel()
			if wait.detach {
				a.progress("job %s/%s is %s", a.ns(), id, info.State)
			} else if err := a.wait(ctx, func(ctx context.Context) error {
				info, err = a.awaitStopped(ctx, c, id)
				return err
			}); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(info)
			}
			return nil
		},
	}
	wait = waitFlags(stop)
	return group("job", "Jobs: what to run",
		&cobra.Command{Use: "list", Short: "List the jobs of the namespace", Args: cobra.NoArgs, RunE: a.listJobs},
		&cobra.Command{Use: "status ID", Short: "Show a job, its allocations, and what it waits for", Args: cobra.ExactArgs(1), RunE: a.showJob},
		a.explainCommand("job", "a job", a.explainJob),
		a.jobHistoryCommand(),
		a.jobRevertCommand(),
		a.jobPromoteCommand(),
		a.jobScaleCommand(),
		a.initJobCommand(),
		stop,
	)
}

func (a *app) listJobs(cmd *cobra.Command, _ []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	jobs, _, err := c.Jobs(cmd.Context(), client.Query{Namespace: a.ns()})
	if err != nil || a.json {
		return a.orJSON(jobs, err)
	}
	rows := make([][]string, 0, len(jobs))
	for _, j := range jobs {
		rows = append(rows, []string{string(j.ID), string(j.Spec.Type), string(j.State), strconv.FormatUint(j.Revision, 10), a.when(j.CreateTime)})
	}
	a.list("ID TYPE?2 STATE REVISION?3 AGE?1", rows, a.inNamespace("jobs"))
	return nil
}

func (a *app) showJob(cmd *cobra.Command, args []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	j, err := a.findJob(cmd.Context(), c, args[0])
	if err != nil || a.json {
		return a.orJSON(j, err)
	}
	a.facts("ID", string(j.ID), "Namespace", string(j.Namespace), "Type", string(j.Spec.Type), "State", string(j.State), "Stopped by", j.Status.StoppedBy, "Healthy", healthyOf(&j),
		"Revision", strconv.FormatUint(j.Revision, 10), "Age", age(j.CreateTime))
	if len(j.Allocations) > 0 {
		a.section("Allocations")
		a.allocTable(j.Allocations)
	}
	a.waits(j.Waits)
	return nil
}

// healthyOf is in how many of a job's places an allocation is healthy; nothing is
// said of batches.
func healthyOf(j *api.JobInfo) string {
	if j.Spec.Type.Ends() {
		return ""
	}
	type place struct {
		group string
		index int
	}
	places := map[place]bool{}
	for _, g := range j.Spec.Groups {
		for i := range g.Count {
			places[place{g.Name, i}] = true
		}
	}
	if j.Spec.Type.Everywhere() || j.Desired == api.Absent {
		clear(places)
	}
	for _, al := range j.Allocations {
		if !al.Terminal() {
			places[place{al.Group, al.Index}] = true
		}
	}
	return fmt.Sprintf("%d of %d", j.Healthy, len(places))
}

// findJob reads a job by its id, or the beginning of it.
func (a *app) findJob(ctx context.Context, c *client.Client, word string) (api.JobInfo, error) {
	return find(ctx, search{a, c, "job"}, word, func(id string) (api.JobInfo, error) {
		j, _, err := c.Job(ctx, a.ns(), api.JobID(id), client.Query{})
		return j, err
	})
}

func sortAllocs(allocs []*api.Allocation) {
	slices.SortFunc(allocs, func(x, y *api.Allocation) int {
		return cmp.Or(cmp.Compare(x.CreateIndex, y.CreateIndex), cmp.Compare(x.Group, y.Group), cmp.Compare(x.Index, y.Index))
	})
}

// allocTable prints allocations, newest last.
func (a *app) allocTable(allocs []*api.Allocation) {
	sortAllocs(allocs)
	a.table(allocHeading, allocRows(allocs, shortAllocIDs(allocs), age))
}

const allocHeading = "ID NAME! NODE?3 DESIRED?2 STATE AGE?1"

func allocRows(allocs []*api.Allocation, ids []string, when func(time.Time) string) [][]string {
	rows := make([][]string, 0, len(allocs))
	for i, al := range allocs {
		rows = append(rows, []string{ids[i], al.Name(), string(al.NodeID), string(al.Desired), string(al.Status.State), when(al.CreateTime)})
	}
	return rows
}

func allocIDs(allocs []*api.Allocation) []string {
	ids := make([]string, len(allocs))
	for i, al := range allocs {
		ids[i] = string(al.ID)
	}
	return ids
}

// shortAllocIDs are as short as the listed allocations can be told apart.
func shortAllocIDs(allocs []*api.Allocation) []string {
	return shortIDs(allocIDs(allocs), api.ShortIDLength)
}

// topologies are sets of segments for people.
func topologies(list []api.Topology) string {
	sets := make([]string, 0, len(list))
	for _, t := range list {
		var segments []string
		for _, key := range slices.Sorted(maps.Keys(t)) {
			segments = append(segments, key+"="+t[key])
		}
		sets = append(sets, strings.Join(segments, ","))
	}
	return strings.Join(sets, " or ")
}
