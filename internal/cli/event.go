package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

func (a *app) eventCommand() *cobra.Command {
	return group("event", "Events: what is committed, as it happens", a.eventStreamCommand())
}

func (a *app) eventStreamCommand() *cobra.Command {
	var (
		topics []string
		from   uint64
		count  int
	)
	cmd := &cobra.Command{
		Use:   "stream",
		Short: "Follow what happens",
		Long: "Prints a line for every row that is created, changed or deleted, from now on, until it is interrupted. It goes on by itself\n" +
			"when the connection breaks. Nodes, plugins' instances and the cluster are in no namespace and are told of in all. With --json it prints the\n" +
			"API's stream: a line of JSON for every commit, whose index is where --index goes on.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := client.EventQuery{Namespace: a.ns(), Index: from}
			var p api.Problems
			for _, text := range topics {
				f, problem := api.ParseTopic(text)
				if problem != nil {
					p.Add("--"+problem.Path, problem.Message, problem.Mend)
				}
				q.Topics = append(q.Topics, f)
			}
			if count < 0 {
				p.Addf("--count", "give a number of events, or 0 for no end", "is %d", count)
			}
			if err := p.Err("the command"); err != nil {
				return err
			}
			return a.streamEvents(cmd, q, count)
		},
	}
	words := make([]string, 0, len(api.Topics()))
	for _, t := range api.Topics() {
		words = append(words, string(t))
	}
	cmd.Flags().StringArrayVar(&topics, "topic", nil, "only this `noun`, or NOUN:ID; may be given several times; nouns are "+strings.Join(words, ", "))
	cmd.Flags().Uint64Var(&from, "index", 0, "go on after this `index`; 1 is from the oldest event that is kept")
	cmd.Flags().IntVar(&count, "count", 0, "end after so many events; 0 does not end")
	_ = cmd.RegisterFlagCompletionFunc("topic", cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	return cmd
}

// streamEvents prints events until there were enough.
func (a *app) streamEvents(cmd *cobra.Command, q client.EventQuery, count int) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	printed := 0
	for frame, err := range c.Events(cmd.Context(), q) {
		if err != nil {
			return err
		}
		if len(frame.Events) == 0 {
			continue
		}
		if err := a.printFrame(frame, count-printed); err != nil {
			return err
		}
		if printed += len(frame.Events); count > 0 && printed >= count {
			return nil
		}
	}
	return errors.New("the stream has ended")
}

// printFrame prints the events of a frame, and no more than are left if there is
// an end. JSON is the API's, and whole.
func (a *app) printFrame(f api.EventFrame, left int) error {
	if a.template != nil {
		return a.printTemplate(f)
	}
	if a.json {
		enc := json.NewEncoder(a.Stdout)
		enc.SetEscapeHTML(false)
		return enc.Encode(f)
	}
	events := f.Events
	if left > 0 && left < len(events) {
		events = events[:left]
	}
	for _, e := range events {
		name := e.Key
		if e.Namespace != "" {
			name = string(e.Namespace) + "/" + e.Key
		}
		if a.columns() == 0 {
			a.print(strings.Join([]string{f.Time.Format(time.RFC3339), strconv.FormatUint(f.Index, 10), string(e.Kind), string(e.Topic), plain(name), rowState(e)}, "\t"))
			continue
		}
		line := fmt.Sprintf("%s  %s  %-11s  %s", f.Time.Local().Format(time.TimeOnly), e.Kind, e.Topic, plain(name))
		if state := rowState(e); state != "" {
			line += "  " + a.paint(state)
		}
		a.print(line)
	}
	return nil
}

// rowState is how the row is, in a word: each noun says it in its own way.
func rowState(e api.Event) string {
	var row struct {
		Desired string
		Healthy *bool
		Status  struct{ State, Outcome string }
	}
	if json.Unmarshal(e.Row, &row) != nil {
		return ""
	}
	switch {
	case e.Topic == api.TopicInstance && row.Healthy != nil && *row.Healthy:
		return "healthy"
	case e.Topic == api.TopicInstance && row.Healthy != nil:
		return "unhealthy"
	case row.Status.State != "":
		return plain(row.Status.State)
	case row.Status.Outcome != "":
		return plain(row.Status.Outcome)
	}
	return plain(row.Desired)
}
