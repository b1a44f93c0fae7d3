package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/fit"
)

func (a *app) operationCommand() *cobra.Command {
	return group("operation", "Operations: recorded calls to controller plugins",
		&cobra.Command{Use: "list", Short: "List the operations of the namespace, open and ended", Args: cobra.NoArgs, RunE: a.listOperations},
		&cobra.Command{Use: "status ID", Short: "Show an operation", Args: cobra.ExactArgs(1), RunE: a.showOperation},
		&cobra.Command{
			Use: "abandon ID", Short: "Give up a create whose outcome is not known",
			Long: "A create is repeated until it is known whether the plugin made the volume. Where that will never be known, this gives\n" +
				"it up: the provider may be left with a volume that Berth does not know, under the name that the answer says.",
			Args: cobra.ExactArgs(1), RunE: a.abandonOperation,
		},
	)
}

func (a *app) listOperations(cmd *cobra.Command, _ []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	ops, _, err := c.Operations(cmd.Context(), client.Query{Namespace: a.ns()})
	if err != nil || a.json {
		return a.orJSON(ops, err)
	}
	a.list(operationHeading, operationRows(ops, a.when), a.inNamespace("operations"))
	return nil
}

// operations prints a section.
func (a *app) operations(ops []*api.Operation) {
	if len(ops) > 0 {
		a.section("Operations")
		a.table(operationHeading, operationRows(ops, age))
	}
}

const operationHeading = "OPERATION STATE ATTEMPT?3 BY?2 CODE?5 TOOK?1 AGE?4"

// operationRows are operations in the order in which they were opened.
func operationRows(ops []*api.Operation, when func(time.Time) string) [][]string {
	slices.SortFunc(ops, func(x, y *api.Operation) int {
		return cmp.Or(cmp.Compare(x.CreateIndex, y.CreateIndex), cmp.Compare(x.ID, y.ID))
	})
	rows := make([][]string, 0, len(ops))
	for _, o := range ops {
		rows = append(rows, []string{string(o.ID), string(o.Status.State), strconv.Itoa(o.Status.Attempt),
			orDash(string(o.Status.Executor)), orDash(o.Status.Code), took(o), when(o.CreateTime)})
	}
	return rows
}

func took(o *api.Operation) string {
	if o.Status.Duration == 0 {
		return "-"
	}
	return time.Duration(o.Status.Duration).Round(10 * time.Microsecond).String()
}

func (a *app) showOperation(cmd *cobra.Command, args []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	o, err := find(cmd.Context(), search{a, c, "operation"}, args[0], func(id string) (*api.Operation, error) {
		o, _, err := c.Operation(cmd.Context(), api.OperationID(strings.TrimRight(id, "/")), client.Query{})
		return o, err
	})
	if err != nil || a.json {
		return a.orJSON(o, err)
	}
	next := ""
	if !o.Status.Next.IsZero() {
		next = until(o.Status.Next)
	}
	means, then := "", ""
	if o.Status.Code != "" && o.Status.Code != "OK" {
		answer := fit.Last(o)
		means, then = answer.Says, answer.Then
	}
	uncertain := ""
	if o.Status.Uncertain {
		uncertain = "yes: an attempt ended without anybody knowing its effect"
	}
	a.facts("ID", string(o.ID), "Kind", string(o.Kind), "Namespace", string(o.Namespace), "Volume", string(o.VolumeID), "Snapshot", string(o.SnapshotID), "Node", string(o.NodeID),
		"Plugin", string(o.PluginID), "State", string(o.Status.State), "Attempt", strconv.Itoa(o.Status.Attempt),
		"Made by", string(o.Status.Executor), "Code", o.Status.Code, "Message", o.Status.Message, "Means", means, "So", then, "Uncertain", uncertain,
		"Took", took(o), "Next try", next, "Age", age(o.CreateTime))
	return nil
}

func (a *app) abandonOperation(cmd *cobra.Command, args []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	o, err := c.AbandonOperation(cmd.Context(), api.OperationID(args[0]), 0)
	if err != nil || a.json {
		return a.orJSON(o, search{a, c, "operation"}.notFound(cmd.Context(), args[0], err))
	}
	fmt.Fprintf(a.Stdout, "operation %s is given up\n", o.ID)
	if o.Request.Create != nil {
		fmt.Fprintf(a.Stdout, "look for a volume named %s at the provider\n", plain(o.Request.Create.Name))
	}
	if o.Request.Snapshot != nil {
		fmt.Fprintf(a.Stdout, "look for a snapshot named %s at the provider\n", plain(o.Request.Snapshot.Name))
	}
	return nil
}
