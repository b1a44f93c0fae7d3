package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
)

// explainCommand is the command that says why a thing is as it is: what it
// waits for, since when, when it is tried next, and who holds it.
func (a *app) explainCommand(noun, what string, explain func(*cobra.Command, string) error) *cobra.Command {
	return &cobra.Command{
		Use:   "explain ID",
		Short: "Say what " + what + " waits for, since when, and when it is tried next",
		Long: "Says what " + what + " waits for, since when, and when it is tried next. The servers compute it when they are asked:\n" +
			"it is never out of date. With --json it prints what 'berth " + noun + " status' does.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return explain(cmd, args[0]) },
	}
}

func (a *app) explainVolume(cmd *cobra.Command, word string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	v, err := a.findVolume(cmd.Context(), c, word)
	if err != nil || a.json {
		return a.orJSON(v, err)
	}
	subject := fmt.Sprintf("volume %s/%s", v.Namespace, v.ID)
	a.print(plain(subject) + " is " + a.paint(string(v.Status.State)))
	if v.Owner != "" {
		a.print(plain("  it was made for " + owner(v.Volume)))
	}
	if v.Status.State == api.VolumeFailed {
		a.print("  " + plain(v.Status.Reason))
		a.print("  change its file and apply it again, or delete it")
	}
	if v.Status.State == api.VolumeReady {
		for _, left := range []struct{ what, text string }{{"expanded", expansion(v.Volume)}, {"modified", modification(v.Volume)}} {
			if left.text != "" {
				a.print(plain(fmt.Sprintf("  it is to be %s%s: %s", left.what, withSize(v.Status.Capacity), left.text)))
			}
		}
	}
	for _, at := range v.Attachments {
		a.print(plain(fmt.Sprintf("  allocation %s of job %s on node %s holds it as %s: %s, %s%s",
			at.AllocID.Short(), at.JobID, at.NodeID, at.Name, writes(at), at.Status.State, lasting(at))))
	}
	for _, p := range v.Publications {
		if len(v.Attachments) == 0 && (p.MayBeAttached() || p.Status.Staged) {
			a.print(plain(fmt.Sprintf("  node %s has it still: %s", p.NodeID, presence(p))))
		}
	}
	for _, f := range v.Findings {
		a.print("  " + plain(found(f)+since(f.Since)))
	}
	a.explainOperations(v.Operations)
	a.explainWaits(subject, v.Waits)
	a.explainQueue(v.Queue)
	return nil
}

// explainQueue says who waits for a volume, who gets it first at the top.
func (a *app) explainQueue(queue []api.QueuedJob) {
	for i, q := range queue {
		line := fmt.Sprintf("  job %s waits for the volume", q.JobID)
		if i > 0 {
			line += fmt.Sprintf(", behind %d", i)
		}
		if q.Priority != api.DefaultPriority {
			line += fmt.Sprintf(", with priority %d", q.Priority)
		}
		if !q.Since.IsZero() {
			line += fmt.Sprintf(", since %s (%s)", q.Since.UTC().Format(time.RFC3339), age(q.Since))
		}
		a.print(plain(line))
		for _, w := range q.Places {
			a.print(plain("    " + w.Subject + ": " + w.Reason))
		}
	}
}

// happened is how many operations an explanation tells of.
const happened = 5

// explainOperations says what was done last, the newest at the end. What is
// open is among what is waited for.
func (a *app) explainOperations(all []*api.Operation) {
	var ops []*api.Operation
	for _, o := range all {
		if !o.Open() {
			ops = append(ops, o)
		}
	}
	slices.SortFunc(ops, func(x, y *api.Operation) int { return cmp.Compare(x.CreateIndex, y.CreateIndex) })
	for _, o := range ops[max(0, len(ops)-happened):] {
		line := fmt.Sprintf("  operation %s is %s", o.ID, o.Status.State)
		switch {
		case o.Status.Attempt > 1:
			line += fmt.Sprintf(" in attempt %d", o.Status.Attempt)
		case o.Status.Duration > 0:
			line += " after " + took(o)
		}
		if o.Status.Message != "" {
			line += fmt.Sprintf(": %s: %s", o.Status.Code, o.Status.Message)
		}
		if !o.ModifyTime.IsZero() {
			line += " (" + age(o.ModifyTime) + " ago)"
		}
		a.print(plain(line))
	}
}

// lasting is for how long an attachment has been in its state.
func lasting(at *api.Attachment) string {
	for _, step := range slices.Backward(at.Status.Steps) {
		if step.State == at.Status.State && !step.Time.IsZero() {
			return " for " + age(step.Time)
		}
	}
	return ""
}

// presence is what is known of a volume on a node.
func presence(p *api.Publication) string {
	words := []string{"attachment at the provider: " + string(p.Status.Outcome)}
	if p.Status.Staged {
		words = append(words, "staged")
	}
	return strings.Join(words, ", ")
}

func (a *app) explainJob(cmd *cobra.Command, word string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	j, err := a.findJob(cmd.Context(), c, word)
	if err != nil || a.json {
		return a.orJSON(j, err)
	}
	subject := fmt.Sprintf("job %s/%s", j.Namespace, j.ID)
	a.print(plain(subject) + " is " + a.paint(string(j.State)))
	sortAllocs(j.Allocations)
	for _, al := range j.Allocations {
		line := fmt.Sprintf("  allocation %s %s on node %s is %s", al.ID.Short(), al.Name(), al.NodeID, al.Status.State)
		if why := al.Status.Why(); al.Terminal() && why != "" {
			line += ": " + why
		}
		a.print(plain(line))
	}
	a.explainWaits(subject, j.Waits)
	return nil
}

func (a *app) explainAlloc(cmd *cobra.Command, word string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	al, err := a.findAlloc(cmd.Context(), c, word)
	if err != nil || a.json {
		return a.orJSON(al, err)
	}
	subject := fmt.Sprintf("allocation %s %s", al.ID.Short(), al.Name())
	a.print(plain(subject) + " is " + a.paint(string(al.Status.State)))
	if al.Desired == api.DesireStop {
		a.print("  " + plain(strings.TrimSuffix("it is to stop: "+al.DesiredReason, ": ")))
	}
	if why := al.Status.Why(); al.Terminal() && why != "" {
		a.print("  " + plain(why))
	}
	for _, at := range al.Attachments {
		a.print(plain(fmt.Sprintf("  it holds volume %s/%s as %s: %s, %s%s", at.Namespace, at.VolumeID, at.Name, writes(at), at.Status.State, lasting(at))))
	}
	a.explainWaits(subject, al.Waits)
	return nil
}

// explainWaits prints what is waited for, with times. What waits is left out
// where it is the subject itself.
func (a *app) explainWaits(subject string, waits []api.Wait) {
	if len(waits) == 0 {
		a.print("  it waits for nothing")
		return
	}
	for _, w := range waits {
		line := w.Reason
		if w.Subject != subject {
			line = w.Subject + ": " + line
		}
		a.print("  " + plain(line))
		times := "tried again as soon as that changes"
		if !w.Next.IsZero() {
			times = "next try " + until(w.Next)
		}
		if !w.Since.IsZero() {
			times = fmt.Sprintf("since %s (%s), %s", w.Since.UTC().Format(time.RFC3339), age(w.Since), times)
		}
		a.print("    " + times)
	}
}
