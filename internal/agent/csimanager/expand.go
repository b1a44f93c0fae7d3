package csimanager

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

// Expand makes the call of an operation that has what is on a mounted volume
// grow. Nothing else is called for the volume on this node meanwhile. An
// *api.Error says that the call was not made.
func (m *Mounter) Expand(ctx context.Context, op *api.Operation) (api.OperationResult, error) {
	unlock, err := m.locks.lock(ctx, localdb.StagingKey(op.Namespace, op.VolumeID))
	if err != nil {
		return api.OperationResult{}, api.Errorf(api.CodeUnavailable, "wait for another call for volume %s: %s", op.VolumeID, err)
	}
	defer unlock()
	s, err := m.ledger.Staging(op.Namespace, op.VolumeID)
	if err != nil {
		return api.OperationResult{}, api.Errorf(api.CodeUnavailable, "read what is mounted of volume %s: %s", op.VolumeID, err)
	}
	user := -1
	if s != nil && s.BootID == m.bootID {
		user = slices.IndexFunc(s.Users, func(u localdb.User) bool { return u.Published })
	}
	if user < 0 {
		return api.OperationResult{}, api.Errorf(api.CodeUnavailable, "volume %s is not mounted on this node", op.VolumeID)
	}
	inst, err := m.manager.await(ctx, op.PluginID, pluginWait)
	if err != nil {
		return api.OperationResult{}, err
	}
	by := caller{inst, inst.client()}
	if op.Status.Secrets {
		secrets, err := m.secrets.Secrets(ctx, op.Namespace, op.VolumeID)
		if err != nil {
			return api.OperationResult{}, api.Errorf(api.CodeUnavailable, "ask for the volume's secrets: %s", err)
		}
		by.client = by.client.WithSecrets(secrets)
	}
	return m.expand(ctx, by, s, s.Users[user].TargetPath, *op.Request.NodeExpand)
}

// expand calls NodeExpandVolume for a volume that is at path, and records to
// what size it grew, or that it does not while it is published there.
func (m *Mounter) expand(ctx context.Context, by caller, s *localdb.Staging, path string, r api.NodeExpandRequest) (api.OperationResult, error) {
	if s.Refusal != nil && r.CapacityMin <= s.Refusal.Size {
		return api.OperationResult{}, &csi.Error{Method: "NodeExpandVolume", Code: csi.CodeFailedPrecondition, Message: s.Refusal.Message}
	}
	r.ExternalID = s.ExternalID
	req := csi.NodeExpandRequest{NodeExpandRequest: r, VolumePath: by.sees(path)}
	if s.Staged {
		req.StagingPath = by.sees(s.StagingPath)
	}
	var result api.OperationResult
	err := m.call(ctx, s, "NodeExpandVolume", func(ctx context.Context) (err error) {
		result, err = by.client.NodeExpand(ctx, req)
		return err
	})
	if refused, ok := errors.AsType[*csi.Error](err); ok && refused.Code == csi.CodeFailedPrecondition && path != s.StagingPath {
		s.Refusal = &localdb.Refusal{Size: r.CapacityMin, Message: refused.Message}
		if err := m.ledger.PutStaging(s); err != nil {
			// At worst the plugin says it again.
			m.log.Error("that a volume does not grow in use could not be recorded", "volume", s.VolumeID, "error", err)
		}
	}
	if err != nil {
		return result, err
	}
	s.Grown = max(s.Grown, result.Capacity, r.CapacityMin)
	if err := m.ledger.PutStaging(s); err != nil {
		// It has grown. That the servers hear of it from the operation is enough.
		m.log.Error("expansion of a volume could not be recorded", "volume", s.VolumeID, "error", err)
	}
	return result, nil
}

// growFresh has what is on a volume grow that was staged or published right
// now, before a task sees it, where the servers know that it must. If that does
// not succeed, the volume is of use as it is: it is mounted, and the servers,
// who do not hear that it grew, have it tried again.
func (m *Mounter) growFresh(ctx context.Context, by caller, s *localdb.Staging, path string, a *api.AttachmentAssignment) {
	status := by.status()
	if a.NodeExpansion == 0 || s.Grown >= a.NodeExpansion || !slices.Contains(status.NodeCapabilities, api.CapExpandVolume) {
		return
	}
	limit := a.CapacityMax
	if limit < a.NodeExpansion {
		limit = 0
	}
	capability := capabilityOf(a)
	if s.Staged {
		capability = s.Capability
	}
	_, err := m.expand(ctx, by, s, path, api.NodeExpandRequest{
		CapacityMin: a.NodeExpansion, CapacityMax: limit, Capability: capability, MountOptions: a.StageOptions,
	})
	if err != nil {
		m.log.Warn("volume did not grow when it was mounted", "volume", s.VolumeID, "size", a.NodeExpansion, "error", err)
		return
	}
	m.log.Info("volume has grown", "volume", s.VolumeID, "size", fmt.Sprint(s.Grown))
	m.sayStaged(s)
}
