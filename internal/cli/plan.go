package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/spec"
)

// errChanges ends a plan with the exit status of its own that was asked for.
var errChanges = errors.New("apply would change something")

func (a *app) planCommand() *cobra.Command {
	var detailed bool
	var rests restsOn
	var in *inputs
	cmd := &cobra.Command{
		Use:   "plan FILE...",
		Short: "Say what applying files would do, and do nothing",
		Long: "Reads volume and job files as berth apply does, and asks the servers what applying them would do: what differs from\n" +
			"what is there, which allocations would be started, stopped and kept, what would wait and why, and why nodes were\n" +
			"turned down. The servers try it on a copy of their state, so it is no estimate; it ends where an agent has to act.\n" +
			"Volumes of the same files that a plugin could make are taken for made.\n" +
			"The exit status is 0 also if there are changes; with --detailed-exitcode it is 3 then.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			all, err := a.parse(files, in)
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			a.warn("", all.Warnings)
			plan, err := rests.client(c).Plan(cmd.Context(), a.planRequest(all))
			switch {
			case err != nil:
				return err
			case a.json:
				err = a.printJSON(plan)
			default:
				a.printPlan(plan)
			}
			if err == nil && detailed && changes(plan) {
				return errChanges
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&detailed, "detailed-exitcode", false, fmt.Sprintf("exit with status %d if apply would change something", ExitChanges))
	createFlag(cmd, &rests.createOnly)
	in = inputFlags(cmd)
	return cmd
}

func (a *app) planRequest(f *spec.File) api.PlanRequest {
	var r api.PlanRequest
	for _, v := range f.Volumes {
		r.Volumes = append(r.Volumes, api.PlanVolume{Namespace: a.orDefault(v.Namespace), ID: v.ID, Spec: v.Spec})
	}
	for _, j := range f.Jobs {
		r.Jobs = append(r.Jobs, api.PlanJob{Namespace: a.orDefault(j.Namespace), ID: j.ID, Spec: j.Spec})
	}
	return r
}

func changes(p api.Plan) bool {
	for _, v := range p.Volumes {
		if v.Action != api.PlanNone {
			return true
		}
	}
	for i := range p.Jobs {
		if p.Jobs[i].Action != api.PlanNone {
			return true
		}
	}
	return false
}

// printPlan prints what differs, then what would happen, then why nodes were
// turned down.
func (a *app) printPlan(p api.Plan) {
	for _, v := range p.Volumes {
		a.print(plain(fmt.Sprintf("volume %s/%s %s", v.Namespace, v.ID, would(v.Action))))
		a.printChanges(v.Changes)
		for _, w := range v.Waits {
			a.print("  It would wait: " + plain(w.Reason))
		}
		a.warn(fmt.Sprintf("volume %s/%s: ", v.Namespace, v.ID), v.Warnings)
	}
	for i := range p.Jobs {
		j := &p.Jobs[i]
		if i > 0 || len(p.Volumes) > 0 {
			a.print("")
		}
		a.printJobPlan(j)
		a.warn(fmt.Sprintf("job %s/%s: ", j.Namespace, j.ID), j.Warnings)
	}
}

// would is what applying does to a thing.
func would(action api.PlanAction) string {
	switch action {
	case api.PlanCreate:
		return "would be created"
	case api.PlanChange:
		return "would be changed"
	case api.PlanStart:
		return "would be started again"
	case api.PlanNone:
		return "stays as it is"
	}
	return string(action)
}

// printed is how many allocations of a kind a plan shows.
const printed = 20

func (a *app) printJobPlan(j *api.JobPlan) {
	a.print(plain(fmt.Sprintf("job %s/%s %s", j.Namespace, j.ID, would(j.Action))))
	a.printChanges(j.Changes)
	var lines []string
	for _, s := range j.Start {
		line := fmt.Sprintf("start %s on node %s", slotName(j.ID, s.Group, s.Index), s.NodeID)
		if len(s.After) > 0 {
			line = fmt.Sprintf("start %s, probably on node %s, when %s made", slotName(j.ID, s.Group, s.Index), s.NodeID, are(s.After))
		}
		if s.Beside {
			line += ", beside allocation " + s.Replaces.Short() + ", which is stopped when it is healthy"
		} else if s.Replaces != "" {
			line += ", after allocation " + s.Replaces.Short()
		}
		lines = append(lines, line)
	}
	lines = few(lines, "start %d more")
	var stops []string
	for _, s := range j.Stop {
		stops = append(stops, fmt.Sprintf("stop %s on node %s, allocation %s: %s", slotName(j.ID, s.Group, s.Index), s.NodeID, s.ID.Short(), s.Reason))
	}
	lines = append(lines, few(stops, "stop %d more")...)
	var inPlace []string
	for _, k := range j.InPlace {
		inPlace = append(inPlace, fmt.Sprintf("change %s on node %s in place, allocation %s", slotName(j.ID, k.Group, k.Index), k.NodeID, k.ID.Short()))
	}
	lines = append(lines, few(inPlace, "change %d more in place")...)
	if len(j.Keep) > 0 {
		lines = append(lines, fmt.Sprintf("keep %s running", count(len(j.Keep), "allocation")))
	}
	if j.Reverted != nil {
		lines = append(lines, fmt.Sprintf("go back to revision %d at once: %s", j.Reverted.To, j.Reverted.Reason))
	}
	if j.Cut {
		lines = append(lines, "do more, which took too long to find out")
	}
	var volumes []string
	for i := range j.Create {
		volumes = append(volumes, createLine(j.ID, &j.Create[i]))
	}
	lines = append(few(volumes, "create %d volumes more"), lines...)
	if len(lines) > 0 {
		a.print("  The scheduler would")
	}
	for _, line := range lines {
		a.print("    " + plain(line))
	}
	if len(j.Waits) > 0 {
		a.print("  These would wait")
	}
	var waits []string
	for _, w := range j.Waits {
		waits = append(waits, w.Subject+": "+w.Reason)
	}
	for _, line := range few(waits, "%d more") {
		a.print("    " + plain(line))
	}
	for _, t := range j.TurnedDown {
		a.printTurnedDown(t)
	}
	if j.Version > 0 && j.Action != api.PlanNone {
		a.print(fmt.Sprintf("  To apply it only if nobody changes the job before, use --check-version %d", j.Version))
	}
}

// createLine is a volume that would be made, and what it waits for.
func createLine(job api.JobID, v *api.PlannedVolume) string {
	line := fmt.Sprintf("create volume %s like %s", v.ID, v.From)
	if v.Request != "" {
		line = fmt.Sprintf("create a volume for %s of %s", v.Request, slotName(job, v.Group, v.Index))
	}
	what := "plugin " + string(v.PluginID)
	if v.CapacityMin > 0 {
		what = size(v.CapacityMin) + ", " + what
	}
	switch {
	case v.NodeID != "":
		what += ", for node " + string(v.NodeID)
	case len(v.Topologies) > 0:
		what += ", " + topologies(v.Topologies)
	}
	line += " (" + what + ")"
	if len(v.Waits) > 0 {
		line += ", which would wait: " + v.Waits[0].Reason
	}
	return line
}

func (a *app) printTurnedDown(t api.TurnedDown) {
	a.print(plain(fmt.Sprintf("  %s turned down for group %s", count(t.Nodes, "node"), t.Group)))
	told := 0
	for _, r := range t.Reasons {
		var names []string
		for _, id := range r.Names {
			names = append(names, string(id))
		}
		if len(names) < r.Nodes {
			names = append(names, "...")
		}
		a.print(plain(fmt.Sprintf("    %d: %s (%s)", r.Nodes, r.Reason, strings.Join(names, ", "))))
		told += r.Nodes
	}
	if told < t.Nodes {
		a.print(fmt.Sprintf("    %d for other reasons", t.Nodes-told))
	}
}

// printChanges prints a diff, a line for each change.
func (a *app) printChanges(changes []api.Change) {
	for _, c := range changes {
		a.print("  " + plain(changeLine(c)))
	}
}

func changeLine(c api.Change) string {
	switch {
	case c.Kind == api.Added && c.New == nil:
		return "+ " + c.Path
	case c.Kind == api.Added:
		return "+ " + c.Path + " = " + compact(c.New)
	case c.Kind == api.Removed && c.Old == nil:
		return "- " + c.Path
	case c.Kind == api.Removed:
		return "- " + c.Path + " = " + compact(c.Old)
	}
	return "~ " + c.Path + " = " + compact(c.Old) + " -> " + compact(c.New)
}

func compact(v json.RawMessage) string {
	if v == nil {
		return "nothing"
	}
	// On its way through the API it was made fit for web pages.
	var value any
	d := json.NewDecoder(bytes.NewReader(v))
	d.UseNumber()
	if d.Decode(&value) != nil {
		return string(v)
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(value) != nil {
		return string(v)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// are names volumes as the subject of a sentence.
func are(ids []api.VolumeID) string {
	var names []string
	for _, id := range ids {
		names = append(names, string(id))
	}
	if len(names) == 1 {
		return "volume " + names[0] + " is"
	}
	return "volumes " + strings.Join(names, " and ") + " are"
}

// few are the first of some lines, with one that counts the others.
func few(lines []string, more string) []string {
	if len(lines) <= printed {
		return lines
	}
	return append(lines[:printed:printed], fmt.Sprintf(more, len(lines)-printed))
}

func slotName(job api.JobID, group string, index int) string {
	a := api.Allocation{JobID: job, Group: group, Index: index}
	return a.Name()
}

// count is a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
