package csitest

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/internal/agent/mount"
	"github.com/berth-dev/berth/internal/agent/mount/mounttest"
)

// Mounter is what a node's driver does to the node's mount table. All of it can
// be repeated.
type Mounter interface {
	Stage(volumeID, staging string, block bool) error
	Unstage(staging string) error
	// Publish mounts from staging if that is set.
	Publish(volumeID, staging, target string, block, readOnly bool) error
	Unpublish(target string) error
}

// KernelMounts really bind-mounts. The volumes' data lies below dir, which
// nodes may share.
func KernelMounts(dir string) Mounter {
	return mounts{system: mount.Kernel{}, dir: dir, files: true}
}

// TableMounts marks mounts in a table in memory, and touches no file.
func TableMounts(table *mounttest.Table) Mounter {
	return mounts{system: table, dir: "/csitest"}
}

type mounts struct {
	system mounttest.System
	dir    string
	files  bool
}

func (m mounts) Stage(volumeID, staging string, block bool) error {
	if block {
		return nil
	}
	return m.bind(m.source(volumeID), staging, false, false)
}

func (m mounts) Unstage(staging string) error { return m.system.Unmount(staging) }

func (m mounts) Publish(volumeID, staging, target string, block, readOnly bool) error {
	source := staging
	if staging == "" || block {
		source = m.source(volumeID)
	}
	if block {
		source += ".block"
	}
	if err := m.make(target, block); err != nil {
		return err
	}
	return m.bind(source, target, block, readOnly)
}

func (m mounts) Unpublish(target string) error {
	if err := m.system.Unmount(target); err != nil || !m.files {
		return err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// source is where a volume's data lies. Ids are no file names.
func (m mounts) source(volumeID string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(volumeID))
	return filepath.Join(m.dir, fmt.Sprintf("%016x", h.Sum64()))
}

func (m mounts) bind(source, target string, block, readOnly bool) error {
	if _, mounted, err := m.system.At(target); err != nil || mounted {
		return err
	}
	if m.files {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
	}
	if err := m.make(source, block); err != nil {
		return err
	}
	return m.system.Bind(source, target, readOnly)
}

// make makes a directory, or a file in place of a device. The parent is there,
// and if it is not, that is its caller's fault (CSI spec, NodePublishVolume).
func (m mounts) make(path string, block bool) error {
	switch {
	case !m.files:
		return nil
	case !block:
		if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}
