package csimanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
	"github.com/berth-dev/berth/internal/agent/localdb"
	"github.com/berth-dev/berth/internal/agent/mount"
)

// Bounds of what the mounter waits for.
const (
	// pluginWait is how long a step waits for its plugin to be there: after a
	// restart it may not be there yet. Every instance that becomes healthy has
	// what failed for want of it tried again, so that the wait may be short.
	pluginWait = 2 * time.Second
	// secretsWait is how long the servers may take to answer with secrets.
	secretsWait = 10 * time.Second
	// callTimeout bounds one call.
	callTimeout = 2 * time.Minute
)

// Ledger is where the mounter records before it acts.
type Ledger interface {
	Staging(ns api.NamespaceID, vol api.VolumeID) (*localdb.Staging, error)
	PutStaging(s *localdb.Staging) error
	DeleteStaging(ns api.NamespaceID, vol api.VolumeID) error
	Stagings() ([]localdb.Staging, error)
}

// StagingFacts is where the mounter says what is staged.
type StagingFacts interface {
	SetPublication(f api.PublicationFact)
}

// Secrets asks for the secrets of a volume. They are kept nowhere.
type Secrets interface {
	Secrets(ctx context.Context, ns api.NamespaceID, vol api.VolumeID) (map[string]string, error)
}

// MounterConfig is what a Mounter is made of.
type MounterConfig struct {
	// Root is the directory below which volumes are staged and published.
	Root string
	// BootID tells this boot of the kernel from others: mounts do not outlive it.
	BootID string
	// Facts hears what is staged.
	Facts StagingFacts
	// Secrets are asked for before a call that takes them.
	Secrets Secrets
}

// Mounter brings volumes to their target paths and takes them away again.
type Mounter struct {
	root, bootID string
	manager      *Manager
	table        mount.Table
	ledger       Ledger
	facts        StagingFacts
	secrets      Secrets
	log          *slog.Logger
	locks        locks
	walks        locks // one at a time goes through a volume
	underway     underway
}

// NewMounter returns a mounter. It starts nothing.
func NewMounter(cfg MounterConfig, manager *Manager, table mount.Table, ledger Ledger, log *slog.Logger) *Mounter {
	return &Mounter{
		root: cfg.Root, bootID: cfg.BootID, facts: cfg.Facts, secrets: cfg.Secrets,
		manager: manager, table: table, ledger: ledger, log: log,
	}
}

// Mount stages and publishes a volume for an attachment, and returns the
// target path. Repeating it is cheap: what is there already is left alone.
func (m *Mounter) Mount(ctx context.Context, a *api.AttachmentAssignment) (target string, err error) {
	at := &a.Attachment
	unlock, err := m.locks.lock(ctx, localdb.StagingKey(at.Namespace, at.VolumeID))
	if err != nil {
		return "", err
	}
	defer unlock()
	s, _, err := m.staging(a)
	if err != nil {
		return "", err
	}
	i := userOf(s, at)
	if i < 0 {
		i = len(s.Users)
		s.Users = append(s.Users, localdb.User{AllocID: at.AllocID, Name: at.Name, TargetPath: m.TargetPath(at), Group: at.FSGroup})
	}
	user := &s.Users[i]
	mounted, err := m.mounted(user.TargetPath)
	if err != nil {
		return "", err
	}
	gone := false
	if user.Published && mounted {
		if gone, err = m.gone(user.TargetPath); err != nil {
			return "", err
		}
	}
	if user.Published && (mounted || !user.Mounted) && !gone {
		m.sayStaged(s)
		return user.TargetPath, nil
	}
	find := func() (*instance, error) { return m.manager.await(ctx, at.PluginID, pluginWait) }
	if gone {
		// Who used it is ended before it is made again, and that is not done while its
		// plugin is away: it must not come back in the middle of this.
		find = func() (*instance, error) { return m.manager.node(at.PluginID) }
	}
	inst, err := find()
	if err != nil {
		return "", &StepError{Step: "wait for plugin", Message: err.Error()}
	}
	if mounted {
		// The plugin never said that this mount is what was asked for: it may be
		// half done, or anything. Nobody uses it yet.
		if err := m.unpublish(ctx, inst, s, user.TargetPath); err != nil {
			return "", err
		}
	}
	user.Published, user.Given = false, false
	if err := oneGroup(s, user, inst.status()); err != nil {
		return "", err
	}
	with, err := m.withSecrets(ctx, inst, a)
	if err != nil {
		return "", err
	}
	if err := m.stage(ctx, with, s, a); err != nil {
		return "", err
	}
	return user.TargetPath, m.publish(ctx, with, s, user, a)
}

// caller is an instance, and the client for the calls of one try.
type caller struct {
	*instance
	client *csi.Client
}

