package cli

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

func (a *app) serviceCommand() *cobra.Command {
	status := &cobra.Command{
		Use: "status NAME", Short: "Show where a service is found, and how its checks are", Args: cobra.ExactArgs(1), RunE: a.showService,
		Long: "Lists every allocation that offers the service. One is healthy if it runs, its node is in contact, and all of the\n" +
			"service's checks pass. --healthy lists only those, as GET /v1/service/NAME does.",
		Example: "  berth service status postgres\n" +
			"  berth service status postgres --healthy --template '{{range .Instances}}{{.Address}}:{{.Port}}{{\"\\n\"}}{{end}}'",
	}
	status.Flags().Bool("healthy", false, "list only those that are healthy")
	return group("service", "Services: names under which allocations are found",
		&cobra.Command{
			Use: "list", Short: "List the services of the namespace", Args: cobra.NoArgs, RunE: a.listServices,
			Example: "  berth service list",
		},
		status,
	)
}

func (a *app) listServices(cmd *cobra.Command, _ []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	services, _, err := c.Services(cmd.Context(), client.Query{Namespace: a.ns()})
	if err != nil || a.json {
		return a.orJSON(services, err)
	}
	rows := make([][]string, 0, len(services))
	for _, s := range services {
		healthy := 0
		for _, i := range s.Instances {
			if i.Healthy {
				healthy++
			}
		}
		rows = append(rows, []string{s.Name, fmt.Sprintf("%d/%d", healthy, len(s.Instances))})
	}
	a.list("NAME HEALTHY", rows, a.inNamespace("services"))
	return nil
}

func (a *app) showService(cmd *cobra.Command, args []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	healthy, err := cmd.Flags().GetBool("healthy")
	if err != nil {
		return err
	}
	s, _, err := c.Service(cmd.Context(), args[0], client.Query{Namespace: a.ns(), All: !healthy})
	if err != nil || a.json {
		return a.orJSON(s, orList(err, "service list"+a.namespaced()))
	}
	rows := make([][]string, 0, len(s.Instances))
	for _, i := range s.Instances {
		rows = append(rows, []string{
			endpoint(i.Address, i.Port), yes(i.Healthy), string(i.Status), string(i.JobID), i.AllocID.Short(), string(i.NodeID),
			orDash(strings.Join(i.Tags, ",")),
		})
	}
	none := "no allocation offers service " + s.Name
	if s.Unhealthy > 0 {
		none = fmt.Sprintf("no allocation that offers service %s is healthy, of %d", s.Name, s.Unhealthy)
	}
	a.list("ADDRESS HEALTHY STATUS?4 JOB?3 ALLOCATION NODE?2 TAGS?1", rows, none)
	a.failingChecks(s.Instances)
	return nil
}

// failingChecks are those that do not pass, with what they said.
func (a *app) failingChecks(instances []api.ServiceInstance) {
	var rows [][]string
	for _, i := range instances {
		for _, c := range i.Checks {
			if c.Status != api.CheckPassing {
				rows = append(rows, []string{i.AllocID.Short(), c.Name, string(c.Status), a.since(c.Since), orDash(c.Output)})
			}
		}
	}
	if len(rows) > 0 && a.columns() > 0 {
		a.section("Checks")
		a.table("ALLOCATION CHECK STATUS SINCE?1 OUTPUT~", rows)
	}
}

// checks are an allocation's, for people.
func (a *app) checks(al *api.AllocationInfo) {
	if len(al.Status.Checks) == 0 {
		return
	}
	a.section("Checks")
	var rows [][]string
	for _, c := range al.Status.Checks {
		rows = append(rows, []string{c.Service, c.Name, string(c.Status), a.since(c.Since), orDash(c.Output)})
	}
	a.table("SERVICE CHECK STATUS SINCE?1 OUTPUT~", rows)
}

// since is how long ago something began.
func (a *app) since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return a.when(t)
}

// ports are an allocation's, for people.
func (a *app) ports(al *api.AllocationInfo) {
	if len(al.Ports) == 0 {
		return
	}
	a.section("Ports")
	var rows [][]string
	for _, p := range al.Ports {
		rows = append(rows, []string{p.Name, endpoint(al.Address, p.Number)})
	}
	a.table("NAME ADDRESS", rows)
}

// endpoint is an address with its port, or the port alone.
func endpoint(address string, port int) string {
	if port == 0 {
		return address
	}
	if address == "" {
		return strconv.Itoa(port)
	}
	return net.JoinHostPort(address, strconv.Itoa(port))
}
