// Package cli is the command line: one file for each subcommand. It speaks to
// the servers over package api/client and to people over its output.
//
// It never imports the server or the agent; main hands in the commands that
// run those. Invariants: exit status 0 is done, 1 failed, 2 wrong usage or
// input, 3 a plan with changes; what --json and --template print is the API's own answer and nothing else; what others
// wrote, a driver's message for one, reaches a terminal as text only, but
// for the log of a task, which is printed as it is.
package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/template"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/suggest"
)

// Exit statuses.
const (
	ExitDone   = 0
	ExitFailed = 1
	ExitUsage  = 2
	// ExitChanges is for a plan with changes, where that was asked for.
	ExitChanges = 3
)

// Env is what a program is run with.
type Env struct {
	Args           []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	Version        string
	// Columns is how wide the terminal is that Stdout is, and LiveColumns the
	// one that Stderr is; 0 or nil if it is none. Terminals change their size.
	Columns, LiveColumns func() int
	// Terminal is the one that Stdin is, nil where it is none.
	Terminal Terminal
	// Signals are those that this program gets, until stop is called; nil where
	// nothing is known of them.
	Signals func() (signals <-chan string, stop func())
	// Trace begins the span of a command that asks servers; nil tells nobody. What
	// it answers is never nil.
	Trace func(command string) Trace
	// Commands are those that main brings, and PluginCommands those that it
	// brings below berth plugin.
	Commands, PluginCommands []*cobra.Command
}

// app is one run of the command line.
type app struct {
	Env
	address   string
	namespace string
	json      bool // also with a template, which prints the same
	template  *template.Template
	screen    *screen
	contact   contact
	// command is the one that runs, and trace its span, once it asks servers.
	command string
	trace   Trace
}

// Trace is the span of a command.
type Trace interface {
	// Context is what requests say of it.
	Context() api.TraceContext
	// End ends it with how the command did. An error is why nobody will see it.
	End(ctx context.Context, failure error) error
}

// usageError is an error of how the program was called.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

// Usage marks an error as one of how the program was called.
func Usage(err error) error { return usageError{err} }

// patience is for how long a command waits for a server that starts or changes.
const patience = 5 * time.Second

// Main runs the command line and returns the exit status.
func Main(ctx context.Context, env Env) int {
	a := newApp(env)
	root := a.root()
	err := root.ExecuteContext(ctx)
	a.endTrace(context.WithoutCancel(ctx), err) // after an interrupt, too
	if err == nil {
		return ExitDone
	}
	if errors.Is(err, errChanges) {
		return ExitChanges
	}
	if ended, is := errors.AsType[exitError](err); is {
		return ended.status
	}
	a.printError(err)
	return exitStatus(err)
}

// endTrace tells of the command that has run. A plan with changes did what it was
// to do.
func (a *app) endTrace(ctx context.Context, err error) {
	if a.trace == nil {
		return
	}
	if errors.Is(err, errChanges) {
		err = nil
	}
	if lost := a.trace.End(ctx, err); lost != nil {
		fmt.Fprintln(a.Stderr, plain("berth: the trace of this command is lost: "+lost.Error()))
	}
}

func newApp(env Env) *app {
	a := &app{Env: env}
	a.screen = &screen{out: env.Stderr, columns: env.LiveColumns}
	a.Stdout, a.Stderr = a.screen.through(env.Stdout), a.screen.through(env.Stderr)
	return a
}

// Root is the tree of all commands, for what describes or tests it.
func Root(env Env) *cobra.Command { return newApp(env).root() }

func exitStatus(err error) int {
	var usage usageError
	if errors.As(err, &usage) || api.CodeOf(err) == api.CodeInvalid {
		return ExitUsage
	}
	return ExitFailed
}

// codeFailed is the code of an error that is none of the API's, nor of usage.
const codeFailed api.Code = "failed"

// printError says what went wrong, with every problem on a line of its own; with
// --json it is one object with the names of the API's errors.
func (a *app) printError(err error) {
	text := err.Error()
	if _, waited := errors.AsType[*endedError](err); errors.Is(err, context.Canceled) && !waited {
		text = "interrupted"
	}
	if a.json && a.template == nil {
		e := json.NewEncoder(a.Stderr)
		e.SetEscapeHTML(false)
		_ = e.Encode(asObject(err, text)) // there is nobody else to tell
		return
	}
	for i, line := range strings.Split(text, "\n") {
		if i == 0 {
			line = "berth: " + line
		}
		fmt.Fprintln(a.Stderr, plain(line))
	}
}

