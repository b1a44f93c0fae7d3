// Package question answers what servers ask of the plugins on this node: it
// makes a call that changes nothing, and sends what the plugin says.
//
// It never makes a call with an effect, and keeps nothing. Invariant: a
// question takes no longer than its limit and no more than Parallel of them
// are with one plugin, so that one that hangs costs its own answer and no
// other plugin's.
package question

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
	"github.com/berth-dev/berth/internal/frame"
)

// Plugins finds the client of a healthy controller instance on this node that
// has a capability; an empty one is any.
type Plugins interface {
	ControllerWith(id api.PluginID, capability string) (*csi.Client, error)
}

// Mounts asks a plugin how full a volume is that is mounted here.
type Mounts interface {
	Usage(ctx context.Context, ns api.NamespaceID, vol api.VolumeID) (api.VolumeUsage, error)
}

const (
	// Parallel is how many questions are with one plugin at a time.
	Parallel = 4
	// maxLimit bounds what servers may ask for.
	maxLimit = 5 * time.Minute
	// pageSize is how many volumes a page of a whole list is asked to have, and
	// maxListed how many volumes a list may have. A plugin that gives more goes
	// in circles.
	pageSize  = 500
	maxListed = 1_000_000
	// maxRestarts is how often a list may begin again.
	maxRestarts = 3
)

// Answerer answers questions. It is safe for concurrent use.
type Answerer struct {
	plugins Plugins
	mounts  Mounts

	mu    sync.Mutex // guards slots
	slots map[api.PluginID]chan struct{}
}

// New returns an answerer. It starts nothing.
func New(plugins Plugins, mounts Mounts) *Answerer {
	return &Answerer{plugins: plugins, mounts: mounts, slots: map[api.PluginID]chan struct{}{}}
}

// Answer serves a stream of a question: the answer as values of JSON.
func (a *Answerer) Answer(ctx context.Context, offer api.StreamOffer, out *frame.Writer) error {
	q := offer.Question
	if q == nil || q.Limit <= 0 {
		return api.Errorf(api.CodeInvalid, "the servers do not say what they ask, or how long that may take")
	}
	bounded, cancel := context.WithTimeout(ctx, min(time.Duration(q.Limit), maxLimit))
	defer cancel()
	leave, err := a.enter(bounded, q.PluginID)
	if err != nil {
		return err
	}
	defer leave()
	buffered := bufio.NewWriterSize(out, frame.Max)
	if err := a.answer(bounded, q, json.NewEncoder(buffered)); err != nil {
		return said(err)
	}
	return buffered.Flush()
}

// enter waits for a turn with the plugin.
func (a *Answerer) enter(ctx context.Context, id api.PluginID) (leave func(), err error) {
	a.mu.Lock()
	slot := a.slots[id]
	if slot == nil {
		slot = make(chan struct{}, Parallel)
		a.slots[id] = slot
	}
	a.mu.Unlock()
	select {
	case slot <- struct{}{}:
		if ctx.Err() == nil {
			return func() { <-slot }, nil
		}
		<-slot
	case <-ctx.Done():
	}
	return nil, api.Errorf(api.CodeUnavailable, "plugin %s is busy with %d other questions, and answers none of them", id, Parallel)
}

