package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
)

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the cluster, and everything in it that waits",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			s, err := c.Status(cmd.Context())
			if err != nil || a.json {
				return a.orJSON(s, err)
			}
			leader := s.Leader
			if leader == "" {
				leader = "none yet"
			}
			if s.ClusterID == "" {
				// Its counts are those of no state, and would frighten.
				a.facts("Server", s.ServerID, "Leader", leader, "Version", s.Version,
					"State", "not ready: this server does not lead a cluster yet, or takes over its state; ask again")
				return nil
			}
			generation := strconv.FormatUint(s.Generation.Number, 10)
			if s.Generation.Recovering {
				generation += ", recovering: " + s.Generation.Reason + " (see 'berth system recovery')"
			}
			a.facts("Cluster", s.ClusterID, "Server", s.ServerID, "Leader", leader, "Version", s.Version,
				"Generation", generation, "Index", strconv.FormatUint(s.Index, 10),
				"Nodes", fmt.Sprintf("%d of %d ready", s.NodesReady, s.Nodes),
				"Volumes", counts(s.Volumes, s.VolumesFailed), "Jobs", counts(s.Jobs, s.JobsFailed), "Snapshots", counts(s.Snapshots, s.SnapshotsFailed))
			a.waits(s.Waits)
			return nil
		},
	}
}

// counts are how many things of a noun there are, and how many of them failed.
func counts(all, failed int) string {
	if failed == 0 {
		return strconv.Itoa(all)
	}
	return fmt.Sprintf("%d, %d of them failed", all, failed)
}
