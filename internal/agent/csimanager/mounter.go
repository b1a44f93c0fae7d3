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
	// restart it may not be there yet.
	pluginWait = 10 * time.Second
	// callTimeout bounds one call.
	callTimeout = 2 * time.Minute
)

// Ledger is where the mounter records before it acts.
type Ledger interface {
	Staging(ns api.NamespaceID, vol api.VolumeID) (*localdb.Staging, error)
	PutStaging(s *localdb.Staging) error
	DeleteStaging(ns api.NamespaceID, vol api.VolumeID) error
}

// StagingFacts is where the mounter says what is staged.
type StagingFacts interface {
	SetPublication(f api.PublicationFact)
}

// MounterConfig is what a Mounter is made of.
type MounterConfig struct {
	// Root is the directory below which volumes are staged and published.
	Root string
	// BootID tells this boot of the kernel from others: mounts do not outlive it.
	BootID string
}

// Mounter brings volumes to their target paths and takes them away again.
type Mounter struct {
	root, bootID string
	manager      *Manager
	table        mount.Table
	ledger       Ledger
	facts        StagingFacts
	log          *slog.Logger
	locks        locks
}

// NewMounter returns a mounter. It starts nothing.
func NewMounter(cfg MounterConfig, manager *Manager, table mount.Table, ledger Ledger, facts StagingFacts, log *slog.Logger) *Mounter {
	return &Mounter{
		root: cfg.Root, bootID: cfg.BootID,
		manager: manager, table: table, ledger: ledger, facts: facts, log: log,
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
	s, err := m.staging(a)
	if err != nil {
		return "", err
	}
	target = m.TargetPath(at.AllocID, at.Name)
	user := localdb.User{AllocID: at.AllocID, Name: at.Name, TargetPath: target}
	recorded := slices.Contains(s.Users, user)
	mounted, err := m.mounted(target)
	if err != nil {
		return "", err
	}
	if recorded && mounted && m.sameBoot(s) {
		m.say(s)
		return target, nil
	}
	inst, err := m.manager.await(ctx, at.PluginID, pluginWait)
	if err != nil {
		return "", &StepError{Step: "wait for plugin", Message: err.Error()}
	}
	if mounted && !recorded {
		// Nobody here knows of this mount. What it shows may be anything.
		if err := m.unpublish(ctx, inst.client(), a.ExternalID, target); err != nil {
			return "", err
		}
	}
	if !recorded {
		s.Users = append(s.Users, user)
	}
	if err := m.stage(ctx, inst, s, a); err != nil {
		return "", err
	}
	return target, m.publish(ctx, inst, s, a, target)
}

// staging reads what is recorded of a volume, or begins a record. Mounts of an
// earlier boot are gone.
func (m *Mounter) staging(a *api.AttachmentAssignment) (*localdb.Staging, error) {
	at := &a.Attachment
	s, err := m.ledger.Staging(at.Namespace, at.VolumeID)
	if err != nil {
		return nil, fmt.Errorf("read staging of volume %s: %w", at.VolumeID, err)
	}
	if s == nil {
		s = &localdb.Staging{
			Namespace: at.Namespace, VolumeID: at.VolumeID, PluginID: at.PluginID,
			ExternalID: a.ExternalID, StagingPath: m.stagingPath(at.Namespace, at.VolumeID),
		}
	}
	return s, nil
}

func (m *Mounter) sameBoot(s *localdb.Staging) bool { return s.BootID == m.bootID }

func (m *Mounter) mounted(path string) (bool, error) {
	_, mounted, err := m.table.At(path)
	if err != nil {
		return false, &StepError{Step: "look at the mount table", Message: err.Error()}
	}
	return mounted, nil
}

// say tells the servers whether the volume is staged.
func (m *Mounter) say(s *localdb.Staging) {
	m.facts.SetPublication(api.PublicationFact{Namespace: s.Namespace, VolumeID: s.VolumeID, Staged: s.Staged})
}

// stage stages the volume if the plugin stages and it is not staged already.
// The record, with the new user, is written before the call.
func (m *Mounter) stage(ctx context.Context, inst *instance, s *localdb.Staging, a *api.AttachmentAssignment) error {
	status := inst.status()
	stages := slices.Contains(status.NodeCapabilities, api.CapStageUnstage)
	staged, err := m.stillStaged(s)
	if err != nil {
		return err
	}
	s.Staged = staged
	s.BootID = m.bootID
	s.Called = s.Called || stages
	if err := m.ledger.PutStaging(s); err != nil {
		return err
	}
	if !stages || staged {
		m.say(s)
		return nil
	}
	if err := os.MkdirAll(s.StagingPath, 0o700); err != nil {
		return &StepError{Step: "make the staging path", Message: err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err = inst.client().NodeStage(ctx, csi.StageRequest{
		ExternalID:     s.ExternalID,
		StagingPath:    s.StagingPath,
		Capability:     api.Capability{AccessMode: a.Attachment.AccessMode, AttachmentMode: a.Attachment.AttachmentMode},
		MountOptions:   a.StageOptions,
		Context:        a.Context,
		PublishContext: a.PublishContext,
	})
	if err != nil {
		return called("NodeStageVolume", err)
	}
	if s.Mounted, err = m.mounted(s.StagingPath); err != nil {
		return err
	}
	s.Staged = true
	if err := m.ledger.PutStaging(s); err != nil {
		return err
	}
	m.say(s)
	return nil
}

// stillStaged reports whether the volume is staged: as recorded in this boot,
// and if it left a mount, that is still there. A staging need not be a mount.
func (m *Mounter) stillStaged(s *localdb.Staging) (bool, error) {
	if !s.Staged || !m.sameBoot(s) {
		return false, nil
	}
	if !s.Mounted {
		return true, nil
	}
	return m.mounted(s.StagingPath)
}

// publish has the plugin mount the volume at the target path, and looks
// whether it did.
func (m *Mounter) publish(ctx context.Context, inst *instance, s *localdb.Staging, a *api.AttachmentAssignment, target string) error {
	if mounted, err := m.mounted(target); err != nil || mounted {
		return err
	}
	if err := clearTarget(target); err != nil {
		return err
	}
	req := csi.PublishRequest{
		ExternalID:     s.ExternalID,
		TargetPath:     target,
		ReadOnly:       a.Attachment.ReadOnly,
		Capability:     api.Capability{AccessMode: a.Attachment.AccessMode, AttachmentMode: a.Attachment.AttachmentMode},
		MountOptions:   a.Attachment.MountOptions,
		Context:        a.Context,
		PublishContext: a.PublishContext,
	}
	if s.Staged {
		req.StagingPath = s.StagingPath
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := inst.client().NodePublish(ctx, req); err != nil {
		return called("NodePublishVolume", err)
	}
	mounted, err := m.mounted(target)
	if err != nil || mounted {
		return err
	}
	if inst.plugin.AllowUnmounted {
		return nil
	}
	return &StepError{Step: "NodePublishVolume", Message: fmt.Sprintf(
		"plugin %s answered OK, and nothing is mounted at %s: a task would write to the node's own disk. "+
			"If this driver serves its volumes without a mount, set allow_unmounted = true in its plugin block",
		inst.plugin.ID, target)}
}

// clearTarget makes the parent of a target path and removes an empty directory
// or file that an earlier try left there: the plugin makes the target itself
// (CSI spec, NodePublishVolume).
func clearTarget(target string) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return &StepError{Step: "make the parent of the target path", Message: err.Error()}
	}
	if info, err := os.Lstat(target); err == nil && !info.IsDir() && info.Size() > 0 {
		return &StepError{Step: "clear the target path", Message: target + " is a file with something in it"}
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return &StepError{Step: "clear the target path", Message: err.Error()}
	}
	return nil
}
