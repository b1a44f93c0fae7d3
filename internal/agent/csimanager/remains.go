package csimanager

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/localdb"
	"github.com/berth-dev/berth/internal/agent/mount"
)

// clearing is how many volumes are let go of at once.
const clearing = 8

// Clear lets go of everything that is found on the node, whoever it was for:
// what the ledger has of volumes by its plugin, and by the kernel what is
// mounted below the root that no record is left of. It is for a node whose
// epoch has ended, when all that it ran is down. What cannot be undone keeps
// nothing else; the error says what is left, and why.
func (m *Mounter) Clear(ctx context.Context) error {
	recorded, err := m.ledger.Stagings()
	if err != nil {
		return err
	}
	errs := m.release(ctx, recorded)
	left, err := m.ledger.Stagings()
	if err != nil {
		return err
	}
	taken, err := mount.Clear(m.table, m.root, func(path string) bool { return m.pluginDir(path) || accounted(left, path) })
	for _, t := range taken {
		m.log.Warn("a mount that is recorded nowhere was taken away", "path", t.Path, "device", t.Source, "filesystem", t.FSType)
		_ = os.Remove(t.Path) // what is in it stays for a person
	}
	return errors.Join(append(errs, err)...)
}

// release unmounts every use of the recorded volumes, and unstages them.
func (m *Mounter) release(ctx context.Context, recorded []localdb.Staging) []error {
	var (
		g    errgroup.Group
		mu   sync.Mutex // guards errs
		errs []error
	)
	g.SetLimit(clearing)
	for i := range recorded {
		g.Go(func() error {
			if err := m.releaseVolume(ctx, &recorded[i]); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, &remainsError{recorded[i].VolumeID, err})
			}
			return nil
		})
	}
	_ = g.Wait() // errors are in errs
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

// remainsError says which volume is left.
type remainsError struct {
	volume api.VolumeID
	err    error
}

func (e *remainsError) Error() string { return "volume " + string(e.volume) + ": " + e.err.Error() }
func (e *remainsError) Unwrap() error { return e.err }

func (m *Mounter) releaseVolume(ctx context.Context, s *localdb.Staging) error {
	users := s.Users
	if len(users) == 0 {
		users = []localdb.User{{}} // staged, and for nobody
	}
	for _, u := range users {
		err := m.Unmount(ctx, &api.AttachmentAssignment{ExternalID: s.ExternalID, Attachment: api.Attachment{
			Namespace: s.Namespace, VolumeID: s.VolumeID, PluginID: s.PluginID, AllocID: u.AllocID, Name: u.Name,
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

// pluginDir reports whether path is where a plugin's volumes are: it is mounted
// for the plugins that are tasks, and theirs to take away.
func (m *Mounter) pluginDir(path string) bool { return filepath.Dir(path) == filepath.Clean(m.root) }

// accounted reports whether a mount is that of a volume which is recorded.
func accounted(recorded []localdb.Staging, path string) bool {
	within := func(dir string) bool { return dir != "" && (path == dir || strings.HasPrefix(path, dir+"/")) }
	return slices.ContainsFunc(recorded, func(s localdb.Staging) bool {
		return within(s.StagingPath) || slices.ContainsFunc(s.Users, func(u localdb.User) bool { return within(u.TargetPath) })
	})
}
