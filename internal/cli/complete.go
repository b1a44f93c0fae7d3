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

// complete gives every command that takes an ID the ids of its noun, and every
// one that takes files the files that it can read.
func (a *app) complete(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		a.complete(sub)
	}
	words := strings.Fields(cmd.Use)
	if cmd.ValidArgsFunction != nil || cmd.HasSubCommands() || cmd.Parent() == nil {
		return
	}
	if len(words) < 2 {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
		return
	}
	switch k, known := kindNamed(cmd.Parent().Name()); {
	case words[1] == "ID" && known:
		cmd.ValidArgsFunction = a.completeIDs(k)
	case strings.HasPrefix(strings.TrimPrefix(words[1], "["), "FILE") && cmd.Name() != "save" && cmd.Name() != "restore":
		cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"hcl", "yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
		}
	}
}

func (a *app) completeIDs(k kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		here := a.ask(cmd, func(ctx context.Context, c *client.Client) []known {
			all, _ := k.beginning(ctx, c, a.ns(), begin, &client.Page{Size: maxCompleted}) // a shell has no use for errors
			return all
		})
		var found []string
		for _, one := range here {
			found = append(found, plain(one.id)+"\t"+plain(one.note))
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeNamespaces are the namespaces that have something in them.
func (a *app) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	all := a.ask(cmd, func(ctx context.Context, c *client.Client) (all []known) {
		for _, noun := range []string{"volume", "job"} {
			k, _ := kindNamed(noun)
			some, _ := k.list(ctx, c, client.Query{Page: &client.Page{Size: maxCompleted}})
			all = append(all, some...)
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
