package cli

import (
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

func (a *app) namespaceCommand() *cobra.Command {
	return group("namespace", "Namespaces: names that do not meet",
		&cobra.Command{
			Use: "list", Short: "List the namespaces", Args: cobra.NoArgs, RunE: a.listNamespaces,
			Long: "Lists the namespaces with how many volumes, jobs, snapshots and variables each has. A namespace is not made: it is\n" +
				"there as long as something is in it. The default one always is.",
		},
	)
}

func (a *app) listNamespaces(cmd *cobra.Command, _ []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	all, _, err := c.Namespaces(cmd.Context(), client.Query{})
	if err != nil || a.json {
		return a.orJSON(all, err)
	}
	rows := make([][]string, 0, len(all))
	for _, ns := range all {
		rows = append(rows, []string{string(ns.ID), strconv.Itoa(ns.Volumes), strconv.Itoa(ns.Jobs), strconv.Itoa(ns.Snapshots), strconv.Itoa(ns.Variables)})
	}
	a.list("ID VOLUMES JOBS SNAPSHOTS?2 VARIABLES?1", rows, "there are no namespaces")
	return nil
}

// checkNamespace refuses what no namespace can be called. An * is for those that
// list.
func (a *app) checkNamespace() error {
	var p api.Problems
	if a.namespace != "*" {
		p.Name("namespace", a.namespace)
	}
	e, wrong := errors.AsType[*api.Error](p.Err("the command"))
	if !wrong {
		return nil
	}
	e.Fields[0].Path = "--namespace"
	return Usage(e)
}
