package record

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Key names a volume's files on this node: 32 hex digits. Paths are built from
// keys and from nothing else that came in over the wire.
type Key string

// keyLength is the length of a key: 128 bits are enough that two names never
// meet, and short enough to read.
const keyLength = 32

// KeyOf is the key of the volume with a CSI name. It is the same at every
// call, which is how a repeated CreateVolume finds its volume.
func KeyOf(name string) Key {
	sum := sha256.Sum256([]byte(name))
	return Key(hex.EncodeToString(sum[:])[:keyLength])
}

func (k Key) valid() bool {
	if len(k) != keyLength {
		return false
	}
	return strings.Trim(string(k), "0123456789abcdef") == ""
}

// ID is the volume_id that the orchestrator gets: key@node. The node is part
// of it because two nodes may both have been asked for the same name, and
// because a node that is asked to delete another's volume must not answer that
// it is gone.
type ID struct {
	Key  Key
	Node string
}

func (i ID) String() string { return string(i.Key) + "@" + i.Node }

// ParseID reads a volume_id, and reports whether a driver of this kind can
// have made it.
func ParseID(s string) (ID, bool) {
	key, node, found := strings.Cut(s, "@")
	id := ID{Key: Key(key), Node: node}
	return id, found && node != "" && id.Key.valid()
}

// ParseKey reads a key.
func ParseKey(s string) (Key, bool) {
	k := Key(s)
	return k, k.valid()
}
