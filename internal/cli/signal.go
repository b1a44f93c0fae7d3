package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
)

func (a *app) signalCommand() *cobra.Command {
	task := ""
	cmd := &cobra.Command{
		Use:   "signal ID SIGNAL",
		Short: "Send a signal to an allocation's tasks that run",
		Long: "Sends SIGNAL to the main process of each task that runs, or of one: SIGHUP has many programs read their configuration\n" +
			"again, and SIGKILL ends a task at once that is being stopped and takes its kill_timeout. SIG may be left out, and case\n" +
			"does not matter. What comes of it is the task's own affair: one that ends is judged by its restart policy, as always.\n\n" +
			"Signals: " + strings.Join(api.Signals(), ", ") + ". Who asked is recorded with the allocation.",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return a.signal(cmd, args, task) },
	}
	cmd.Flags().StringVar(&task, "task", "", "only this `task`")
	return cmd
}

func (a *app) signal(cmd *cobra.Command, args []string, task string) error {
	name := strings.ToUpper(args[1])
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if !slices.Contains(api.Signals(), name) {
		return Usage(fmt.Errorf("signal %q is not one of %s", args[1], strings.Join(api.Signals(), ", ")))
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	al, err := a.findAlloc(cmd.Context(), c, args[0])
	if err != nil {
		return err
	}
	done, err := c.SignalAllocation(cmd.Context(), al.ID, api.SignalRequest{Task: task, Signal: name})
	if err != nil || a.json {
		return a.orJSON(done, err)
	}
	a.print(fmt.Sprintf("%s sent to %s of allocation %s", done.Signal, named(done.Tasks), al.ID.Short()))
	return nil
}

// named is tasks by their names.
func named(tasks []string) string {
	if len(tasks) == 1 {
		return "task " + tasks[0]
	}
	return "tasks " + strings.Join(tasks, ", ")
}
