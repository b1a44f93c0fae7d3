package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// ErrNotFound is answered for what has no record.
var ErrNotFound = errors.New("no such record")

// format is the version of the file's shape. A record with a higher one was
// written by a newer driver and is left alone.
const format = 1

const (
	suffix    = ".json"
	temporary = ".tmp"
)

// Record is what a store holds: Volume or Snapshot.
type Record[T any] interface {
	ident() string
	check() error
	Clone() T
}

// Store holds the records of one noun. It is safe for concurrent use; two
// writers of one record are kept apart by the caller.
type Store[T Record[T]] struct {
	dir string

	mu      sync.Mutex
	records map[Key]T
	broken  map[Key]error
}

// Open reads every record in dir, which must exist. Only one process may have
// a directory open.
func Open[T Record[T]](dir string) (*Store[T], error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	s := &Store[T]{dir: dir, records: map[Key]T{}, broken: map[Key]error{}}
	for _, e := range entries {
		name := e.Name()
		if strings.HasSuffix(name, temporary) {
			// Left by a crash between writing and renaming: it never counted.
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return nil, fmt.Errorf("remove unfinished record: %w", err)
			}
			continue
		}
		key, ok := ParseKey(strings.TrimSuffix(name, suffix))
		if !ok || !strings.HasSuffix(name, suffix) {
			continue
		}
		rec, err := s.read(key)
		if err != nil {
			s.broken[key] = fmt.Errorf("read record %s: %w", s.path(key), err)
			continue
		}
		s.records[key] = rec
	}
	return s, nil
}

func (s *Store[T]) path(key Key) string { return filepath.Join(s.dir, string(key)+suffix) }

func (s *Store[T]) read(key Key) (T, error) {
	var rec, none T
	data, err := os.ReadFile(s.path(key))
	if err != nil {
		return none, err
	}
	var head struct{ Format int }
	if err := json.Unmarshal(data, &head); err != nil {
		return none, err
	}
	if head.Format != format {
		return none, fmt.Errorf("its format is %d, this driver knows %d", head.Format, format)
	}
	if err := json.Unmarshal(data, &rec); err != nil {
		return none, err
	}
	if id, ok := ParseID(rec.ident()); !ok || id.Key != key {
		return none, fmt.Errorf("it is about %q", rec.ident())
	}
	return rec, rec.check()
}

// Get is a copy of a record. The error is ErrNotFound, or says why the record
// cannot be read.
func (s *Store[T]) Get(key Key) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var none T
	if err := s.broken[key]; err != nil {
		return none, err
	}
	rec, ok := s.records[key]
	if !ok {
		return none, ErrNotFound
	}
	return rec.Clone(), nil
}

// List is a copy of all records that can be read, in the order of their keys.
func (s *Store[T]) List() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]T, 0, len(s.records))
	for _, key := range slices.Sorted(maps.Keys(s.records)) {
		list = append(list, s.records[key].Clone())
	}
	return list
}

// Broken are the records that cannot be read, and why.
func (s *Store[T]) Broken() map[Key]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.broken)
}

// Put writes a record. When it returns nil, the record survives a power cut.
func (s *Store[T]) Put(rec T) error {
	id, ok := ParseID(rec.ident())
	if !ok {
		return fmt.Errorf("write record: %q is no id", rec.ident())
	}
	s.mu.Lock()
	err := s.broken[id.Key]
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if err := s.write(id.Key, rec); err != nil {
		return fmt.Errorf("write record of %s: %w", id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[id.Key] = rec.Clone()
	return nil
}

func (s *Store[T]) write(key Key, rec T) error {
	data, err := encode(rec)
	if err != nil {
		return err
	}
	unfinished := s.path(key) + temporary
	f, err := os.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(unfinished, s.path(key)); err != nil {
		return err
	}
	return SyncDir(s.dir)
}

// encode is a record as it lies on the disk: its fields, behind the format.
func encode(rec any) ([]byte, error) {
	fields, err := json.Marshal(rec)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = json.Indent(&out, fmt.Appendf(nil, `{"format":%d,%s`, format, fields[1:]), "", "  ")
	return out.Bytes(), err
}

// Remove forgets a record, for good once it returns nil. Forgetting what is
// not known is no error.
func (s *Store[T]) Remove(key Key) error {
	err := os.Remove(s.path(key))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove record: %w", err)
	}
	if err := SyncDir(s.dir); err != nil {
		return fmt.Errorf("remove record: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, key)
	return nil
}

// SyncDir makes what was created, renamed or removed in a directory survive a
// power cut.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
