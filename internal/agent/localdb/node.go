package localdb

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/berth-dev/berth/api"
)

// Node is who this node is, and where it stands with its cluster.
type Node struct {
	ID   api.NodeID `json:"id"`
	Name string     `json:"name"`
	// Secret proves to the servers that it is this node. They keep its hash.
	Secret string `json:"secret"`
	// ClusterID is pinned by the first registration.
	ClusterID string `json:"cluster_id,omitempty"`
	// Session is the token of the last session that the servers are known to
	// have. Pending are tokens, newest first, with which agents have tried to
	// register since: the servers may have one of them without the agent
	// having heard.
	Session string   `json:"session,omitempty"`
	Pending []string `json:"pending,omitempty"`
	Epoch   uint64   `json:"epoch,omitempty"`
	// BootID is the boot in which an agent last registered.
	BootID string `json:"boot_id,omitempty"`
	// Generation and Index are the newest that the agent has seen.
	Generation uint64 `json:"generation,omitempty"`
	Index      uint64 `json:"index,omitempty"`
}

const (
	keyFormat = "format"
	keyNode   = "node"
	keyReport = "report"
)

// Node reads who the node is. At the first call it is made up from the name.
// Later the name may change, for people; the id keeps the one that it began with.
func (db *DB) Node(name string) (Node, error) {
	var n Node
	found := false
	err := db.bolt.View(func(tx *bbolt.Tx) (err error) {
		found, err = get(tx, bucketNode, keyNode, &n)
		return err
	})
	if err != nil {
		return Node{}, fmt.Errorf("read node identity: %w", err)
	}
	if found && n.Name == name {
		return n, nil // to read it needs no room
	}
	if !found {
		n = Node{ID: api.NodeID(name + "-" + randomHex(4)), Secret: randomHex(32)}
	}
	n.Name = name
	return n, db.PutNode(n)
}

// PutNode stores who the node is.
func (db *DB) PutNode(n Node) error {
	return db.write("store node identity", func(tx *bbolt.Tx) error { return put(tx, bucketNode, keyNode, n) })
}

// Report is the last report that was made, or nil. Whether the servers have it
// shows in the sequence that they answer at registration.
func (db *DB) Report() (*api.Report, error) {
	var r api.Report
	found := false
	err := db.bolt.View(func(tx *bbolt.Tx) (err error) {
		found, err = get(tx, bucketNode, keyReport, &r)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	if !found {
		return nil, nil
	}
	return &r, nil
}

// PutReport stores a report before it is sent.
func (db *DB) PutReport(r *api.Report) error {
	return db.write("store report", func(tx *bbolt.Tx) error { return put(tx, bucketNode, keyReport, r) })
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// NewSession makes the token of a session.
func NewSession() string { return randomHex(16) }
