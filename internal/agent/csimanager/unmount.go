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
// nothing is recorded any more: the local database may have been lost while
// mounts stayed. When it answers nil, nothing of the attachment is mounted.
func (m *Mounter) Unmount(ctx context.Context, a *api.AttachmentAssignment) error {
	at := &a.Attachment
	unlock, err := m.locks.lock(ctx, localdb.StagingKey(at.Namespace, at.VolumeID))
	if err != nil {
		return err
	}
	defer unlock()
	s, recorded, err := m.staging(a)
	if err != nil {
		return err
	}
	target, user := m.TargetPath(at), userOf(s, at)
	published := user >= 0
	if published {
		target = s.Users[user].TargetPath
		if err := m.leave(s, user); err != nil {
			return err
		}
	} else if published, err = m.present(target); err != nil {
		return err
	}
	staged := s.Called
	if !recorded {
		if staged, err = m.present(s.StagingPath); err != nil {
			return err
		}
	}
	last := len(s.Users) == 0
	if err := m.undo(ctx, s, published, staged && last, target); err != nil {
		return err
	}
	switch {
	case !last && user >= 0:
		return m.ledger.PutStaging(s)
	case !last:
		return nil
	case recorded:
		// The last user goes from the record together with the staging: until
		// it is undone, a restarted agent must find somebody to undo it for.
		if err := m.ledger.DeleteStaging(s.Namespace, s.VolumeID); err != nil {
			return err
		}
	}
	m.facts.SetPublication(api.PublicationFact{Namespace: s.Namespace, VolumeID: s.VolumeID})
	return nil
}

// leave takes a user out of s, and records before the first call that what is
// about to be undone is not relied on any more: a call that got no answer may
// still come to its effect.
func (m *Mounter) leave(s *localdb.Staging, user int) error {
	last := len(s.Users) == 1
	if s.Users[user].Published || last && s.Staged {
		s.Users[user].Published = false
		s.Staged = s.Staged && !last
		s.Refusal = nil
		if err := m.ledger.PutStaging(s); err != nil {
			return err
		}
	}
	s.Users = slices.Delete(s.Users, user, user+1)
	return nil
}

// undo makes the calls of an Unmount.
func (m *Mounter) undo(ctx context.Context, s *localdb.Staging, published, staged bool, target string) error {
	if !published && !staged {
		return nil
	}
	inst, err := m.manager.await(ctx, s.PluginID, pluginWait)
	if err != nil {
		return &StepError{Step: "wait for plugin", Message: err.Error()}
	}
	if published {
		if err := m.unpublish(ctx, inst, s, target); err != nil {
			return err
		}
	}
	if !staged {
		return nil
	}
	if !s.Called {
		if err := m.publishedElsewhere(s); err != nil {
			return err
		}
	}
	return m.unstage(ctx, inst, s)
}

// publishedElsewhere is an error if the kernel still shows at another target
// what is staged. It is asked where the record is lost that would tell who else
// uses the volume: they go first (CSI spec, NodeUnstageVolume).
func (m *Mounter) publishedElsewhere(s *localdb.Staging) error {
	staged, mounted, err := m.table.At(s.StagingPath)
	if err != nil {
		return &StepError{Step: "look at the mount table", Message: err.Error()}
	}
	if !mounted {
		return nil
	}
	targets, err := m.table.Under(m.targets(s.PluginID))
	if err != nil {
		return &StepError{Step: "look at the mount table", Message: err.Error()}
	}
	for _, t := range targets {
		if t.Device == staged.Device && t.Root == staged.Root {
			return &StepError{Step: "NodeUnstageVolume", Message: fmt.Sprintf(
				"is not called: the volume is still mounted at %s, which the local database does not know of", t.Path)}
		}
	}
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
func (m *Mounter) unpublish(ctx context.Context, inst *instance, s *localdb.Staging, target string) error {
	err := m.call(ctx, s, "NodeUnpublishVolume", func(ctx context.Context) error {
		return inst.client().NodeUnpublish(ctx, csi.UnpublishRequest{ExternalID: s.ExternalID, TargetPath: inst.sees(target)})
	})
	return m.undone("NodeUnpublishVolume", target, err)
}

// unstage calls NodeUnstageVolume and looks whether the mount is gone.
func (m *Mounter) unstage(ctx context.Context, inst *instance, s *localdb.Staging) error {
	err := m.call(ctx, s, "NodeUnstageVolume", func(ctx context.Context) error {
		return inst.client().NodeUnstage(ctx, csi.UnstageRequest{ExternalID: s.ExternalID, StagingPath: inst.sees(s.StagingPath)})
	})
	return m.undone("NodeUnstageVolume", s.StagingPath, err)
}

// undone checks that a call has taken the mount away, whatever it answered. A
// plugin that no longer knows the volume has nothing to undo, if the kernel
// agrees.
func (m *Mounter) undone(step, path string, err error) error {
	if err != nil && csi.CodeOf(err) != csi.CodeNotFound {
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
