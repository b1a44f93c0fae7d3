package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-dev/berth/internal/agent/runner"
)

// Destroy ends all of the node's allocations for good, in the time that ctx
// leaves; the error says which are left, and why. It is for agents that were never
// meant to stay; Run must be running.
func (a *Agent) Destroy(ctx context.Context) error {
	left := a.allocations.destroy(ctx)
	if len(left) == 0 {
		return nil
	}
	count := fmt.Sprintf("%d are left", len(left))
	if len(left) == 1 {
		count = "one is left"
	}
	var whys []string
	for _, r := range left {
		whys = append(whys, fmt.Sprintf("allocation %s (%s)", r.ID().Short(), a.why(r)))
	}
	slices.Sort(whys)
	return errors.New("end all allocations in time: " + count + ": " + strings.Join(whys, "; "))
}

// why is what keeps an allocation from its end, as it was last said to the servers.
func (a *Agent) why(r runner.Runner) string {
	said := a.facts.Allocation(r.ID())
	switch {
	case said != nil && said.Problem != nil && said.Problem.Step != "":
		return said.Problem.Step + ": " + said.Problem.Message
	case len(r.Serves()) > 0:
		return fmt.Sprintf("it is plugin %s, and goes after those that may have its volumes", r.Serves()[0])
	case said != nil && said.Problem != nil:
		return said.Problem.Message
	default:
		return "it has not said why"
	}
}