// asObject is an error for a program. Its message has no problems that are in
// its fields.
func asObject(err error, text string) *api.Error {
	said := api.Error{Code: codeFailed, Message: text}
	if e, ok := errors.AsType[*api.Error](err); ok {
		said = *e
		said.Message = strings.Replace(text, e.Error(), e.Message, 1)
	} else if exitStatus(err) == ExitUsage {
		said.Code = api.CodeInvalid
	}
	return &said
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "berth",
		Short: "Berth brings any CSI driver to any workload",
		Long: "Berth is a storage orchestrator: it provisions, attaches, mounts and reclaims volumes of any CSI driver,\n" +
			"and runs the jobs that use them. One binary is server, agent, task supervisor and command line.",
		Version:       a.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetArgs(a.Args)
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.SetVersionTemplate("berth {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Usage(fmt.Errorf("%w%s (see '%s --help')", err, nearestFlag(cmd, err), cmd.CommandPath()))
	})
	flags := root.PersistentFlags()
	flags.StringVar(&a.address, "address", a.fromEnv("BERTH_ADDRESS", client.DefaultAddress), "`URL` of the servers' API (BERTH_ADDRESS)")
	flags.StringVarP(&a.namespace, "namespace", "n", a.fromEnv("BERTH_NAMESPACE", string(api.DefaultNamespace)), "`namespace` to look into (BERTH_NAMESPACE)")
	flags.BoolVar(&a.json, "json", false, "print the API's JSON, and nothing else; errors too, on standard error")
	var text string
	flags.StringVar(&text, templateFlag, "", templateHelp)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		a.command = cmd.CommandPath()
		if err := a.checkNamespace(); err != nil {
			return err
		}
		if f := cmd.Flag(templateFlag); f == nil || !f.Changed {
			return nil
		}
		return a.readTemplate(text)
	}
	root.AddCommand(
		a.applyCommand(),
		a.planCommand(),
		a.validateCommand(),
		a.fmtCommand(),
		a.statusCommand(),
		a.namespaceCommand(),
		a.jobCommand(),
		a.volumeCommand(),
		a.snapshotCommand(),
		a.varCommand(),
		a.allocCommand(),
		a.serviceCommand(),
		a.nodeCommand(),
		a.pluginCommand(),
		a.attachmentCommand(),
		a.operationCommand(),
		a.eventCommand(),
		a.systemCommand(),
	)
	root.AddCommand(a.Commands...)
	root.SetHelpCommand(helpCommand(root))
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	strictUsage(root)
	explainThemselves(root, usages())
	a.complete(root)
	_ = root.RegisterFlagCompletionFunc("namespace", a.completeNamespaces) // the flag is there
	return root
}

// strictUsage makes every command that only holds others refuse words that are
// none of theirs, and every error of arguments one of usage.
func strictUsage(cmd *cobra.Command) {
	if args := cmd.Args; args != nil {
		cmd.Args = func(c *cobra.Command, words []string) error {
			if err := args(c, words); err != nil {
				return Usage(fmt.Errorf("%s (see '%s --help')", explainArgs(c, words), c.CommandPath()))
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		strictUsage(sub)
	}
}

// explainArgs says which argument is missing, or which one is too many. Where
// commands are meant, it names the nearest.
func explainArgs(c *cobra.Command, words []string) string {
	wanted := strings.Fields(c.Use)[1:]
	switch {
	case len(words) < len(wanted):
		missing := wanted[len(words):]
		if i := slices.IndexFunc(missing, func(w string) bool { return !strings.HasPrefix(w, "[") }); i >= 0 {
			missing = missing[i:]
		}
		return fmt.Sprintf("%s needs %s", c.CommandPath(), missing[0])
	case !c.HasSubCommands():
		return fmt.Sprintf("%s does not take %q", c.CommandPath(), words[len(wanted)])
	}
	return noCommand(c, words[0])
}

// nearestFlag is the flag that was meant by one that does not exist.
func nearestFlag(cmd *cobra.Command, err error) string {
	wrong, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || len(wrong.GetSpecifiedName()) < 2 {
		return ""
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	if near := suggest.Nearest(wrong.GetSpecifiedName(), known); near != "" {
		return "; did you mean --" + near + "?"
	}
	return ""
}

func noCommand(c *cobra.Command, word string) string {
	text := fmt.Sprintf("%s has no command %q", c.CommandPath(), word)
	var known, begin []string
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() {
			continue
		}
		known = append(known, sub.Name())
		if word != "" && strings.HasPrefix(sub.Name(), strings.ToLower(word)) {
			begin = append(begin, sub.Name())
		}
	}
	if near := suggest.Nearest(word, known); near != "" && len(begin) == 0 {
		begin = []string{near}
	}
	if len(begin) > 0 {
		text += "; did you mean " + strings.Join(begin, " or ") + "?"
	}
	return text
}

// helpCommand explains a command, and refuses what is none.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help", Short: "Explain a command", Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, words []string) error {
			cmd, rest, err := root.Find(words)
			if err != nil {
				return Usage(err)
			}
			if len(rest) > 0 {
				return Usage(fmt.Errorf("%s (see '%s --help')", noCommand(cmd, rest[0]), cmd.CommandPath()))
			}
			return cmd.Help()
		},
	}
}

// group is a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	g.AddCommand(commands...)
	return g
}

func (a *app) fromEnv(name, fallback string) string {
	if v := a.Getenv(name); v != "" {
		return v
	}
	return fallback
}

func (a *app) client() (*client.Client, error) {
	slow := sync.OnceFunc(func() { fmt.Fprintln(a.Stderr, plain("berth: "+a.address+" has not answered yet")) })
	cfg := client.Config{Address: a.address, Patience: patience, Slow: slow, User: a.user()}
	if a.Trace != nil {
		if a.trace == nil {
			a.trace = a.Trace(a.command)
		}
		cfg.Trace = func(context.Context) api.TraceContext { return a.trace.Context() }
	}
	c, err := client.New(cfg)
	if err != nil {
		return nil, Usage(err)
	}
	return c, nil
}

// user is who types, for the record. A name that cannot be kept is nobody's.
func (a *app) user() string {
	name := cmp.Or(a.Getenv("SUDO_USER"), a.Getenv("USER"), a.Getenv("LOGNAME"))
	if api.CheckUser(name) != "" {
		return ""
	}
	return name
}

func (a *app) ns() api.NamespaceID { return api.NamespaceID(a.namespace) }

// namespaced is a flag for a command that somebody else is to type.
func (a *app) namespaced() string {
	return in(a.ns())
}

// orList says how to find the name of what does not exist.
func orList(err error, command string) error {
	if api.CodeOf(err) == api.CodeNotFound {
		return fmt.Errorf("%w (see 'berth %s')", err, command)
	}
	return err
}
