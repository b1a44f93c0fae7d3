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
	reserve reserve
	writers atomic.Int32 // under way
}

// The buckets. A new one goes to the end.
const (
	bucketNode        = "node"
	bucketAllocations = "allocations"
	bucketStagings    = "stagings"
	bucketInstances   = "instances"
)

func buckets() []string {
	return []string{bucketNode, bucketAllocations, bucketStagings, bucketInstances}
}

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
	db := &DB{}
	err := guard(func() (err error) {
		db.bolt, err = bbolt.Open(path, 0o600, &bbolt.Options{
			Timeout: lockWait, FreelistType: bbolt.FreelistMapType,
			OpenFile: func(path string, flag int, mode os.FileMode) (_ *os.File, err error) {
				db.reserve.file, err = os.OpenFile(path, flag, mode)
				return db.reserve.file, err
			},
		})
		return err
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("open local database %s: another agent has it open", path)
	}
	if err != nil {
		return nil, fmt.Errorf("open local database %s: %w", path, err)
	}
	db.bolt.MaxBatchDelay = batchDelay
	if err := guard(db.check); err != nil {
		return nil, errors.Join(fmt.Errorf("open local database %s: %w", path, err), db.bolt.Close())
	}
	if err := db.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("open local database %s: %w", path, err), db.bolt.Close())
	}
	// Only what begins needs a whole reserve.
	_ = db.bolt.View(func(tx *bbolt.Tx) error { return db.reserve.keep(tx, false) })
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

// prepare refuses a file that a newer version wrote, and makes what a new one
// lacks. It writes nothing else: a full disk keeps no agent from its memory.
func (db *DB) prepare() error {
	ready, err := db.ready()
	if err != nil || ready {
		return err
	}
	return db.bolt.Update(func(tx *bbolt.Tx) error {
		for _, name := range buckets() {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		return put(tx, bucketNode, keyFormat, stored{Format: format})
	})
}

// stored says who can read a file.
type stored struct {
	Format int `json:"format"`
}

// ready reports whether the file has all that this version writes to.
func (db *DB) ready() (ready bool, err error) {
	err = db.bolt.View(func(tx *bbolt.Tx) error {
		ready = true
		for _, name := range buckets() {
			ready = ready && tx.Bucket([]byte(name)) != nil
		}
		if tx.Bucket([]byte(bucketNode)) == nil {
			return nil
		}
		var s stored
		found, err := get(tx, bucketNode, keyFormat, &s)
		if err == nil && s.Format > format {
			err = fmt.Errorf("it has format %d, and this version understands %d: a newer agent wrote it", s.Format, format)
		}
		ready = ready && found
		return err
	})
	return ready, err
}

// write runs one durable transaction. Who comes alone commits at once; those
// who come meanwhile share a commit.
func (db *DB) write(what string, f func(tx *bbolt.Tx) error) error {
	return db.transact(what, f, func(*bbolt.Tx) bool { return false })
}

// transact is write, where begins reports whether it is for something that has
// not begun: that is refused while the reserve is not whole.
func (db *DB) transact(what string, f func(tx *bbolt.Tx) error, begins func(tx *bbolt.Tx) bool) error {
	run := db.bolt.Batch
	if db.writers.Add(1) == 1 {
		run = db.bolt.Update
	}
	defer db.writers.Add(-1)
	err := run(func(tx *bbolt.Tx) error {
		if err := db.reserve.keep(tx, begins(tx)); err != nil {
			return err
		}
		return f(tx)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// lacks reports whether a bucket has nothing at key.
func lacks(tx *bbolt.Tx, bucket, key string) bool {
	return tx.Bucket([]byte(bucket)).Get([]byte(key)) == nil
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
