package main

import (
	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/internal/config"
	"github.com/berth-dev/berth/internal/telemetry"
)

func agentCommand(version string) *cobra.Command {
	var (
		files []string
		flags config.Flags
		dev   bool
	)
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run a server, a node's agent, or both",
		Long: "Runs what the configuration says: a server, an agent that runs jobs on this machine, or both.\n\n" +
			"--dev runs both in one process, with a CSI driver for local volumes. When it ends, also because its\n" +
			"terminal is closed, it ends its jobs and removes its data. Killed with SIGKILL, it leaves\n" +
			"everything running, and the next one goes on with it.\n\n" +
			"On SIGHUP it reads its configuration again, unless it runs with --dev. What it cannot take over while it runs it\n" +
			"names in one line of its log; files that are wrong change nothing.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Before anything is read: a signal that comes early is not lost.
			again, stop := reloads(dev)
			defer stop()
			ctx, stop := hangup(cmd.Context(), dev)
			defer stop()
			cfg, err := effective(files, flags, dev)
			if err != nil {
				return err
			}
			level := telemetry.NewLevel(cfg.LogLevel)
			p := &process{
				cfg: cfg, dev: dev, version: version, out: cmd.OutOrStdout(),
				log: telemetry.NewLeveledLogger(cmd.ErrOrStderr(), level, cfg.LogFormat), level: level,
				again: again, read: func() (config.Config, error) { return effective(files, flags, dev) },
			}
			return p.run(ctx)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&files, "config", nil, "configuration `file` (HCL); may be given several times")
	f.BoolVar(&dev, "dev", false, "run one server and one agent for trying things out")
	f.StringVar(&flags.DataDir, "data-dir", "", "`directory` where everything is kept (default "+config.DefaultDataDir+", with --dev "+config.DefaultDevDataDir+")")
	f.StringVar(&flags.Name, "name", "", "`name` of this machine (default its host name)")
	f.StringVar(&flags.HTTPAddress, "http-address", "", "where the API listens, `host:port` (default "+config.DefaultHTTPAddress+")")
	f.StringVar(&flags.RaftAddress, "raft-address", "", "where the servers talk to each other, `host:port` (default "+config.DefaultRaftAddress+")")
	f.StringVar(&flags.LogLevel, "log-level", "", "log `level`: debug, info, warn or error (default info)")
	f.StringVar(&flags.LogFormat, "log-format", "", "log `format`: text or json (default text)")
	return cmd
}

// effective lays the flags over the files, and checks the whole.
func effective(files []string, flags config.Flags, dev bool) (config.Config, error) {
	cfg, err := config.Read(files...)
	if err != nil {
		return cfg, err
	}
	if cfg, err = cfg.With(flags); err != nil {
		return cfg, err
	}
	if dev {
		cfg = cfg.Dev()
	}
	return cfg.Complete()
}
