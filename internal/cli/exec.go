package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

// Terminal is the one that a person types on.
type Terminal interface {
	// Raw has every key handed on as it is, until restore is called.
	Raw() (restore func(), err error)
	Size() api.TerminalSize
	// Sizes are those that it changes to, until stop is called.
	Sizes() (sizes <-chan api.TerminalSize, stop func())
}

// exitError is the end of a command that was run elsewhere: its status is ours.
type exitError struct{ status int }

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", e.status) }

// execFlags are what a person says of a command.
type execFlags struct {
	input, terminal bool
	task            string
}

func (a *app) execCommand() *cobra.Command {
	var flags execFlags
	cmd := &cobra.Command{
		Use:   "exec ID COMMAND [ARG]...",
		Short: "Run a command where a task runs",
		Long: "Runs COMMAND where a task of the allocation runs: with its root, its user, its environment, its directory and within\n" +
			"its limits. Its exit status is the command's, and 128 and the number of the signal for one that a signal ended.\n\n" +
			"-i hands on standard input, and -t gives the command a terminal: -it is for a shell. Without a terminal, signals that\n" +
			"this program gets (SIGINT, SIGTERM, SIGHUP, SIGQUIT) go to the command; the third ends this program.\n\n" +
			"The command ends with this program, or when the connection breaks, and all of its session with it. Who asked for it is\n" +
			"recorded with the allocation. Flags come before ID: what follows it is the command's, and -- before it may be left out.",
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return a.exec(cmd, args, flags) },
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.BoolVarP(&flags.input, "stdin", "i", false, "hand on standard input")
	f.BoolVarP(&flags.terminal, "tty", "t", false, "give the command a terminal")
	f.StringVar(&flags.task, "task", "", "the `task` to run it in, if there are several")
	return cmd
}

func (a *app) exec(cmd *cobra.Command, args []string, flags execFlags) error {
	word, command := args[0], args[1:]
	switch {
	case a.json:
		return Usage(errors.New("what a command writes is no JSON: leave --json and --template out"))
	case command[0] == "--":
		command = command[1:]
	case strings.HasPrefix(command[0], "-"):
		return Usage(fmt.Errorf("flags come before the allocation: put %s there, or -- before a command of that name", command[0]))
	}
	if len(command) == 0 {
		return Usage(fmt.Errorf("%s needs COMMAND (see '%s --help')", cmd.CommandPath(), cmd.CommandPath()))
	}
	if flags.terminal && a.Terminal == nil {
		return Usage(errors.New("standard input is no terminal, which -t needs: leave it out (-i alone hands on what is piped)"))
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	al, err := a.findAlloc(cmd.Context(), c, word)
	if err != nil {
		return err
	}
	var named []string
	if flags.task != "" {
		named = []string{flags.task}
	}
	task, err := taskOf(al.Allocation, named)
	if err != nil {
		return err
	}
	req := api.ExecRequest{Command: command, Input: flags.input}
	x := client.ExecIO{Output: a.Stdout, Errors: a.Stderr}
	if flags.input {
		x.Input = a.Stdin
	}
	ctx, begun, done := cmd.Context(), func() {}, func() {}
	if flags.terminal {
		begun, done = a.onTerminal(&req, &x)
	} else if a.Signals != nil {
		ctx, begun, done = a.signalled(ctx, &x)
	}
	defer done()
	x.Begun = begun
	exit, err := c.Exec(ctx, al.ID, task, req, x)
	if err == nil && exit.Status() != 0 {
		return exitError{exit.Status()}
	}
	return err
}

// onTerminal has keys handed on from when the command runs, until done.
func (a *app) onTerminal(req *api.ExecRequest, x *client.ExecIO) (begun, done func()) {
	size := a.Terminal.Size()
	req.Terminal, req.Term = &size, a.Getenv("TERM")
	sizes, stop := a.Terminal.Sizes()
	x.Sizes = sizes
	restore := func() {}
	return func() {
			if r, err := a.Terminal.Raw(); err == nil {
				restore = r
			}
		}, func() {
			restore()
			stop()
		}
}

// patientWith is how many signals a command may be given before this program
// ends, whatever that does with them.
const patientWith = 2

// signalled has signals handed on from when the command runs.
func (a *app) signalled(ctx context.Context, x *client.ExecIO) (_ context.Context, begun, done func()) {
	all, stop := a.Signals()
	pass := make(chan string)
	x.Signals = pass
	ctx, leave := context.WithCancel(context.WithoutCancel(ctx))
	runs := make(chan struct{})
	var around sync.WaitGroup
	around.Go(func() {
		for heard := 0; ; {
			select {
			case s := <-all:
				heard++
				select {
				case <-runs:
				default:
					heard = patientWith + 1
				}
				if heard > patientWith {
					leave()
					return
				}
				select {
				case pass <- s:
				case <-ctx.Done():
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return ctx, func() { close(runs) }, func() {
		leave()
		around.Wait()
		stop()
	}
}
