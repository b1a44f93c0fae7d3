package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

// detachCommand takes a volume off nodes.
func (a *app) detachCommand() *cobra.Command {
	var wait *waiting
	var ask api.DetachRequest
	cmd := &cobra.Command{
		Use:   "detach ID [NODE|ALLOCATION]",
		Short: "Take a volume off a node, or away from an allocation, and wait until it is detached",
		Long: "Takes a volume away from all that hold it, or only from a node or an allocation, of which the beginning of the id is\n" +
			"enough. It goes the way that it always goes: the node unmounts it, then the provider detaches it. What waits for its\n" +
			"next try on that way is tried at once. What an allocation is using stays, unless --stop ends the allocation first; its\n" +
			"job then places another one: 'berth job stop' keeps it away for longer.\n\n" +
			"A node that is down cannot let go of anything: 'berth node fence' is your word that it is off. What 'berth volume leaks'\n" +
			"lists as attached, which only the provider knows, is detached there: NODE may be the provider's name.",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			if ask.By == "" {
				ask.By = a.user()
			}
			return a.detach(cmd.Context(), c, detaching{wait: wait, ask: ask}, args)
		},
	}
	cmd.Flags().BoolVar(&ask.Stop, "stop", false, "stop the allocations that use it first")
	cmd.Flags().StringVar(&ask.By, "by", "", "who says so, for the record (default: who you are on this machine)")
	wait = waitFlagsNamed(cmd, "no-wait")
	return cmd
}

// detaching is what a detach was told.
type detaching struct {
	wait *waiting
	ask  api.DetachRequest
}

func (a *app) detach(ctx context.Context, c *client.Client, d detaching, args []string) error {
	id := api.VolumeID(args[0])
	v, _, err := c.Volume(ctx, a.ns(), id, client.Query{})
	if err != nil {
		return search{a, c, "volume"}.notFound(ctx, args[0], err)
	}
	if len(args) > 1 {
		if d.ask.DetachFrom, err = holder(&v, args[1]); err != nil {
			return err
		}
	}
	begun, err := c.DetachVolume(ctx, a.ns(), id, d.ask)
	if api.CodeOf(err) == api.CodeInUse {
		return fmt.Errorf("%w (--stop)", err)
	}
	if err != nil {
		return err
	}
	if a.json && d.wait.detach {
		return a.printJSON(begun)
	}
	for _, al := range begun.Stopped {
		a.progress("allocation %s %s on node %s is to stop; job %s places another one", al.ID.Short(), al.Name(), al.NodeID, al.JobID)
	}
	if d.wait.detach {
		a.progress("volume %s/%s is to be detached", a.ns(), id)
		return nil
	}
	ctx, cancel := d.wait.limit(ctx)
	defer cancel()
	return a.wait(ctx, func(ctx context.Context) error { return a.awaitDetached(ctx, c, v.Volume, &begun) })
}

// holder is the node or the allocation that a person means, among those that
// have to do with the volume.
func holder(v *api.VolumeInfo, word string) (from api.DetachFrom, err error) {
	found := map[api.DetachFrom]string{}
	whole := false
	add := func(id, what string, from api.DetachFrom) {
		if id == word {
			found, whole = map[api.DetachFrom]string{from: what}, true
		}
		if !whole && strings.HasPrefix(id, word) {
			found[from] = what
		}
	}
	for _, at := range v.Attachments {
		add(string(at.AllocID), "allocation "+at.AllocID.Short()+" of job "+string(at.JobID), api.DetachFrom{AllocID: at.AllocID})
		add(string(at.NodeID), "node "+string(at.NodeID), api.DetachFrom{NodeID: at.NodeID})
	}
	for _, pub := range v.Publications {
		add(string(pub.NodeID), "node "+string(pub.NodeID), api.DetachFrom{NodeID: pub.NodeID})
		if pub.Status.Left { // who asked for it before knows it by the provider's name
			add(pub.Status.ExternalNodeID, "node "+string(pub.NodeID), api.DetachFrom{NodeID: pub.NodeID})
		}
	}
	for _, f := range v.Findings {
		if f.Kind == api.FindingAttached {
			// The cluster's own name of it and the provider's mean one thing.
			node := cmp.Or(f.NodeID, api.NodeID(f.ExternalNodeID))
			for _, name := range []string{string(node), f.ExternalNodeID} {
				add(name, "node "+string(node), api.DetachFrom{NodeID: node})
			}
		}
	}
	switch len(found) {
	case 0:
		return from, api.Errorf(api.CodeNotFound, "volume %s is neither attached to a node nor held by an allocation that is called %s (see 'berth volume status %s%s')",
			v.ID, word, v.ID, in(v.Namespace))
	case 1:
		for from := range found {
			return from, nil
		}
	}
	var names []string
	for _, what := range found {
		names = append(names, what)
	}
	slices.Sort(names)
	return from, Usage(errors.New(word + " may be " + strings.Join(names, " or ")))
}

// awaitDetached waits until nothing of a detachment is left.
func (a *app) awaitDetached(ctx context.Context, c *client.Client, vol *api.Volume, begun *api.Detach) error {
	w := a.volumeWatcher(vol.Namespace, vol.ID)
	_, err := await(ctx, w, volumeReader(c, vol.Namespace, vol.ID), func(now api.VolumeInfo, err error) (bool, error) {
		gone := api.CodeOf(err) == api.CodeNotFound
		switch {
		case err != nil && !gone:
			return false, err
		case gone || now.UID != vol.UID || !detachLeft(&now, begun):
			w.reached("detached", "")
			return true, nil
		}
		w.waits("being detached", now.Waits)
		return false, nil
	})
	return err
}

// detachLeft reports whether something of a detachment is still to come. A
// publication that somebody else uses is no part of it any more.
func detachLeft(now *api.VolumeInfo, begun *api.Detach) bool {
	for _, at := range begun.Attachments {
		if slices.ContainsFunc(now.Attachments, func(other *api.Attachment) bool { return other.AllocID == at.AllocID && other.Name == at.Name }) {
			return true
		}
	}
	for _, pub := range begun.Publications {
		there := slices.ContainsFunc(now.Publications, func(other *api.Publication) bool { return other.NodeID == pub.NodeID })
		used := slices.ContainsFunc(now.Attachments, func(at *api.Attachment) bool { return at.NodeID == pub.NodeID })
		if there && !used {
			return true
		}
	}
	return false
}