// withSecrets is the caller with the secrets of the attachment's volume, if it
// has some: asked for now, and for the calls of this one try.
func (m *Mounter) withSecrets(ctx context.Context, inst *instance, a *api.AttachmentAssignment) (caller, error) {
	if !a.Secrets {
		return caller{inst, inst.client()}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, secretsWait)
	defer cancel()
	secrets, err := m.secrets.Secrets(ctx, a.Attachment.Namespace, a.Attachment.VolumeID)
	if err != nil {
		return caller{}, &StepError{Step: "ask for the volume's secrets", Message: err.Error()}
	}
	return caller{inst, inst.client().WithSecrets(secrets)}, nil
}

// staging reads what is recorded of a volume, or begins a record. What is
// recorded of an earlier boot is gone: mounts do not outlive it.
func (m *Mounter) staging(a *api.AttachmentAssignment) (s *localdb.Staging, recorded bool, err error) {
	at := &a.Attachment
	s, err = m.ledger.Staging(at.Namespace, at.VolumeID)
	if err != nil {
		return nil, false, err
	}
	if s == nil {
		return &localdb.Staging{
			Namespace: at.Namespace, VolumeID: at.VolumeID, PluginID: at.PluginID,
			ExternalID: a.ExternalID, StagingPath: m.stagingPath(at.PluginID, at.Namespace, at.VolumeID), BootID: m.bootID,
		}, false, nil
	}
	if s.BootID != m.bootID {
		s.BootID, s.Staged, s.Grown, s.Refusal = m.bootID, false, 0, nil
		for i := range s.Users {
			s.Users[i].Published = false
		}
	}
	return s, true, nil
}

// userOf is the place of an attachment among the users of its volume, or -1.
func userOf(s *localdb.Staging, at *api.Attachment) int {
	return slices.IndexFunc(s.Users, func(u localdb.User) bool { return u.AllocID == at.AllocID && u.Name == at.Name })
}

func (m *Mounter) mounted(path string) (bool, error) {
	_, mounted, err := m.table.At(path)
	if err != nil {
		return false, &StepError{Step: "look at the mount table", Message: err.Error()}
	}
	return mounted, nil
}

// gone reports whether the file system that is mounted at path has ended with
// the process that served it.
func (m *Mounter) gone(path string) (bool, error) {
	gone, err := m.table.Gone(path)
	if err != nil {
		return false, &StepError{Step: "look at the mount table", Message: err.Error()}
	}
	return gone, nil
}

// Gone reports whether an attachment's mount has ended with the driver's process,
// and its plugin is there to make it again. Mount does, and nobody can use what
// was mounted before.
func (m *Mounter) Gone(a *api.AttachmentAssignment) (bool, error) {
	s, recorded, err := m.staging(a)
	if err != nil || !recorded {
		return false, err
	}
	i := userOf(s, &a.Attachment)
	if i < 0 || !s.Users[i].Published {
		return false, nil
	}
	if _, err := m.manager.node(a.Attachment.PluginID); err != nil {
		return false, nil //nolint:nilerr // there is nothing to be done yet
	}
	return m.gone(s.Users[i].TargetPath)
}

// Served reports whether what is mounted for an attachment is served by a process,
// and can end with that at any time.
func (m *Mounter) Served(a *api.AttachmentAssignment) (bool, error) {
	target, err := m.Mounted(a)
	if err != nil || target == "" {
		return false, err
	}
	at, mounted, err := m.table.At(target)
	if err != nil {
		return false, &StepError{Step: "look at the mount table", Message: err.Error()}
	}
	return mounted && at.Served(), nil
}

// Mounted says where an attachment's volume is mounted, by what is recorded of
// this boot and by the mount table, or "". It changes nothing.
func (m *Mounter) Mounted(a *api.AttachmentAssignment) (target string, err error) {
	s, recorded, err := m.staging(a)
	if err != nil || !recorded {
		return "", err
	}
	i := userOf(s, &a.Attachment)
	if i < 0 || !s.Users[i].Published {
		return "", nil
	}
	user := &s.Users[i]
	mounted, err := m.mounted(user.TargetPath)
	if err != nil || !mounted {
		if err == nil && !user.Mounted {
			return user.TargetPath, nil // it never was one, as its plugin does it
		}
		return "", err
	}
	gone, err := m.gone(user.TargetPath)
	if err != nil || gone {
		return "", err
	}
	return user.TargetPath, nil
}

// sayStaged tells the servers that the volume is staged. That it is not is for
// Unmount to say: they may have it detached at once.
func (m *Mounter) sayStaged(s *localdb.Staging) {
	if s.Staged || s.Grown > 0 {
		m.facts.SetPublication(api.PublicationFact{Namespace: s.Namespace, VolumeID: s.VolumeID, Staged: s.Staged, Grown: s.Grown})
	}
}

