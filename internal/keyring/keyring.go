package keyring

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Keyring is a set of keys with its file. It is safe for concurrent use.
type Keyring struct {
	path string

	mu   sync.Mutex // guards below
	keys []key      // the last one seals
}

// key is one key as the file has it.
type key struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	// Key is 32 bytes, of AES-256.
	Key []byte `json:"key"`
}

// file is what the file holds.
type file struct {
	Keys []key `json:"keys"`
}

// UnknownKeyError is the error of Open for what was sealed with a key that the
// keyring does not have.
type UnknownKeyError struct{ ID string }

func (e *UnknownKeyError) Error() string { return fmt.Sprintf("key %s is not in the keyring", e.ID) }

// keySize is AES-256's.
const keySize = 32

// Load reads the keyring at path. A file that is not there is a keyring without
// keys; one that others may read is refused.
func Load(path string) (*Keyring, error) {
	k := &Keyring{path: path}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the keyring: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("read the keyring: %s has mode %04o, and others may read it: use chmod 600", path, mode)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the keyring: %w", err)
	}
	var f file
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("read the keyring: %s is not one", path) // the error of json could repeat a part of it
	}
	known := map[string]bool{}
	for i, key := range f.Keys {
		if len(key.Key) != keySize || key.ID == "" {
			return nil, fmt.Errorf("read the keyring: key %d of %s has no id, or not %d bytes", i+1, path, keySize)
		}
		// What the last one of them seals, Open would try to open with the first.
		if known[key.ID] {
			return nil, fmt.Errorf("read the keyring: key %d of %s has the id of another", i+1, path)
		}
		known[key.ID] = true
	}
	k.keys = f.Keys
	return k, nil
}

// Empty reports whether there is no key to seal with.
func (k *Keyring) Empty() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.keys) == 0
}

// Generate makes a key, which seals from now on. It is on the disk when
// Generate returns.
func (k *Keyring) Generate() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	id := make([]byte, 4)
	fresh := key{Created: time.Now().UTC().Truncate(time.Second), Key: make([]byte, keySize)}
	_, _ = rand.Read(id) // never fails
	_, _ = rand.Read(fresh.Key)
	fresh.ID = hex.EncodeToString(id)
	keys := append(slices.Clone(k.keys), fresh)
	if err := write(k.path, file{keys}); err != nil {
		return fmt.Errorf("write the keyring: %w", err)
	}
	k.keys = keys
	return nil
}

// write replaces the file, so that a crash leaves the old one or the new one.
func write(path string, f file) error {
	b, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	next, err := os.CreateTemp(dir, ".keyring-*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = next.Write(append(b, '\n'))
	err = errors.Join(err, next.Sync(), next.Close())
	if err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		_ = os.Remove(next.Name()) // it holds a key, and nobody knows of it
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Seal encrypts text. purpose is authenticated with it, and not in the box:
// Open needs the same.
func (k *Keyring) Seal(text []byte, purpose string) (keyID string, box []byte, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.keys) == 0 {
		return "", nil, errors.New("seal: the keyring has no key")
	}
	last := k.keys[len(k.keys)-1]
	gcm, err := last.cipher()
	if err != nil {
		return "", nil, fmt.Errorf("seal: %w", err)
	}
	return last.ID, gcm.Seal(nil, nil, text, []byte(purpose)), nil
}

// Open decrypts a box. The error is an UnknownKeyError if the keyring lacks the
// key, and says nothing of the content.
func (k *Keyring) Open(keyID string, box []byte, purpose string) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.IndexFunc(k.keys, func(key key) bool { return key.ID == keyID })
	if i < 0 {
		return nil, &UnknownKeyError{ID: keyID}
	}
	gcm, err := k.keys[i].cipher()
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	text, err := gcm.Open(nil, nil, box, []byte(purpose))
	if err != nil {
		return nil, fmt.Errorf("open: it was not sealed with key %s for this", keyID)
	}
	return text, nil
}

// cipher seals with a random nonce, which it puts before the box.
func (k *key) cipher() (cipher.AEAD, error) {
	block, err := aes.NewCipher(k.Key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
