package state

import (
	"github.com/berth-dev/berth/api"
)

// Identity is what the servers know an agent by. It is a row of its own: it
// changes with every report, and nobody is shown it.
type Identity struct {
	NodeID api.NodeID `json:"node_id"`
	// SecretHash is the SHA-256 of the node's secret, in hex. The secret is
	// 256 random bits, so that a plain hash is enough.
	SecretHash string `json:"secret_hash"`
	// Session is the token of the agent's session, and Epoch the node's epoch.
	Session string `json:"session"`
	Epoch   uint64 `json:"epoch"`
	// Sequence is the last report that was applied in this epoch.
	Sequence uint64 `json:"sequence"`
}

func identitiesTable() *table[Identity] {
	return define[Identity](tableIdentities, unique(primary, func(b []byte, i *Identity) []byte { return appendKey(b, string(i.NodeID)) }))
}

// Identity is the node's identity, or nil.
func (v View) Identity(id api.NodeID) *Identity {
	return first[Identity](v, tableIdentities, primary, key(string(id)))
}

// PutIdentity stores a node's identity.
func (tx *Tx) PutIdentity(i *Identity) { insert(tx, tableIdentities, i) }
