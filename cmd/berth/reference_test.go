package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-dev/berth/internal/cli"
)

var update = flag.Bool("update", false, "write docs/cli.md")

// TestReference compares docs/cli.md with the commands that there are.
func TestReference(t *testing.T) {
	t.Parallel()
	const page, marker = "../../docs/cli.md", "-update -->\n"
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	written, _, there := strings.Cut(string(b), marker)
	if !there {
		t.Fatalf("%s has no line that ends with %q", page, marker)
	}
	want := written + marker + reference()
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(b)); diff != "" {
		t.Errorf("%s is not that of the commands: run go test ./cmd/berth -run TestReference -update (-commands +page):\n%s", page, diff)
	}
}

// reference describes all commands in Markdown.
func reference() string {
	env := cli.Env{Getenv: func(string) string { return "" }, Stdout: io.Discard, Stderr: io.Discard}
	env.Commands, env.PluginCommands = commands("")
	root := cli.Root(env)
	var b strings.Builder
	b.WriteString("\n## Flags of all commands\n\n")
	flags(&b, root.PersistentFlags())
	describe(&b, root)
	return b.String()
}

func describe(b *strings.Builder, cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		if !sub.IsAvailableCommand() || sub.Name() == "completion" || sub.Name() == "help" {
			continue
		}
		if !sub.HasSubCommands() || sub.Flags().HasFlags() || sub.Example != "" {
			fmt.Fprintf(b, "\n## %s\n\n", sub.UseLine()[:len(sub.UseLine())-len(flagsWord(sub))])
			text := sub.Long
			if text == "" {
				text = sub.Short + "."
			}
			b.WriteString(escape(text) + "\n")
			if sub.Example != "" {
				b.WriteString("\n")
				for line := range strings.Lines(sub.Example) {
					b.WriteString("    " + strings.TrimSpace(line) + "\n")
				}
			}
			if sub.LocalNonPersistentFlags().HasAvailableFlags() {
				b.WriteString("\n")
				flags(b, sub.LocalNonPersistentFlags())
			}
		}
		describe(b, sub)
	}
}

// flagsWord is what cobra appends to the line of a command that has flags.
func flagsWord(cmd *cobra.Command) string {
	const word = " [flags]"
	if strings.HasSuffix(cmd.UseLine(), word) {
		return word
	}
	return ""
}

// flags is a table of flags.
func flags(b *strings.Builder, set *pflag.FlagSet) {
	b.WriteString("| flag | meaning |\n|---|---|\n")
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "`--" + f.Name
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		if value != "" {
			name += " " + strings.ToUpper(value)
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0s" && f.DefValue != "0" {
			usage += "; " + f.DefValue + " if it is not given"
		}
		fmt.Fprintf(b, "| %s` | %s |\n", name, escape(usage))
	})
}

// escape keeps text from being taken for a table's border or a tag.
func escape(text string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "<", "&lt;", ">", "&gt;").Replace(text)
}
