// Command mockdriver serves the in-memory CSI mock driver of Kubernetes' own
// storage tests on a unix socket, so that a life of a volume can be shown, and
// broken on purpose, without a storage provider.
//
// It owns the socket, the record of all calls, the faults that its flags ask
// for, and, with -real-mounts, the mounts behind published volumes. It never
// changes what the mock answers, except where a flag says so, and it imports
// nothing of Berth: the driver under test and the product share no code.
//
// Invariant: calls take turns, and the line of a call is in the calls file
// before its caller has the answer.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Exit statuses, so that a supervisor's record tells the ends apart.
const (
	exitClean  = 0
	exitFailed = 1
	exitUsage  = 2
	exitDied   = 3 // -die-in
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	// From the first signal on the default action is back: a second one ends a
	// process that hangs in its last call.
	context.AfterFunc(ctx, stop)

	opts, err := parseOptions(os.Args[1:], os.Getenv("CSI_ENDPOINT"))
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(exitClean)
	case err != nil:
		os.Exit(exitUsage)
	}

	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if opts.serveFuse != "" {
		if err := beFuse(opts.serveFuse); err != nil {
			log.Error("stopped", "err", err)
			os.Exit(exitFailed)
		}
		return
	}
	if err := run(ctx, opts, log); err != nil {
		log.Error("stopped", "err", err)
		os.Exit(exitFailed)
	}
}

// run makes what the server needs, serves until ctx ends, and gives it back in
// reverse.
func run(ctx context.Context, opts options, log *slog.Logger) (err error) {
	// Secrets of requests are recorded: they are part of what a test checks.
	calls, err := os.OpenFile(opts.calls, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open calls file: %w", err)
	}
	defer func() { err = errors.Join(err, calls.Close()) }()

	if opts.realMounts && opts.stateDir == "" {
		opts.stateDir, err = os.MkdirTemp("", "mockdriver-")
		if err != nil {
			return fmt.Errorf("make state directory: %w", err)
		}
		// Remove takes an empty directory only: as long as a volume has data,
		// and so perhaps a mount, it refuses, and that is right.
		defer func() { _ = os.Remove(opts.stateDir) }()
	}

	srv := newServer(opts, calls, func() { os.Exit(exitDied) }, log)
	return srv.Run(ctx)
}
