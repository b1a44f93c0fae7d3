package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

// logFlags are what a person asks of a log.
type logFlags struct {
	follow, stderr bool
	tail           int64
}

func (a *app) logsCommand() *cobra.Command {
	var flags logFlags
	cmd := &cobra.Command{
		Use:   "logs ID [TASK]",
		Short: "Print what a task wrote",
		Long: "Prints what a task wrote to its standard output, as it is, as far as its node keeps it: the last 20 to 30 MiB.\n" +
			"TASK may be left out where there is only one.\n\n" +
			"-f goes on until the task has ended. When its node or the servers are away meanwhile, it says so, and goes on\n" +
			"where it stopped when they are back.",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error { return a.logs(cmd, args, flags) },
	}
	f := cmd.Flags()
	f.BoolVarP(&flags.follow, "follow", "f", false, "go on until the task has ended")
	f.BoolVar(&flags.stderr, "stderr", false, "print its standard error instead")
	f.Int64Var(&flags.tail, "tail", 0, "begin `N` lines before the end")
	return cmd
}

func (a *app) logs(cmd *cobra.Command, args []string, flags logFlags) error {
	if a.json {
		return Usage(errors.New("what a task wrote is no JSON: leave --json and --template out"))
	}
	q := api.LogQuery{Type: api.LogStdout, Follow: flags.follow}
	if flags.stderr {
		q.Type = api.LogStderr
	}
	if cmd.Flags().Changed("tail") {
		q.Tail = &flags.tail
	}
	if err := q.Validate(); err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	al, err := a.findAlloc(cmd.Context(), c, args[0])
	if err != nil {
		return err
	}
	task, err := taskOf(al.Allocation, args[1:])
	if err != nil {
		return err
	}
	f := &follower{app: a, client: c, id: al.ID, task: task, query: q}
	return f.print(cmd.Context())
}

// taskOf is the task that is meant.
func taskOf(al *api.Allocation, named []string) (string, error) {
	if len(named) == 1 {
		return named[0], nil
	}
	switch names := slices.Sorted(maps.Keys(al.Status.Tasks)); len(names) {
	case 0:
		return "", fmt.Errorf("allocation %s has started no task yet (see 'berth alloc status %s')", al.ID.Short(), al.ID.Short())
	case 1:
		return names[0], nil
	default:
		return "", Usage(fmt.Errorf("allocation %s has several tasks: name one of %s", al.ID.Short(), strings.Join(names, ", ")))
	}
}

// Between tries to go on with a log.
const (
	firstLogRetry = 250 * time.Millisecond
	lastLogRetry  = 2 * time.Second
)

// follower prints one log.
type follower struct {
	*app
	client *client.Client
	id     api.AllocID
	task   string
	query  api.LogQuery
	// began: at least one byte could have been printed, and query.Offset is where
	// to go on.
	began bool
}

// print prints the log. One that is followed goes on after whatever was in its
// way, with the byte after the last that was printed.
func (f *follower) print(ctx context.Context) error {
	told, pause := false, firstLogRetry
	for {
		opened, err := f.part(ctx)
		if opened {
			told, pause = false, firstLogRetry
		}
		if errors.Is(err, client.ErrSilent) && f.query.Follow {
			continue // the task may be silent, or the connection dead: who asks again knows
		}
		var e *api.Error
		if err == nil || !f.began || !f.query.Follow || !errors.As(err, &e) || !e.Retry {
			return err
		}
		if !told {
			fmt.Fprintf(f.Stderr, "berth: %s; going on when it is back\n", plain(e.Message))
			told = true
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		pause = min(2*pause, lastLogRetry)
	}
}

// part prints the log until it ends or breaks off, and reports whether there
// was an answer at all.
func (f *follower) part(ctx context.Context) (opened bool, err error) {
	l, err := f.client.Logs(ctx, f.id, f.task, f.query)
	if err != nil {
		return false, err
	}
	defer l.Close()
	if lost := l.Offset - f.query.Offset; f.began && lost > 0 {
		fmt.Fprintf(f.Stderr, "berth: %d bytes are missing here: they are kept no longer\n", lost)
	}
	_, err = io.Copy(f.Stdout, l)
	f.began, f.query.Offset, f.query.Tail = true, l.Next(), nil
	return true, err
}
