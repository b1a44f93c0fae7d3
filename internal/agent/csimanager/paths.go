package csimanager

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

// Paths that plugins see are kept short: a plugin must take 128 bytes, and
// some take no more (CSI spec, Size Limits). They are made from ids that Berth
// gave, never from a plugin's, which may hold any character; a readable head
// is for people, and the hash behind it tells them apart.

// How much of a name a path shows, and how much of the hash. With a data
// directory of 70 bytes the longest path has 127.
const (
	readable, hashed             = 15, 6
	readablePlugin, hashedPlugin = 8, 4
)

func place(name string, identity ...string) string { return short(readable, hashed, name, identity...) }

func short(readable, hashed int, name string, identity ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(identity, "\x00")))
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '_'
	}, name)
	return plain[:min(len(plain), readable)] + "-" + hex.EncodeToString(sum[:hashed])
}

// PluginDir is where the volumes of a plugin are staged and published, below
// the root of a mounter: one place for all of its instances, whether the host
// runs them or an allocation does.
func PluginDir(root string, id api.PluginID) string {
	return filepath.Join(root, short(readablePlugin, hashedPlugin, string(id), string(id)))
}

// stagingPath is where a volume is staged on this node: one place for each
// volume, whoever uses it.
func (m *Mounter) stagingPath(id api.PluginID, ns api.NamespaceID, vol api.VolumeID) string {
	return filepath.Join(PluginDir(m.root, id), "stage", place(string(vol), localdb.StagingKey(ns, vol)))
}

// TargetPath is where an attachment is published. One allocation may mount a
// volume twice, so each attachment has its own.
func (m *Mounter) TargetPath(at *api.Attachment) string {
	return filepath.Join(m.targets(at.PluginID), place(at.Name, string(at.AllocID), at.Name))
}

// targets is where all target paths of a plugin are.
func (m *Mounter) targets(id api.PluginID) string {
	return filepath.Join(PluginDir(m.root, id), "mount")
}
