// Command berth is the one binary: server, agent, task supervisor, CSI driver
// and command line. It parses, wires and runs; it is the only place that ends
// the process.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/internal/agent/driver/executor"
	"github.com/berth-dev/berth/internal/cli"
	"github.com/berth-dev/berth/internal/cli/tracing"
	"github.com/berth-dev/berth/internal/telemetry"
)

// version is stamped by the build.
var version string

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	v := telemetry.Version(version)
	own, plugins := commands(v)
	return cli.Main(ctx, cli.Env{
		Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Getenv: os.Getenv, Version: v, Columns: columns(os.Stdout), LiveColumns: columns(os.Stderr),
		Terminal: terminalOf(os.Stdin), Signals: signals,
		Trace:    func(command string) cli.Trace { return tracing.Begin(ctx, os.Getenv, v, command) },
		Commands: own, PluginCommands: plugins,
	})
}

// commands are those that only main can bring, because they run what the
// command line talks to: at the top, and below berth plugin.
func commands(v string) (own, plugins []*cobra.Command) {
	return []*cobra.Command{agentCommand(v), executorCommand()}, []*cobra.Command{pluginLocalCommand(v)}
}

// executorCommand is the supervisor of one task. Agents start it, and package
// executor becomes it before main; people are told so here.
func executorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "executor DIR", Hidden: true, Args: cobra.ExactArgs(1),
		Run: func(_ *cobra.Command, args []string) { os.Exit(executor.Main(args[0])) },
	}
}
