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
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// DB is the database of one node. It is safe for concurrent use.
type DB struct {
	bolt    *bbolt.DB
	writers atomic.Int32 // under way
}

// The buckets. A new one goes to the end.
const (
	bucketNode        = "node"
	bucketAllocations = "allocations"
	bucketStagings    = "stagings"
	bucketInstances   = "instances"
)

// format is the version of what this package writes.
const format = 1

// lockWait is how long Open waits for another agent to let go of the file.
const lockWait = 2 * time.Second

// batchDelay is how long a write waits for others to share its commit. It is
// shorter than the commit itself.
const batchDelay = 200 * time.Microsecond

// Open opens the database, or makes it. A file that is damaged is refused, and
// stays as it is: what it no longer tells would never be undone.
func Open(path string) (*DB, error) {
	var bolt *bbolt.DB
	err := guard(func() (err error) {
		bolt, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockWait, FreelistType: bbolt.FreelistMapType})
		return err
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("open local database %s: another agent has it open", path)
	}
	if err != nil {
		return nil, fmt.Errorf("open local database %s: %w", path, err)
	}
	bolt.MaxBatchDelay = batchDelay
	db := &DB{bolt: bolt}
	if err := guard(db.check); err != nil {
		return nil, errors.Join(fmt.Errorf("open local database %s: %w", path, err), bolt.Close())
	}
	if err := db.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("open local database %s: %w", path, err), bolt.Close())
	}
	return db, nil
}

// guard turns what happens to a reader of a damaged file into an error. The
// file is mapped: to read where it was cut off is a fault, and bbolt panics
// over pages that make no sense.
func guard(read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it is damaged: %v", p)
		}
	}()
	return read()
}

// check reads the whole file.
func (db *DB) check() error {
	info, err := os.Stat(db.bolt.Path())
	if err != nil {
		return err
	}
	return db.bolt.View(func(tx *bbolt.Tx) error {
		if info.Size() < tx.Size() {
			return fmt.Errorf("it is damaged: it was cut off at %d bytes of %d", info.Size(), tx.Size())
		}
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				if !json.Valid(v) {
					return fmt.Errorf("it is damaged: entry %q of %s is no JSON", k, name)
				}
				return nil
			})
		})
	})
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
		for _, name := range []string{bucketNode, bucketAllocations, bucketStagings, bucketInstances} {
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

// write runs one durable transaction. Who comes alone commits at once; those
// who come meanwhile share a commit.
func (db *DB) write(what string, f func(tx *bbolt.Tx) error) error {
	run := db.bolt.Batch
	if db.writers.Add(1) == 1 {
		run = db.bolt.Update
	}
	defer db.writers.Add(-1)
	if err := run(f); err != nil {
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
