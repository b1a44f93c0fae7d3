package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/cli"
)

// leaves are the commands that do something, by their path below berth.
func leaves(t *testing.T) map[string]*cobra.Command {
	t.Helper()
	all := map[string]*cobra.Command{}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		_, path, _ := strings.Cut(cmd.CommandPath(), " ")
		if !cmd.IsAvailableCommand() || path == "" || strings.HasPrefix(path, "completion") || path == "help" {
			return
		}
		if cmd.HasSubCommands() && path != "system recovery" {
			return
		}
		all[path] = cmd
	}
	walk(cli.Root(cli.Env{Getenv: variables(nil), Stdout: io.Discard, Stderr: io.Discard}))
	return all
}

// local are the commands that ask no server.
func local() map[string]bool {
	return map[string]bool{"fmt": true, "validate": true, "volume init": true, "job init": true}
}

// arguments are those that a command asks for, with files that can be read.
func arguments(t *testing.T, path string, cmd *cobra.Command) []string {
	t.Helper()
	args := strings.Fields(path)
	for _, word := range strings.Fields(cmd.Use)[1:] {
		switch {
		case strings.HasPrefix(word, "["):
		case strings.HasPrefix(word, "FILE"):
			args = append(args, write(t, jobFile)[0])
		case word == "COUNT", word == "REVISION":
			args = append(args, "1")
		case strings.HasPrefix(word, "--"):
			one, _, _ := strings.Cut(word, "|")
			args = append(args, one)
		case word == "SIGNAL":
			args = append(args, "SIGHUP")
		case word == "SIZE":
			args = append(args, "1GiB")
		case strings.HasPrefix(word, "KEY=VALUE"):
			args = append(args, "a=b")
		default:
			args = append(args, "x")
		}
	}
	return args
}

// TestEveryCommandTellsFailureFromMisuse: where the servers fail it does so with
// status 1, and what it does not take is refused with status 2, before any
// server is asked.
func TestEveryCommandTellsFailureFromMisuse(t *testing.T) {
	t.Parallel()
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_ = json.NewEncoder(w).Encode(api.Errorf(api.CodeInternal, "the disk has a hole"))
	}))
	t.Cleanup(failing.Close)
	for path, cmd := range leaves(t) {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			args := arguments(t, path, cmd)
			if !local()[path] {
				got := run(t, failing.URL, args...)
				if got.status != cli.ExitFailed || !strings.HasSuffix(got.stderr, "the disk has a hole\n") || got.stdout != "" {
					t.Errorf("where the servers fail: %+v", got)
				}
			}
			misused := [][]string{append(slices.Clip(args), "--frobnicate")}
			if strings.Contains(cmd.Use, "COMMAND") { // what follows is not ours
				at := len(strings.Fields(path))
				misused = [][]string{slices.Insert(slices.Clone(args), at, "--frobnicate")}
			}
			if !strings.Contains(cmd.Use, "...") {
				misused = append(misused, append(slices.Clip(args), "a", "b", "c"))
			}
			if fields := strings.Fields(path); len(args) > len(fields) {
				misused = append(misused, fields)
			}
			for _, wrong := range misused {
				got := run(t, "http://127.0.0.1:1", wrong...)
				if got.status != cli.ExitUsage || !strings.Contains(got.stderr, "--help')") || got.stdout != "" {
					t.Errorf("berth %s: %+v", strings.Join(wrong, " "), got)
				}
			}
		})
	}
}

// TestEveryCommandHasExamples, which are commands that there are, with flags
// that they take.
func TestEveryCommandHasExamples(t *testing.T) {
	t.Parallel()
	for path, cmd := range leaves(t) {
		if cmd.Example == "" {
			t.Errorf("berth %s has no example: give it one, or a line in the table of help.go", path)
		}
		for line := range strings.Lines(cmd.Example) {
			_, line, _ = strings.Cut(line, "berth ")
			line, _, _ = strings.Cut(line, "|")
			root := cli.Root(cli.Env{Getenv: variables(nil), Stdout: io.Discard, Stderr: io.Discard})
			found, rest, err := root.Find(strings.Fields(line))
			if err != nil || found.CommandPath() != "berth "+path {
				t.Errorf("the example %q is one of %q (%v), want berth %s", line, found.CommandPath(), err, path)
				continue
			}
			for _, word := range rest {
				name, isFlag := strings.CutPrefix(word, "--")
				if isFlag && found.Flag(strings.SplitN(name, "=", 2)[0]) == nil {
					t.Errorf("the example %q has --%s, which the command does not take", line, name)
				}
			}
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("berth %s: --%s does not say what it does", path, f.Name)
			}
		})
	}
}
