// Package localdb is a node's memory: everything that it must be able to undo,
// in one crash-safe file. It owns what is stored and how; it never decides and
// never does what it records.
//
// Invariant: what a write has returned from survives a power cut, and no
// effect on the node comes before the write that tells of it.
package localdb

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
)

// DB is the database of one node. It is safe for concurrent use.
type DB struct {
	bolt *bbolt.DB
}

// The buckets. A new one goes to the end.
const (
	bucketNode        = "node"
	bucketAllocations = "allocations"
	bucketStagings    = "stagings"
)

// format is the version of what this package writes.
const format = 1

// lockWait is how long Open waits for another agent to let go of the file.
const lockWait = 2 * time.Second

// batchDelay is how long a write waits for others to share its commit. It is
// shorter than the commit itself.
const batchDelay = 200 * time.Microsecond

// Open opens the database, or makes it.
func Open(path string) (*DB, error) {
	bolt, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockWait, FreelistType: bbolt.FreelistMapType})
	if errors.Is(err, bbolt.ErrTimeout) {
		return nil, fmt.Errorf("open local database %s: another agent has it open", path)
	}
	if err != nil {
		return nil, fmt.Errorf("open local database %s: %w", path, err)
	}
	bolt.MaxBatchDelay = batchDelay
	db := &DB{bolt: bolt}
	if err := db.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("open local database %s: %w", path, err), bolt.Close())
	}
	return db, nil
}

// Close closes the file.
func (db *DB) Close() error {
	if err := db.bolt.Close(); err != nil {
		return fmt.Errorf("close local database: %w", err)
	}
	return nil
}

// prepare makes the buckets, and refuses a file that a newer version wrote.
func (db *DB) prepare() error {
	var stored struct {
		Format int `json:"format"`
	}
	return db.bolt.Update(func(tx *bbolt.Tx) error {
		for _, name := range []string{bucketNode, bucketAllocations, bucketStagings} {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		node := tx.Bucket([]byte(bucketNode))
		if b := node.Get([]byte("format")); b != nil {
			if err := json.Unmarshal(b, &stored); err != nil {
				return err
			}
			if stored.Format > format {
				return fmt.Errorf("it has format %d, and this version understands %d: a newer agent wrote it", stored.Format, format)
			}
			return nil
		}
		stored.Format = format
		b, err := json.Marshal(stored)
		if err != nil {
			return err
		}
		return node.Put([]byte("format"), b)
	})
}

// write runs one durable transaction. Concurrent writers share a commit.
func (db *DB) write(what string, f func(tx *bbolt.Tx) error) error {
	if err := db.bolt.Batch(f); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// put stores a value as JSON.
func put(tx *bbolt.Tx, bucket, key string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return tx.Bucket([]byte(bucket)).Put([]byte(key), b)
}

// get reads a value, and reports whether it is there.
func get(tx *bbolt.Tx, bucket, key string, v any) (bool, error) {
	b := tx.Bucket([]byte(bucket)).Get([]byte(key))
	if b == nil {
		return false, nil
	}
	return true, json.Unmarshal(b, v)
}

// all reads every value of a bucket.
func all[T any](db *DB, bucket string) ([]T, error) {
	var list []T
	err := db.bolt.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucket)).ForEach(func(k, b []byte) error {
			var v T
			if err := json.Unmarshal(b, &v); err != nil {
				return fmt.Errorf("entry %q: %w", k, err)
			}
			list = append(list, v)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", bucket, err)
	}
	return list, nil
}
