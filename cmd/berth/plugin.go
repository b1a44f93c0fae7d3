package main

import (
	"cmp"
	"os"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/internal/config"
	"github.com/berth-dev/berth/internal/localdriver"
	"github.com/berth-dev/berth/internal/telemetry"
)

// pluginLocalCommand serves the local driver as a process of its own, for
// hosts that run it beside the agent, and for other orchestrators.
func pluginLocalCommand(version string) *cobra.Command {
	cfg := localdriver.Config{Version: version}
	var level, format string
	cmd := &cobra.Command{
		Use:   "local",
		Short: "Serve the CSI driver for volumes on this machine's disk",
		Long: "Serves a CSI driver on a unix socket. Volumes with a size are image files with ext4, xfs or btrfs on loop devices,\n" +
			"volumes without one are directories; where the root is on btrfs, both are subvolumes. An agent uses it by a\n" +
			"plugin block with its socket.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Endpoint = cmp.Or(cfg.Endpoint, os.Getenv("CSI_ENDPOINT"))
			if err := config.CheckLog(level, format); err != nil {
				return err
			}
			d, err := localdriver.New(cfg, telemetry.NewLogger(cmd.ErrOrStderr(), level, format))
			if err != nil {
				return err
			}
			return d.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Root, "root", "", "`directory` of the volumes")
	f.StringVar(&cfg.Endpoint, "endpoint", "", "where to listen, a `socket` such as unix:///run/berth-local.sock (default CSI_ENDPOINT)")
	f.StringVar(&cfg.NodeID, "node-id", "", "`name` of this machine to the driver")
	f.StringVar(&cfg.Name, "driver-name", localdriver.DefaultName, "`name` of the driver")
	f.Int64Var(&cfg.MaxVolumes, "max-volumes", 0, "most volumes at once on this machine, a `number`; 0 leaves it to the orchestrator")
	f.StringVar(&level, "log-level", "info", "log `level`: debug, info, warn or error")
	f.StringVar(&format, "log-format", "text", "log `format`: text or json")
	return cmd
}
