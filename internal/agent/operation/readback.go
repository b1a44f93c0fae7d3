package operation

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
	"github.com/berth-dev/berth/internal/fit"
)

const (
	// readTime bounds how long the result of a call is read back for.
	readTime = 20 * time.Second
	// readPages bounds how much of a list is read for one volume.
	readPages = 200
)

// readBack asks the plugin what came of a call, where its answer alone does
// not tell: NOT_FOUND is what a wrong name of the node is answered, too, and an
// earlier call that nobody waits for any more may come to its effect later. It
// answers nil where the plugin cannot be asked, or does not answer.
func (e *Executor) readBack(ctx context.Context, client *csi.Client, op *api.Operation, answer error) *api.VolumeSeen {
	id := externalID(op)
	created := op.Kind == api.OperationCreate && op.Request.Create != nil
	if id == "" && !created || !worthReading(op, csi.CodeOf(answer)) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	can, err := client.ControllerCapabilities(ctx)
	if err != nil {
		return nil
	}
	if created {
		return e.findNamed(ctx, client, can, op)
	}
	seen, err := look(ctx, client, can, id)
	if err != nil {
		e.log.Debug("result not read back", "operation", op.ID, "error", err)
		return nil
	}
	if seen != nil && !slices.Contains(can, api.CapListPublished) {
		seen.NodesKnown, seen.Nodes = false, nil
	}
	return seen
}

// worthReading reports whether the answer leaves a question.
func worthReading(op *api.Operation, code string) bool {
	switch op.Kind {
	case api.OperationUnpublish:
		return code == csi.CodeNotFound || code == csi.CodeOK && (op.Status.Uncertain || op.Request.Unpublish.ReadBack)
	case api.OperationPublish:
		return code == csi.CodeNotFound
	case api.OperationCreate:
		return code == csi.CodeAlreadyExists
	case api.OperationDelete, api.OperationExpand, api.OperationModify, api.OperationNodeExpand,
		api.OperationSnapshot, api.OperationDeleteSnapshot:
	}
	return false
}

func externalID(op *api.Operation) string {
	switch {
	case op.Request.Unpublish != nil:
		return op.Request.Unpublish.ExternalID
	case op.Request.Publish != nil:
		return op.Request.Publish.ExternalID
	}
	return ""
}

// look finds a volume at the provider; nil if the plugin cannot be asked.
func look(ctx context.Context, client *csi.Client, can []string, id string) (*api.VolumeSeen, error) {
	switch {
	case slices.Contains(can, api.CapGetVolume):
		v, err := client.GetVolume(ctx, id)
		if csi.CodeOf(err) == csi.CodeNotFound {
			return &api.VolumeSeen{Gone: true}, nil
		}
		if err != nil {
			return nil, err
		}
		return &api.VolumeSeen{NodesKnown: true, Nodes: v.Nodes}, nil
	case slices.Contains(can, api.CapListVolumes):
		return find(ctx, client, id)
	}
	return nil, nil
}

// find looks for a volume in the list of all. A list that changes while it is
// read may lack one that is there; so one that is not found is not called gone.
func find(ctx context.Context, client *csi.Client, id string) (*api.VolumeSeen, error) {
	v, err := search(ctx, client, func(v *api.ExternalVolume) bool { return v.ExternalID == id })
	if err != nil || v == nil {
		return nil, err
	}
	return &api.VolumeSeen{NodesKnown: true, Nodes: v.Nodes}, nil
}

// findNamed looks for the volume that a create was refused for because it is
// there: many drivers put its name where a list shows it.
func (e *Executor) findNamed(ctx context.Context, client *csi.Client, can []string, op *api.Operation) *api.VolumeSeen {
	if !slices.Contains(can, api.CapListVolumes) {
		return nil
	}
	v, err := search(ctx, client, func(v *api.ExternalVolume) bool { return fit.Bears(v, op.Request.Create.Name) })
	if err != nil {
		e.log.Debug("volume not looked for", "operation", op.ID, "error", err)
	}
	if err != nil || v == nil {
		return nil
	}
	return &api.VolumeSeen{Found: &api.OperationResult{
		ExternalID: v.ExternalID, Capacity: v.Capacity, Context: v.Context, AccessibleTopology: v.AccessibleTopology,
	}}
}

// search is the first volume that the plugin lists and that is meant, or nil.
func search(ctx context.Context, client *csi.Client, meant func(*api.ExternalVolume) bool) (*api.ExternalVolume, error) {
	token := ""
	for range readPages {
		page, err := client.ListVolumes(ctx, token, 0)
		if err != nil {
			return nil, err
		}
		for i := range page.Entries {
			if meant(&page.Entries[i]) {
				return &page.Entries[i], nil
			}
		}
		if page.Next == "" {
			return nil, nil
		}
		token = page.Next
	}
	return nil, fmt.Errorf("the volume is not on the first %d pages", readPages)
}
