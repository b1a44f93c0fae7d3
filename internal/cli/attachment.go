package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

func (a *app) attachmentCommand() *cobra.Command {
	var all bool
	list := &cobra.Command{
		Use:   "list",
		Short: "List who holds which volume of the namespace, how far it is, and what it waits for",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.listAttachments(cmd, all) },
	}
	list.Flags().BoolVar(&all, "all", false, "show also those that are free again")
	return group("attachment", "Attachments: the holds of allocations on volumes", list,
		&cobra.Command{
			Use:   "status ALLOCATION/NAME",
			Short: "Show an allocation's hold on a volume, with its steps and their times",
			Long: "Shows an allocation's hold on a volume by the name of its request, with every step that it has taken, when, and for how\n" +
				"long. The beginning of the allocation's id is enough; its name may be left out where it has one request.",
			Args: cobra.ExactArgs(1), RunE: a.showAttachment,
		},
	)
}

func (a *app) listAttachments(cmd *cobra.Command, all bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	attachments, _, err := c.Attachments(cmd.Context(), client.Query{Namespace: a.ns()})
	if err != nil {
		return err
	}
	attachments = slices.DeleteFunc(attachments, func(at *api.Attachment) bool { return !all && !at.Holds() })
	if a.json {
		return a.printJSON(attachments)
	}
	waits := map[string]string{}
	if slices.ContainsFunc(attachments, moves) {
		status, err := c.Status(cmd.Context())
		if err != nil {
			return err
		}
		for _, w := range status.Waits {
			waits[w.Subject] = w.Reason
		}
	}
	rows := make([][]string, 0, len(attachments))
	for _, at := range attachments {
		rows = append(rows, []string{string(at.VolumeID), string(at.NodeID), at.AllocID.Short(), at.Name, string(at.JobID), string(at.AccessMode), writes(at),
			string(at.Status.State), a.when(began(at)), orDash(waits[subjectOf(at)])})
	}
	a.list("VOLUME NODE?7 ALLOCATION REQUEST?2 JOB?6 MODE?3 USE?4 STATE?8 SINCE?1 WAITS~?5", rows, a.inNamespace("attachments"))
	return nil
}

// moves reports whether an attachment is on its way somewhere.
func moves(at *api.Attachment) bool {
	return at.Holds() && at.Status.State != api.NodePublished
}

// subjectOf is what the servers call an attachment where it waits.
func subjectOf(at *api.Attachment) string {
	return fmt.Sprintf("attachment %s/%s", at.AllocID.Short(), at.Name)
}

// began is when an attachment came into its state.
func began(at *api.Attachment) time.Time {
	for _, step := range slices.Backward(at.Status.Steps) {
		if step.State == at.Status.State {
			return step.Time
		}
	}
	return at.ModifyTime
}

func (a *app) showAttachment(cmd *cobra.Command, args []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	id, name, _ := strings.Cut(args[0], "/")
	al, err := a.findAlloc(cmd.Context(), c, id)
	if err != nil {
		return err
	}
	at, err := request(&al, name)
	if err != nil || a.json {
		return a.orJSON(at, err)
	}
	problem := ""
	if p := at.Status.Problem; p != nil {
		problem = strings.TrimSuffix(p.Step+": "+p.Code, ": ") + ": " + p.Message
	}
	a.facts("Request", at.Name, "Allocation", string(at.AllocID), "Name", al.Name(), "Job", string(at.JobID), "Namespace", string(at.Namespace),
		"Volume", string(at.VolumeID), "Plugin", string(at.PluginID), "Node", string(at.NodeID), "State", string(at.Status.State),
		"Mode", fmt.Sprintf("%s/%s", at.AccessMode, at.AttachmentMode), "Use", writes(at), "Mounted at", at.Status.TargetPath, "Problem", problem)
	a.section("Steps")
	a.table("STATE AT LASTED?1 NOTE?2", stepRows(at))
	a.waits(slices.DeleteFunc(al.Waits, func(w api.Wait) bool {
		return strings.HasPrefix(w.Subject, "attachment ") && w.Subject != subjectOf(at)
	}))
	return nil
}

// request is the attachment of that name, which need not be said if there is
// one.
func request(al *api.AllocationInfo, name string) (*api.Attachment, error) {
	var names []string
	for _, at := range al.Attachments {
		if at.Name == name || name == "" && len(al.Attachments) == 1 {
			return at, nil
		}
		names = append(names, al.ID.Short()+"/"+at.Name)
	}
	if len(names) == 0 {
		return nil, api.Errorf(api.CodeNotFound, "allocation %s holds no volume", al.ID.Short())
	}
	slices.Sort(names)
	return nil, Usage(fmt.Errorf("allocation %s has no request %q; it has %s", al.ID.Short(), name, strings.Join(names, ", ")))
}

// stepRows are the steps of an attachment. One that was passed over took no
// time.
func stepRows(at *api.Attachment) [][]string {
	rows := make([][]string, 0, len(at.Status.Steps))
	for i, step := range at.Status.Steps {
		lasted, note := "-", ""
		if i+1 < len(at.Status.Steps) {
			lasted = at.Status.Steps[i+1].Time.Sub(step.Time).Round(time.Millisecond).String()
		}
		if step.Skipped {
			note = "passed over: not needed"
		}
		rows = append(rows, []string{string(step.State), step.Time.UTC().Format(time.RFC3339Nano), lasted, orDash(note)})
	}
	return rows
}
