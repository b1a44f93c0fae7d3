package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

// The questions of completion. A shell has no use for errors: what cannot be
// found out is not offered.

func completed(ns api.NamespaceID) client.Query {
	return client.Query{Namespace: ns, Page: &client.Page{Size: maxCompleted}}
}

func (a *app) idsOf(k kind) asks {
	return func(ctx context.Context, c *client.Client, _ []string, begin string) []known {
		all, _ := k.beginning(ctx, c, a.ns(), begin, &client.Page{Size: maxCompleted})
		return all
	}
}

func (a *app) services(ctx context.Context, c *client.Client, _ []string, begin string) (all []known) {
	q := completed(a.ns())
	q.Prefix = begin
	rows, _, _ := c.Services(ctx, q)
	for _, s := range rows {
		all = append(all, known{id: s.Name, note: count(len(s.Instances), "instance")})
	}
	return all
}

// attachments are named by the short ids of their allocations.
func (a *app) attachments(ctx context.Context, c *client.Client, _ []string, _ string) (all []known) {
	rows, _, _ := c.Attachments(ctx, completed(a.ns()))
	for _, at := range rows {
		all = append(all, known{id: at.AllocID.Short() + "/" + at.Name, note: fmt.Sprintf("%s, volume %s", at.Status.State, at.VolumeID)})
	}
	return all
}

// strangers are the findings of volumes that are not known: the others are no volumes to
// adopt or to delete.
func (a *app) strangers(ctx context.Context, c *client.Client, _ []string, begin string) (all []known) {
	rows, _, _ := c.Findings(ctx, client.Query{Prefix: begin, Page: &client.Page{Size: maxCompleted}})
	for _, f := range rows {
		if f.Kind == api.FindingLeak || f.Kind == api.FindingRetained {
			all = append(all, known{id: string(f.ID), note: fmt.Sprintf("%s of plugin %s", f.ExternalID, f.PluginID)})
		}
	}
	return all
}

// holders are the allocations that hold the volume before, and their nodes.
func (a *app) holders(ctx context.Context, c *client.Client, args []string, _ string) (all []known) {
	v, _, err := c.Volume(ctx, a.ns(), api.VolumeID(args[0]), client.Query{})
	if err != nil {
		return nil
	}
	for _, pub := range v.Publications {
		all = append(all, known{id: string(pub.NodeID), note: "node, " + string(pub.Status.Outcome)})
	}
	for _, at := range v.Attachments {
		all = append(all, known{id: string(at.AllocID), note: fmt.Sprintf("%s of job %s", at.Status.State, at.JobID)})
	}
	return all
}

// tasks are those of the allocation before; where it comes after, those of all
// that are not over.
func (a *app) tasks(ctx context.Context, c *client.Client, args []string, _ string) (all []known) {
	var of []*api.Allocation
	if len(args) == 0 {
		of, _, _ = c.Allocations(ctx, completed(a.ns()))
		of = slices.DeleteFunc(of, (*api.Allocation).Terminal)
	} else if info, _, err := c.Allocation(ctx, args[0], client.Query{Namespace: a.ns()}); err == nil {
		of = []*api.Allocation{info.Allocation}
	}
	for _, alloc := range of {
		for _, name := range slices.Sorted(maps.Keys(alloc.Status.Tasks)) {
			one := known{id: name, note: string(alloc.Status.Tasks[name].State)}
			if !slices.ContainsFunc(all, func(k known) bool { return k.id == name }) {
				all = append(all, one)
			}
		}
	}
	return all
}

// groups are those of the job before.
func (a *app) groups(ctx context.Context, c *client.Client, args []string, _ string) (all []known) {
	job, _, err := c.Job(ctx, a.ns(), api.JobID(args[0]), client.Query{})
	if err != nil || job.Job == nil {
		return nil
	}
	for i := range job.Spec.Groups {
		all = append(all, known{id: job.Spec.Groups[i].Name, note: "count " + strconv.Itoa(job.Spec.Groups[i].Count)})
	}
	return all
}

// revisions are the earlier ones of the job before, the newest first.
func (a *app) revisions(ctx context.Context, c *client.Client, args []string, _ string) (all []known) {
	rows, _, _ := c.JobRevisions(ctx, a.ns(), api.JobID(args[0]), client.Query{})
	for _, r := range rows {
		if r.Current {
			continue
		}
		var notes []string
		if !r.Applied.IsZero() {
			notes = append(notes, "applied "+ago(r.Applied))
		}
		if r.Stable {
			notes = append(notes, "stable")
		}
		all = append(all, known{id: strconv.FormatUint(r.Revision, 10), note: strings.Join(notes, ", ")})
	}
	return all
}
