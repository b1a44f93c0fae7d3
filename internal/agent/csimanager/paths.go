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

// readable is how much of a name a path shows.
const readable = 24

func place(name string, identity ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(identity, "\x00")))
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '_'
	}, name)
	return plain[:min(len(plain), readable)] + "-" + hex.EncodeToString(sum[:6])
}

// stagingPath is where a volume is staged on this node: one place for each
// volume, whoever uses it.
func (m *Mounter) stagingPath(ns api.NamespaceID, vol api.VolumeID) string {
	return filepath.Join(m.root, "stage", place(string(vol), localdb.StagingKey(ns, vol)))
}

// TargetPath is where an attachment is published. One allocation may mount a
// volume twice, so each attachment has its own.
func (m *Mounter) TargetPath(alloc api.AllocID, name string) string {
	return filepath.Join(m.targets(), place(name, string(alloc), name))
}

// targets is where all target paths are.
func (m *Mounter) targets() string { return filepath.Join(m.root, "mount") }
