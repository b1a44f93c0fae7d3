package csimanager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

// Unmount unpublishes a volume for an attachment, and unstages it if that was
// the last on this node. It works too if Mount never ran, or half ran, or if
// nothing is recorded any more. When it answers nil, nothing of the attachment
// is mounted.
func (m *Mounter) Unmount(ctx context.Context, a *api.AttachmentAssignment) error {
	at := &a.Attachment
	unlock, err := m.locks.lock(ctx, localdb.StagingKey(at.Namespace, at.VolumeID))
	if err != nil {
		return err
	}
	defer unlock()
	s, err := m.ledger.Staging(at.Namespace, at.VolumeID)
	if err != nil {
		return fmt.Errorf("read staging of volume %s: %w", at.VolumeID, err)
	}
	target := m.TargetPath(at.AllocID, at.Name)
	if s == nil {
		return m.unmountUnknown(ctx, a, target)
	}
	user := slices.IndexFunc(s.Users, func(u localdb.User) bool { return u.AllocID == at.AllocID && u.Name == at.Name })
	if user < 0 {
		// It was never mounted, and others use the volume.
		return nil
	}
	inst, err := m.manager.await(ctx, s.PluginID, pluginWait)
	if err != nil {
		return &StepError{Step: "wait for plugin", Message: err.Error()}
	}
	if err := m.unpublish(ctx, inst.client(), s.ExternalID, target); err != nil {
		return err
	}
	s.Users = slices.Delete(slices.Clone(s.Users), user, user+1)
	if len(s.Users) > 0 {
		return m.ledger.PutStaging(s)
	}
	// The last user goes from the record together with the staging: until it
	// is undone, a restarted agent must find somebody to undo it for.
	if s.Called {
		if err := m.unstage(ctx, inst.client(), s.ExternalID, s.StagingPath); err != nil {
			return err
		}
	}
	if err := m.ledger.DeleteStaging(s.Namespace, s.VolumeID); err != nil {
		return err
	}
	s.Staged = false
	m.say(s)
	return nil
}

// unmountUnknown undoes what no record tells of, if the kernel does: the local
// database may have been lost while mounts stayed.
func (m *Mounter) unmountUnknown(ctx context.Context, a *api.AttachmentAssignment, target string) error {
	at := &a.Attachment
	staging := m.stagingPath(at.Namespace, at.VolumeID)
	published, err := m.present(target)
	if err != nil {
		return err
	}
	staged, err := m.present(staging)
	if err != nil {
		return err
	}
	if published || staged {
		inst, err := m.manager.await(ctx, at.PluginID, pluginWait)
		if err != nil {
			return &StepError{Step: "wait for plugin", Message: err.Error()}
		}
		if published {
			if err := m.unpublish(ctx, inst.client(), a.ExternalID, target); err != nil {
				return err
			}
		}
		if staged {
			if err := m.unstage(ctx, inst.client(), a.ExternalID, staging); err != nil {
				return err
			}
		}
	}
	m.say(&localdb.Staging{Namespace: at.Namespace, VolumeID: at.VolumeID})
	return nil
}

// present reports whether anything is mounted at path, or left there.
func (m *Mounter) present(path string) (bool, error) {
	mounted, err := m.mounted(path)
	if err != nil || mounted {
		return mounted, err
	}
	if _, err := os.Lstat(path); err == nil {
		return true, nil
	}
	return false, nil
}

// unpublish calls NodeUnpublishVolume and looks whether the mount is gone.
func (m *Mounter) unpublish(ctx context.Context, client *csi.Client, external, target string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := client.NodeUnpublish(ctx, csi.UnpublishRequest{ExternalID: external, TargetPath: target})
	return m.undone("NodeUnpublishVolume", target, err)
}

// unstage calls NodeUnstageVolume and looks whether the mount is gone.
func (m *Mounter) unstage(ctx context.Context, client *csi.Client, external, staging string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := client.NodeUnstage(ctx, csi.UnstageRequest{ExternalID: external, StagingPath: staging})
	return m.undone("NodeUnstageVolume", staging, err)
}

// undone checks that a call has taken the mount away, whatever it answered. A
// plugin that no longer knows the volume has nothing to undo, if the kernel
// agrees.
func (m *Mounter) undone(step, path string, err error) error {
	if err != nil && csi.CodeOf(err) != "NOT_FOUND" {
		return called(step, err)
	}
	mounted, look := m.mounted(path)
	switch {
	case look != nil:
		return look
	case mounted && err != nil:
		return called(step, err)
	case mounted:
		return &StepError{Step: step, Message: fmt.Sprintf("the plugin answered OK, and %s is still mounted", path)}
	}
	// What the plugin left of the path goes if it is empty. If it is not,
	// something was written to the node's own disk: that stays for a person.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		m.log.Error("something is left where a volume was", "path", path, "error", err)
	}
	return nil
}
