package localdriver

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/berth-dev/berth/internal/localdriver/filesystem"
	"github.com/berth-dev/berth/internal/localdriver/mount"
	"github.com/berth-dev/berth/internal/localdriver/record"
)

// The driver's root directory.
const (
	recordsDir   = "records"          // one file a volume
	volumesDir   = "volumes"          // one directory a volume, with one of these in it:
	dataName     = "data"             // the directory or subvolume
	imageName    = "image"            // the image
	notesDir     = "snapshot-records" // one file a snapshot
	snapshotsDir = "snapshots"        // one directory a snapshot, as for volumes
)

// bootIDFile changes with every boot.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// volumes is what lies below the root directory, and what can be done with it.
// Its methods speak of records; the gRPC services translate.
type volumes struct {
	root   string // free of symbolic links, as the mount table has it
	node   string
	boot   string
	btrfs  bool // root is on one
	tools  filesystem.Tools
	log    *slog.Logger
	passed func(step)

	store         *record.Store[record.Volume]
	calls         calls
	snapshots     *record.Store[record.Snapshot]
	snapshotCalls calls
	copies        *copies
}

// openVolumes reads the state in root, which must be locked by the caller.
func openVolumes(root, node string, tools filesystem.Tools, log *slog.Logger, passed func(step)) (*volumes, error) {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, fmt.Errorf("resolve root: %w", err)
	}
	boot, err := os.ReadFile(bootIDFile)
	if err != nil {
		return nil, fmt.Errorf("read boot id: %w", err)
	}
	for _, dir := range []string{recordsDir, volumesDir, notesDir, snapshotsDir} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			return nil, err
		}
	}
	if err := record.SyncDir(root); err != nil {
		return nil, fmt.Errorf("sync root: %w", err)
	}
	store, err := record.Open[record.Volume](filepath.Join(root, recordsDir))
	if err != nil {
		return nil, err
	}
	snapshots, err := record.Open[record.Snapshot](filepath.Join(root, notesDir))
	if err != nil {
		return nil, err
	}
	btrfs, err := filesystem.OnBtrfs(root)
	if err != nil {
		return nil, err
	}
	return &volumes{
		root: root, node: node, boot: strings.TrimSpace(string(boot)), btrfs: btrfs,
		tools: tools, log: log, passed: passed,
		store: store, snapshots: snapshots, copies: newCopies(),
	}, nil
}

func (v *volumes) dir(key record.Key) string { return filepath.Join(v.root, volumesDir, string(key)) }

func (v *volumes) data(key record.Key) string { return filepath.Join(v.dir(key), dataName) }

func (v *volumes) image(key record.Key) string { return filepath.Join(v.dir(key), imageName) }

// keyOf is the key of a record that the store gave or will take.
func keyOf(rec record.Volume) record.Key {
	id, _ := record.ParseID(rec.ID)
	return id.Key
}

// begin takes a volume for one call and reads its record.
func (v *volumes) begin(id string) (rec record.Volume, end func(), err error) {
	parsed, ok := record.ParseID(id)
	if !ok {
		return rec, nil, refuse(codes.NotFound, "volume %q does not exist", id)
	}
	end, err = v.calls.begin(parsed.Key)
	if err != nil {
		return rec, nil, err
	}
	rec, err = v.find(parsed)
	if err != nil {
		end()
		return rec, nil, err
	}
	return rec, end, nil
}

// known reads the record of a volume for a call that only asks.
func (v *volumes) known(id string) (record.Volume, error) {
	parsed, ok := record.ParseID(id)
	if !ok {
		return record.Volume{}, refuse(codes.NotFound, "volume %q does not exist", id)
	}
	return v.find(parsed)
}

// find reads a record by the volume's id.
func (v *volumes) find(id record.ID) (record.Volume, error) {
	rec, err := v.store.Get(id.Key)
	if err == nil && rec.ID == id.String() {
		return rec, nil
	}
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return rec, err
	}
	if id.Node != v.node {
		return rec, refuse(codes.NotFound, "volume %s does not exist on node %s; it is of node %s", id, v.node, id.Node)
	}
	return rec, refuse(codes.NotFound, "volume %s does not exist", id)
}

// put writes the record, with the boot in which its stagings are true.
func (v *volumes) put(rec record.Volume) error {
	rec.BootID = v.boot
	return v.store.Put(rec)
}

// resolve makes path comparable with the mount table: absolute, and free of
// symbolic links but for its last part, which must be none.
func (v *volumes) resolve(path string) (string, error) {
	if err := readPath(path); err != nil {
		return "", err
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(filepath.Clean(path)))
	if err != nil {
		return "", refuse(codes.FailedPrecondition, "the directory that is to hold %s cannot be used: %v", path, err)
	}
	resolved := filepath.Join(parent, filepath.Base(filepath.Clean(path)))
	if mount.Within(resolved, v.root) || mount.Within(v.root, resolved) {
		return "", refuse(codes.InvalidArgument, "path %s would cover the driver's own root %s", path, v.root)
	}
	if st, err := os.Lstat(resolved); err == nil && st.Mode().Type() == fs.ModeSymlink {
		return "", refuse(codes.FailedPrecondition, "%s is a symbolic link", path)
	}
	return resolved, nil
}

// resolveOld is resolve for calls that undo: where even the directory that
// held the path is gone, the path is taken as it is.
func (v *volumes) resolveOld(path string) (string, error) {
	if err := readPath(path); err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
		return filepath.Clean(path), nil
	}
	return v.resolve(path)
}