// answer makes the call of a question.
func (a *Answerer) answer(ctx context.Context, q *api.Question, out *json.Encoder) error {
	if q.Kind == api.AskStats && q.Stats != nil {
		u, err := a.mounts.Usage(ctx, q.Stats.Namespace, q.Stats.VolumeID)
		return encode(out, u, err)
	}
	capability, known := needs(q.Kind)
	if !known {
		return api.Errorf(api.CodeInvalid, "this agent knows no questions of %s: upgrade it", q.Kind)
	}
	c, err := a.plugins.ControllerWith(q.PluginID, capability)
	if err != nil {
		return err
	}
	switch {
	case q.Kind == api.AskVolumes && q.Volumes != nil && q.Volumes.Whole:
		return whole(ctx, c, out)
	case q.Kind == api.AskVolumes && q.Volumes != nil:
		page, err := c.ListVolumes(ctx, q.Volumes.Token, q.Volumes.Limit)
		if err != nil {
			return err
		}
		return put(out, page)
	case q.Kind == api.AskVolume && q.Volume != nil:
		v, err := c.GetVolume(ctx, q.Volume.ExternalID)
		return encode(out, v, err)
	case q.Kind == api.AskCapacity && q.Capacity != nil:
		room, err := c.GetCapacity(ctx, *q.Capacity)
		return encode(out, room, err)
	case q.Kind == api.AskValidate && q.Validate != nil:
		refusal, err := c.WithSecrets(q.Validate.Secrets).ValidateCapabilities(ctx, *q.Validate)
		return encode(out, api.Validated{Refusal: refusal}, err)
	case q.Kind == api.AskSnapshots && q.Snapshots != nil:
		page, err := c.ListSnapshots(ctx, *q.Snapshots)
		return encode(out, api.SnapshotPage{Snapshots: page.Entries, Next: page.Next}, err)
	}
	return api.Errorf(api.CodeInvalid, "the servers ask for %s, and do not say of what", q.Kind)
}

// needs is the capability without which a call must not be made.
func needs(kind api.QuestionKind) (capability string, known bool) {
	switch kind {
	case api.AskVolumes:
		return api.CapListVolumes, true
	case api.AskVolume:
		return api.CapGetVolume, true
	case api.AskCapacity:
		return api.CapGetCapacity, true
	case api.AskSnapshots:
		return api.CapListSnapshots, true
	case api.AskValidate:
		return "", true
	case api.AskStats:
	}
	return "", false
}

// whole sends all volumes, page after page. A plugin that has lost its place
// (ABORTED) is asked from the beginning (CSI spec, ListVolumes Errors).
func whole(ctx context.Context, c *csi.Client, out *json.Encoder) error {
	token, seen, sent, restarts := "", map[string]bool{}, 0, 0
	for {
		page, err := c.ListVolumes(ctx, token, pageSize)
		switch {
		case csi.CodeOf(err) == csi.CodeAborted && token != "" && restarts < maxRestarts:
			restarts++
			token, sent = "", 0
			clear(seen)
			if err := out.Encode(api.Listed{Restart: true}); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		sent += len(page.Entries)
		if err := put(out, csi.Page[api.ExternalVolume]{Entries: page.Entries}); err != nil {
			return err
		}
		switch {
		case page.Next == "":
			return nil
		case seen[page.Next]:
			return api.Errorf(api.CodeUnavailable, "ListVolumes goes in circles: next_token %.64q came twice", page.Next)
		case sent > maxListed:
			return api.Errorf(api.CodeUnavailable, "ListVolumes does not end: it has listed %d volumes", sent)
		}
		token = page.Next
		seen[token] = true
	}
}

func put(out *json.Encoder, page csi.Page[api.ExternalVolume]) error {
	for i := range page.Entries {
		if err := out.Encode(api.Listed{Volume: &page.Entries[i]}); err != nil {
			return err
		}
	}
	if page.Next == "" {
		return nil
	}
	return out.Encode(api.Listed{Next: page.Next})
}

func encode(out *json.Encoder, v any, err error) error {
	if err != nil {
		return err
	}
	return out.Encode(v)
}

// said is a plugin's refusal as the servers tell errors apart.
func said(err error) error {
	var refused *csi.Error
	if !errors.As(err, &refused) {
		return err
	}
	code := api.CodeUnavailable
	switch refused.Code {
	case csi.CodeNotFound:
		code = api.CodeNotFound
	case csi.CodeInvalidArgument, csi.CodeOutOfRange, csi.CodeUnimplemented:
		code = api.CodeInvalid
	case csi.CodePermissionDenied, csi.CodeUnauthenticated:
		code = api.CodeForbidden
	}
	return api.Errorf(code, "%s", fmt.Sprint(refused))
}