// stage stages the volume if the plugin stages and it is not staged already.
// The record, with the new user, is written before the call.
func (m *Mounter) stage(ctx context.Context, by caller, s *localdb.Staging, a *api.AttachmentAssignment) error {
	status := by.status()
	stages := slices.Contains(status.NodeCapabilities, api.CapStageUnstage)
	staged, err := m.stillStaged(s)
	if err != nil {
		return err
	}
	if staged && s.Mounted {
		gone, err := m.gone(s.StagingPath)
		if err == nil && gone {
			err = m.unstage(ctx, by.instance, s)
		}
		if err != nil {
			return err
		}
		staged = !gone
	}
	s.Staged = staged
	if stages && !s.Called {
		s.Called, s.Capability, s.Group = true, capabilityOf(a), groupFor(status, a)
	}
	if err := m.ledger.PutStaging(s); err != nil {
		return err
	}
	if !stages || staged {
		m.sayStaged(s)
		return nil
	}
	if err := os.MkdirAll(s.StagingPath, 0o700); err != nil {
		return &StepError{Step: "make the staging path", Message: err.Error()}
	}
	err = m.call(ctx, s, "NodeStageVolume", func(ctx context.Context) error {
		return by.client.NodeStage(ctx, csi.StageRequest{
			ExternalID:     s.ExternalID,
			StagingPath:    by.sees(s.StagingPath),
			Capability:     s.Capability,
			MountOptions:   a.StageOptions,
			Group:          s.Group,
			Context:        a.Context,
			PublishContext: a.PublishContext,
		})
	})
	if err != nil {
		return called("NodeStageVolume", err)
	}
	if s.Mounted, err = m.mounted(s.StagingPath); err != nil {
		return err
	}
	s.Staged, s.Grown = true, 0
	if err := m.ledger.PutStaging(s); err != nil {
		return err
	}
	m.sayStaged(s)
	m.growFresh(ctx, by, s, s.StagingPath, a)
	return nil
}

func capabilityOf(a *api.AttachmentAssignment) api.Capability {
	return api.Capability{AccessMode: a.Attachment.AccessMode, AttachmentMode: a.Attachment.AttachmentMode}
}

// stillStaged reports whether the volume is staged: as recorded, and if it left
// a mount, that is still there. A staging need not be a mount.
func (m *Mounter) stillStaged(s *localdb.Staging) (bool, error) {
	if !s.Staged || !s.Mounted {
		return s.Staged, nil
	}
	return m.mounted(s.StagingPath)
}

// publish has the plugin mount the volume at the target path, looks whether it
// did, and records that it said so.
func (m *Mounter) publish(ctx context.Context, by caller, s *localdb.Staging, user *localdb.User, a *api.AttachmentAssignment) error {
	if err := prepareTarget(user.TargetPath, by.plugin.AllowUnmounted); err != nil {
		return err
	}
	req := csi.PublishRequest{
		ExternalID:     s.ExternalID,
		TargetPath:     by.sees(user.TargetPath),
		ReadOnly:       a.Attachment.ReadOnly,
		Capability:     capabilityOf(a),
		MountOptions:   a.Attachment.MountOptions,
		Group:          groupFor(by.status(), a),
		Context:        a.Context,
		PublishContext: a.PublishContext,
	}
	if s.Staged {
		req.StagingPath = by.sees(s.StagingPath)
	}
	err := m.call(ctx, s, "NodePublishVolume", func(ctx context.Context) error { return by.client.NodePublish(ctx, req) })
	if err != nil {
		return m.refused(s, err)
	}
	if user.Mounted, err = m.mounted(user.TargetPath); err != nil {
		return err
	}
	if !user.Mounted && !by.plugin.AllowUnmounted {
		return &StepError{Step: "NodePublishVolume", Message: fmt.Sprintf(
			"plugin %s answered OK, and nothing is mounted at %s: a task would write to the node's own disk. "+
				"If this driver serves its volumes without a mount, set allow_unmounted = true in its plugin block",
			by.plugin.ID, user.TargetPath)}
	}
	user.Published, user.Given = true, req.Group != 0
	s.Refusal = nil
	if err := m.ledger.PutStaging(s); err != nil {
		return err
	}
	if !s.Staged {
		// A volume that is not staged is expanded when it is published (CSI spec,
		// NodeExpandVolume).
		m.growFresh(ctx, by, s, user.TargetPath, a)
	}
	return nil
}

// refused is the error of NodePublishVolume. A plugin that misses what it needs
// for it may have lost the staging, or said OK and never made it: the next try
// stages again.
func (m *Mounter) refused(s *localdb.Staging, err error) error {
	code := csi.CodeOf(err)
	err = called("NodePublishVolume", err)
	if s.Staged && (code == csi.CodeFailedPrecondition || code == csi.CodeNotFound) {
		s.Staged = false
		err = errors.Join(err, m.ledger.PutStaging(s))
	}
	return err
}

// prepareTarget makes the parent of a target path and removes an empty
// directory or file that an earlier try left there: the plugin makes the target
// itself (CSI spec, NodePublishVolume). Where a plugin may publish without a
// mount, what is there is the plugin's.
func prepareTarget(target string, allowUnmounted bool) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return &StepError{Step: "make the parent of the target path", Message: err.Error()}
	}
	if allowUnmounted {
		return nil
	}
	if info, err := os.Lstat(target); err == nil && !info.IsDir() && info.Size() > 0 {
		return &StepError{Step: "clear the target path", Message: target + " is a file with something in it"}
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return &StepError{Step: "clear the target path", Message: err.Error()}
	}
	return nil
}
