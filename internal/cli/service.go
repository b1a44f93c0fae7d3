package cli

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

func (a *app) serviceCommand() *cobra.Command {
	return group("service", "Services: names under which allocations are found",
		&cobra.Command{
			Use: "list", Short: "List the services of the namespace", Args: cobra.NoArgs, RunE: a.listServices,
			Example: "  berth service list",
		},
		&cobra.Command{
			Use: "status NAME", Short: "Show where a service is found", Args: cobra.ExactArgs(1), RunE: a.showService,
			Example: "  berth service status postgres\n" +
				"  berth service status postgres --template '{{range .Instances}}{{.Address}}:{{.Port}}{{\"\\n\"}}{{end}}'",
		},
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
	s, _, err := c.Service(cmd.Context(), args[0], client.Query{Namespace: a.ns()})
	if err != nil || a.json {
		return a.orJSON(s, orList(err, "service list"+a.namespaced()))
	}
	rows := make([][]string, 0, len(s.Instances))
	for _, i := range s.Instances {
		rows = append(rows, []string{
			endpoint(i.Address, i.Port), yes(i.Healthy), string(i.JobID), i.AllocID.Short(), string(i.NodeID),
			orDash(strings.Join(i.Tags, ",")),
		})
	}
	a.list("ADDRESS HEALTHY JOB?3 ALLOCATION NODE?2 TAGS?1", rows, "no allocation offers service "+s.Name)
	return nil
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
