package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

// completeTime is how long a shell waits for ids. Who presses a key waits for
// nothing longer, and is told nothing of servers that do not answer.
const completeTime = time.Second

// maxCompleted is how many ids a shell is offered.
const maxCompleted = 500

// asks is a question to the servers about what may stand at a place: args are
// the arguments before it, begin is what was typed of it.
type asks func(ctx context.Context, c *client.Client, args []string, begin string) []known

// complete gives every command what its arguments may be: by the words with
// which its usage calls them.
func (a *app) complete(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		a.complete(sub)
	}
	a.completeFlags(cmd)
	if cmd.ValidArgsFunction != nil || cmd.HasSubCommands() || cmd.Parent() == nil {
		return
	}
	words, again := places(cmd), strings.HasSuffix(strings.TrimRight(cmd.Use, "]"), "...")
	if len(words) > 0 && strings.HasPrefix(words[0], "FILE") {
		if cmd.Name() != "save" && cmd.Name() != "restore" { // those may be called anything
			cmd.ValidArgsFunction = completeSpecs
		}
		return
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		at := len(args)
		if again && len(words) > 0 {
			at = min(at, len(words)-1)
		}
		if at >= len(words) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		group, word := cmd.Parent().Name(), words[at]
		if word == "ID" && len(args) > 0 {
			group = "" // a new one
		}
		return a.offer(cmd, a.asked(group, word), args, begin)
	}
}

// places are the words with which a command's usage calls its arguments.
func places(cmd *cobra.Command) []string {
	words := strings.Fields(cmd.Use)[1:]
	for i, word := range words {
		words[i] = strings.Trim(word, "[].")
	}
	return slices.DeleteFunc(words, func(word string) bool { return strings.HasPrefix(word, "--") })
}

// completeSpecs offers the files that are read as volumes and jobs.
func completeSpecs(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"hcl", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

// asked is the question about a place of the usage of a command of a group, nil
// for one of which the servers know nothing: a number, a size, a new name.
func (a *app) asked(group, word string) asks {
	switch word {
	case "ID":
		if k, there := kindNamed(group); there && group != "" {
			return a.idsOf(k)
		}
	case "PATH", "PREFIX":
		if k, there := kindNamed(group); there {
			return a.idsOf(k)
		}
	case "NODE", "PLUGIN", "VOLUME":
		k, _ := kindNamed(strings.ToLower(word))
		return a.idsOf(k)
	case "NAME":
		if group == "service" {
			return a.services
		}
	case "ALLOCATION/NAME":
		return a.attachments
	case "NODE|ALLOCATION":
		return a.holders
	case "FINDING":
		return a.strangers
	case "TASK", "ID|TASK":
		return a.tasks
	case "SIGNAL":
		return signals
	case "GROUP":
		return a.groups
	case "REVISION":
		return a.revisions
	}
	return nil
}

// signals are those that tasks can be sent.
func signals(context.Context, *client.Client, []string, string) (all []known) {
	for _, name := range api.Signals() {
		all = append(all, known{id: name})
	}
	return all
}

// completeFlags gives the flags that name things what they may be.
func (a *app) completeFlags(cmd *cobra.Command) {
	for flag, question := range map[string]asks{
		"plugin": a.asked("", "PLUGIN"), "volume": a.asked("", "VOLUME"), "task": a.tasks, "delete": a.strangers,
	} {
		if f := cmd.Flags().Lookup(flag); f != nil && f.Value.Type() == "string" {
			_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) { // the flag is there
				return a.offer(cmd, question, args, begin)
			})
		}
	}
	for flag, words := range map[string][]string{
		"reclaim": texts(api.Reclaims()), "access-mode": texts(api.AccessModes()), "attachment-mode": {string(api.FileSystem), string(api.BlockDevice)},
	} {
		if cmd.Flags().Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
		}
	}
}

func texts[T ~string](words []T) (all []string) {
	for _, word := range words {
		all = append(all, string(word))
	}
	return all
}

// offer is what the servers answer to a question, each with a note, of what
// begins as was typed.
func (a *app) offer(cmd *cobra.Command, question asks, args []string, begin string) (found []string, _ cobra.ShellCompDirective) {
	if question == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, one := range a.ask(cmd, func(ctx context.Context, c *client.Client) []known { return question(ctx, c, args, begin) }) {
		if strings.HasPrefix(one.id, begin) {
			found = append(found, plain(one.id)+"\t"+plain(one.note))
		}
	}
	return found[:min(len(found), maxCompleted)], cobra.ShellCompDirectiveNoFileComp
}

// completeNamespaces are the namespaces that there are.
func (a *app) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	all := a.ask(cmd, func(ctx context.Context, c *client.Client) (all []known) {
		some, _, _ := c.Namespaces(ctx, client.Query{Page: &client.Page{Size: maxCompleted}})
		for _, ns := range some {
			all = append(all, known{namespace: ns.ID})
		}
		return all
	})
	found := []string{string(api.DefaultNamespace)}
	for _, one := range all {
		found = append(found, string(one.namespace))
	}
	slices.Sort(found)
	return slices.Compact(found), cobra.ShellCompDirectiveNoFileComp
}

// ask asks the servers once, in little time and in silence.
func (a *app) ask(cmd *cobra.Command, question func(context.Context, *client.Client) []known) []known {
	c, err := client.New(client.Config{Address: a.address})
	if err != nil {
		return nil
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
	defer cancel()
	return question(ctx, c)
}
