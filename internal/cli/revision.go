package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

func (a *app) jobHistoryCommand() *cobra.Command {
	var diff bool
	cmd := &cobra.Command{
		Use:   "history ID",
		Short: "List the revisions of a job: the specs that were applied for it",
		Long: "Lists the specs that were applied for a job, newest first. With --diff it shows what each of them changed.\n" +
			"They are kept as long as the job is, and go with it, a day after it was stopped.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			all, err := find(ctx, search{a, c, "job"}, args[0], func(id string) ([]api.JobRevision, error) {
				all, _, err := c.JobRevisions(ctx, a.ns(), api.JobID(id), client.Query{})
				return all, err
			})
			if err != nil || a.json {
				return a.orJSON(all, err)
			}
			a.printHistory(all, diff)
			return nil
		},
	}
	cmd.Flags().BoolVar(&diff, "diff", false, "show what each revision changed")
	return cmd
}

func (a *app) printHistory(all []api.JobRevision, diff bool) {
	if !diff {
		rows := make([][]string, 0, len(all))
		for _, r := range all {
			rows = append(rows, []string{strconv.FormatUint(r.Revision, 10), yes(r.Current), yes(r.Stable), strconv.Itoa(len(r.Changes)), a.when(r.Applied)})
		}
		a.list("REVISION CURRENT STABLE?2 CHANGES?1 AGE", rows, "the job has no revisions")
		return
	}
	for i, r := range all {
		if i > 0 {
			a.print("")
		}
		line := fmt.Sprintf("revision %d", r.Revision)
		if !r.Applied.IsZero() {
			line += ", applied " + ago(r.Applied)
		}
		if r.Current {
			line += ", current"
		}
		if r.Stable {
			line += ", stable"
		}
		a.print(line)
		a.printChanges(r.Changes)
	}
}

func (a *app) jobRevertCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revert ID REVISION",
		Short: "Apply an earlier revision of a job again, and wait until it runs",
		Long: "Applies the spec of an earlier revision of a job again, which becomes its newest revision, and waits until it runs.\n" +
			"A job that was stopped starts again.",
		Args: cobra.ExactArgs(2),
	}
	return a.amendCommand(cmd, func(args []string) (amendment, error) {
		n, err := strconv.ParseUint(args[1], 10, 64)
		if err != nil || n == 0 {
			return nil, Usage(fmt.Errorf("REVISION is %q; give one of the numbers that 'berth job history %s%s' lists (see 'berth job revert --help')", args[1], args[0], a.namespaced()))
		}
		return func(ctx context.Context, c *client.Client, version uint64) (api.JobInfo, error) {
			return c.RevertJob(ctx, a.ns(), api.JobID(args[0]), api.Revert{Revision: n, Version: version})
		}, nil
	})
}

func (a *app) jobPromoteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "promote ID",
		Short: "Have the revision that a job's canaries try take the place of the one before it, and wait until it runs",
		Long: "Promotes the newest revision of a job whose update has canaries: the older allocations beside them are stopped, and the other\n" +
			"places are exchanged as max_parallel says. It is refused as long as a canary is not healthy. The way back is 'berth job revert'.",
		Args: cobra.ExactArgs(1),
	}
	return a.amendCommand(cmd, func(args []string) (amendment, error) {
		return func(ctx context.Context, c *client.Client, version uint64) (api.JobInfo, error) {
			return c.PromoteJob(ctx, a.ns(), api.JobID(args[0]), api.Promotion{Version: version})
		}, nil
	})
}

func (a *app) jobScaleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "scale ID [GROUP] COUNT",
		Short: "Change the count of a group of a job, and wait until it runs",
		Long: "Applies a job with another count of a group, and waits until it runs. GROUP may be left out if the job has one.\n" +
			"It becomes a revision; the job's file, applied later, says again what the file says.",
		Args: cobra.RangeArgs(2, 3),
	}
	return a.amendCommand(cmd, func(args []string) (amendment, error) {
		to := api.Scale{}
		if len(args) == 3 {
			to.Group = args[1]
		}
		n, err := strconv.Atoi(args[len(args)-1])
		if err != nil {
			return nil, Usage(fmt.Errorf("COUNT is %q; give a number (see 'berth job scale --help')", args[len(args)-1]))
		}
		to.Count = &n
		return func(ctx context.Context, c *client.Client, version uint64) (api.JobInfo, error) {
			to.Version = version
			return c.ScaleJob(ctx, a.ns(), api.JobID(args[0]), to)
		}, nil
	})
}

// amendment applies something else for a job.
type amendment func(ctx context.Context, c *client.Client, version uint64) (api.JobInfo, error)

// amendCommand makes a command of one that applies something else for a job,
// and waits as apply does.
func (a *app) amendCommand(cmd *cobra.Command, read func(args []string) (amendment, error)) *cobra.Command {
	var wait *waiting
	var version uint64
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		amend, err := read(args)
		if err != nil {
			return err
		}
		c, err := a.client()
		if err != nil {
			return err
		}
		j, err := amend(cmd.Context(), c, version)
		if err != nil {
			return a.amendError(cmd.Context(), c, args[0], orRepeat(err))
		}
		a.progress("job %s/%s applied (revision %d)", j.Namespace, j.ID, j.Revision)
		if !wait.detach {
			ctx, cancel := wait.limit(cmd.Context())
			defer cancel()
			to := newRollout(j, wait.healthy)
			if err := a.wait(ctx, func(ctx context.Context) (err error) {
				j, err = a.awaitJob(ctx, c, j.Namespace, j.ID, to.reached)
				return err
			}); err != nil {
				return err
			}
		}
		if a.json {
			return a.printJSON(j)
		}
		return nil
	}
	wait = waitFlags(cmd)
	healthyFlag(cmd, wait)
	versionFlag(cmd, &version)
	return cmd
}

// amendError says what was meant by a job that does not exist, or where to find
// the revision that does.
func (a *app) amendError(ctx context.Context, c *client.Client, id string, err error) error {
	if api.CodeOf(err) != api.CodeNotFound {
		return err
	}
	if _, _, missing := c.Job(ctx, a.ns(), api.JobID(id), client.Query{}); missing != nil {
		return search{a, c, "job"}.notFound(ctx, id, err)
	}
	return orList(err, "job history "+id+a.namespaced())
}

// versionFlag gives a command the flag of a conditional write of a job.
func versionFlag(cmd *cobra.Command, version *uint64) {
	conditionFlag(cmd, version, "change the job only if it has this `version`, which berth plan tells (default: any)", "berth plan or berth job status --json")
}

// conditionFlag gives a command the flag of a conditional write. tells is what
// tells the version.
func conditionFlag(cmd *cobra.Command, version *uint64, usage, tells string) {
	cmd.Flags().Uint64Var(version, "check-version", 0, usage)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *version == 0 && cmd.Flags().Changed("check-version") {
			return Usage(errors.New("--check-version is 0; give the version that " + tells + " tells"))
		}
		return run(cmd, args)
	}
}
