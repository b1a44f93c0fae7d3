package record

import (
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

// ErrNotFound is answered for a volume that has no record.
var ErrNotFound = errors.New("no such volume")

// format is the version of the file's shape. A record with a higher one was
// written by a newer driver and is left alone.
const format = 1

const (
	suffix    = ".json"
	temporary = ".tmp"
)

// file is a record as it lies on the disk.
type file struct {
	Format int `json:"format"`
	Volume
}

// Store holds the records. It is safe for concurrent use; two writers of one
// volume are kept apart by the caller.
type Store struct {
	dir string

	mu      sync.Mutex
	volumes map[Key]Volume
	broken  map[Key]error
}

// Open reads every record in dir, which must exist. Only one process may have
// a directory open.
func Open(dir string) (*Store, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	s := &Store{dir: dir, volumes: map[Key]Volume{}, broken: map[Key]error{}}
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
		v, err := s.read(key)
		if err != nil {
			s.broken[key] = fmt.Errorf("read record %s: %w", s.path(key), err)
			continue
		}
		s.volumes[key] = v
	}
	return s, nil
}

func (s *Store) path(key Key) string { return filepath.Join(s.dir, string(key)+suffix) }

func (s *Store) read(key Key) (Volume, error) {
	data, err := os.ReadFile(s.path(key))
	if err != nil {
		return Volume{}, err
	}
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return Volume{}, err
	}
	if f.Format != format {
		return Volume{}, fmt.Errorf("its format is %d, this driver knows %d", f.Format, format)
	}
	if id, ok := ParseID(f.ID); !ok || id.Key != key {
		return Volume{}, fmt.Errorf("it is about volume %q", f.ID)
	}
	return f.Volume, f.check()
}

// Get is a copy of a record. The error is ErrNotFound, or says why the record
// cannot be read.
func (s *Store) Get(key Key) (Volume, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.broken[key]; err != nil {
		return Volume{}, err
	}
	v, ok := s.volumes[key]
	if !ok {
		return Volume{}, ErrNotFound
	}
	return v.Clone(), nil
}

// List is a copy of all records that can be read, in the order of their keys.
func (s *Store) List() []Volume {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Volume, 0, len(s.volumes))
	for _, key := range slices.Sorted(maps.Keys(s.volumes)) {
		list = append(list, s.volumes[key].Clone())
	}
	return list
}

// Broken are the records that cannot be read, and why.
func (s *Store) Broken() map[Key]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.broken)
}

// Put writes a record. When it returns nil, the record survives a power cut.
func (s *Store) Put(v Volume) error {
	id, ok := ParseID(v.ID)
	if !ok {
		return fmt.Errorf("write record: %q is no volume id", v.ID)
	}
	s.mu.Lock()
	err := s.broken[id.Key]
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if err := s.write(id.Key, v); err != nil {
		return fmt.Errorf("write record of volume %s: %w", v.ID, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.volumes[id.Key] = v.Clone()
	return nil
}

func (s *Store) write(key Key, v Volume) error {
	data, err := json.MarshalIndent(file{Format: format, Volume: v}, "", "  ")
	if err != nil {
		return err
	}
	unfinished := s.path(key) + temporary
	f, err := os.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(unfinished, s.path(key)); err != nil {
		return err
	}
	return SyncDir(s.dir)
}

// Remove forgets a volume, for good once it returns nil. Forgetting what is
// not known is no error.
func (s *Store) Remove(key Key) error {
	err := os.Remove(s.path(key))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove record: %w", err)
	}
	if err := SyncDir(s.dir); err != nil {
		return fmt.Errorf("remove record: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.volumes, key)
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
