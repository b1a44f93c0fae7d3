package csimanager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/localdb"
	"github.com/berth-dev/berth/internal/ownership"
)

// tellEvery is how often it is said how far a walk through a volume is. Each
// time is an entry of the log.
const tellEvery = 15 * time.Second

const giveStep = "give to fs_group"

// groupFor is the group that a plugin is told to give a volume to; 0 if it is
// not, and the agent has to.
func groupFor(status api.InstanceStatus, a *api.AttachmentAssignment) int {
	if slices.Contains(status.NodeCapabilities, api.CapVolumeMountGroup) {
		return a.Attachment.FSGroup
	}
	return 0
}

// oneGroup is an error if a volume is another group's on this node as long as
// others use it here: what one gives to its group, the other would take away.
func oneGroup(s *localdb.Staging, user *localdb.User, status api.InstanceStatus) error {
	if user.Group == 0 {
		return nil
	}
	for i := range s.Users {
		if u := &s.Users[i]; u.Group != 0 && u.Group != user.Group {
			return &StepError{Step: giveStep, Message: fmt.Sprintf("allocation %s uses volume %s on this node with fs_group %d, and this one wants %d: "+
				"use one group in both, or wait until that has ended", u.AllocID.Short(), s.VolumeID, u.Group, user.Group)}
		}
	}
	if s.Called && s.Group != user.Group && slices.Contains(status.NodeCapabilities, api.CapVolumeMountGroup) {
		return &StepError{Step: giveStep, Message: fmt.Sprintf("volume %s was staged on this node with fs_group %d, for others who use it, and this one wants %d: "+
			"give all the same fs_group, or wait until they have ended", s.VolumeID, s.Group, user.Group)}
	}
	return nil
}

// Give gives what is on a mounted volume to the attachment's group, if the
// plugin has not done that, and it was not done since the volume was mounted.
// It may take long; say hears how far it is. What is cut short goes on when it
// is repeated.
func (m *Mounter) Give(ctx context.Context, a *api.AttachmentAssignment, say func(progress string)) error {
	at := &a.Attachment
	if at.FSGroup == 0 || !at.Writes() || at.AttachmentMode != api.FileSystem {
		return nil
	}
	// Not the lock of the volume: others mount and unmount it meanwhile.
	unlock, err := m.walks.lock(ctx, localdb.StagingKey(at.Namespace, at.VolumeID))
	if err != nil {
		return err
	}
	defer unlock()
	target := ""
	err = m.user(ctx, a, func(u *localdb.User) (changed bool) {
		if !u.Given {
			target = u.TargetPath
		}
		return false
	})
	if err != nil || target == "" {
		return err
	}
	seen, mounted, err := m.table.At(target)
	if err != nil {
		return &StepError{Step: "look at the mount table", Message: err.Error()}
	}
	if mounted && seen.ReadOnly {
		return nil
	}
	began := time.Now()
	walked, err := ownership.Give(ctx, ownership.Order{
		Dir: target, Group: at.FSGroup, Always: at.FSGroupPolicy == api.GroupAlways,
		Every: tellEvery, Said: func(p ownership.Progress) {
			say(fmt.Sprintf("group %d gets what is on the volume: %d entries looked at so far, %d of them changed", at.FSGroup, p.Seen, p.Changed))
		},
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		e := &StepError{Step: giveStep, Message: err.Error()}
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EOPNOTSUPP) {
			e.Message += ": perhaps the file system keeps no groups; then say in mount_flags whose it is, and remove fs_group"
		}
		return e
	}
	if walked.Changed > 0 {
		m.log.Info("volume was given to its group", "volume", at.VolumeID, "alloc", at.AllocID, "group", at.FSGroup,
			"seen", walked.Seen, "changed", walked.Changed, "took", time.Since(began))
	}
	return m.user(ctx, a, func(u *localdb.User) (changed bool) {
		u.Given = true
		return true
	})
}

// user shows the record of an attachment that is mounted, and writes it if it
// was changed.
func (m *Mounter) user(ctx context.Context, a *api.AttachmentAssignment, see func(*localdb.User) (changed bool)) error {
	unlock, err := m.locks.lock(ctx, localdb.StagingKey(a.Attachment.Namespace, a.Attachment.VolumeID))
	if err != nil {
		return err
	}
	defer unlock()
	s, _, err := m.staging(a)
	if err != nil {
		return err
	}
	i := userOf(s, &a.Attachment)
	if i < 0 || !s.Users[i].Published {
		return &StepError{Step: giveStep, Message: "the volume is not mounted"}
	}
	if !see(&s.Users[i]) {
		return nil
	}
	return m.ledger.PutStaging(s)
}
