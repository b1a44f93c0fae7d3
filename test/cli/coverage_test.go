package cli_test

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/internal/cli"
)

// TestEveryCommandHasAScript: for each command there is a script in which it is
// run, and does what was asked. That it tells failure from misuse is tested in
// internal/cli, for all of them.
func TestEveryCommandHasAScript(t *testing.T) {
	t.Parallel()
	tree := cli.Root(cli.Env{Getenv: func(string) string { return "" }, Stdout: io.Discard, Stderr: io.Discard})
	run := map[string]bool{}
	paths, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(txtar.Parse(b).Comment)) {
			for _, words := range done(line) {
				if cmd, _, err := tree.Find(words); err == nil {
					run[cmd.CommandPath()] = true
				}
			}
		}
	}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() && sub.Name() != "completion" && sub.Name() != "help" {
				walk(sub)
			}
		}
		if !run[cmd.CommandPath()] && !cmd.HasSubCommands() {
			t.Errorf("no script of testdata/script runs '%s': write one, or a line in that of its noun", cmd.CommandPath())
		}
	}
	walk(tree)
}

var awaited = regexp.MustCompile(`^until ('[^']*'|\S+) `)

// done are the commands of a script's line that have to succeed, or to print
// what is waited for.
func done(line string) [][]string {
	words := strings.Fields(line)
	if len(words) < 2 {
		return nil
	}
	switch words[0] {
	case "berth":
		return [][]string{words[1:]}
	case "until":
		return [][]string{strings.Fields(awaited.ReplaceAllString(line, ""))}
	case "during":
		for i, word := range words {
			if word == "then" {
				return [][]string{words[3:i], words[i+1:]}
			}
		}
	}
	return nil
}
