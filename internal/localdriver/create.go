package localdriver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/berth-dev/berth/internal/localdriver/filesystem"
	"github.com/berth-dev/berth/internal/localdriver/record"
)

// plan is what CreateVolume was asked for, with every choice made.
type plan struct {
	name string
	size size
	// fsType is empty where the request left it to the driver.
	fsType filesystem.Type
	// here: the volume may be made on this node.
	here bool
}

// create makes a volume, or finds the one that an earlier call with the same
// name has made.
func (v *volumes) create(ctx context.Context, p plan) (record.Volume, error) {
	id := record.ID{Key: record.KeyOf(p.name), Node: v.node}
	end, err := v.calls.begin(id.Key)
	if err != nil {
		return record.Volume{}, err
	}
	defer end()
	rec, err := v.store.Get(id.Key)
	if err == nil && rec.State == record.Deleting {
		// Its deletion was cut off. The new volume must not find its data.
		if err := v.finishDelete(ctx, rec); err != nil {
			return rec, err
		}
		err = record.ErrNotFound
	}
	switch {
	case errors.Is(err, record.ErrNotFound):
		return v.createNew(ctx, id, p)
	case err != nil:
		return rec, err
	}
	if err := p.compatible(rec); err != nil {
		return rec, err
	}
	if rec.State == record.Creating {
		return v.finishCreate(rec)
	}
	return rec, nil
}

// compatible reports whether a volume that exists is what is asked for.
func (p plan) compatible(rec record.Volume) error {
	problem := ""
	switch {
	case rec.Name != p.name:
		problem = fmt.Sprintf("it was made for the name %q", rec.Name)
	case !p.here:
		problem = "it is on a node that the accessibility requirements leave out"
	case p.size.wanted && rec.Content == record.Directory:
		problem = "it is a plain directory without a capacity"
	case p.size.wanted && (rec.Capacity < p.size.required || p.size.limit > 0 && rec.Capacity > p.size.limit):
		problem = fmt.Sprintf("its capacity is %d bytes", rec.Capacity)
	case p.fsType != "" && (rec.FileSystem == nil || rec.FileSystem.Type != string(p.fsType)):
		problem = fmt.Sprintf("it does not hold %s", p.fsType)
	default:
		return nil
	}
	return refuse(codes.AlreadyExists, "volume %s exists and does not fit: %s", rec.ID, problem)
}

func (v *volumes) createNew(ctx context.Context, id record.ID, p plan) (record.Volume, error) {
	if !p.here {
		return record.Volume{}, refuse(codes.ResourceExhausted,
			"this driver makes volumes on node %s only, which is not in the accessibility requirements", v.node)
	}
	if _, err := os.Lstat(v.dir(id.Key)); !errors.Is(err, fs.ErrNotExist) {
		// Somebody's data whose record was lost. It is neither handed out as
		// new nor taken back with a creation that fails.
		return record.Volume{}, refuse(codes.FailedPrecondition, "%s is there without a record; move it away", v.dir(id.Key))
	}
	rec := record.Volume{ID: id.String(), Name: p.name, State: record.Creating, Content: record.Directory}
	if p.size.wanted {
		fsType := p.fsType
		if fsType == "" {
			fsType = filesystem.Types()[0]
		}
		capacity, err := p.size.choose(fsType)
		if err != nil {
			return rec, err
		}
		if err := v.provides(fsType, capacity); err != nil {
			return rec, err
		}
		rec.Content = record.Image
		rec.Capacity = capacity
		rec.FileSystem = &record.FileSystem{Type: string(fsType), UUID: newUUID()}
	}
	if err := v.put(rec); err != nil {
		return rec, err
	}
	v.passed(createRecorded)
	made, err := v.finishCreate(rec)
	if err != nil {
		// Nobody knows the volume yet, so what was begun can be taken back. If
		// even that fails, the record stays for the next call or start.
		err = errors.Join(err, v.finishDelete(context.WithoutCancel(ctx), rec))
		return rec, err
	}
	v.log.Info("volume created", "volume", made.ID, "name", made.Name, "content", made.Content, "capacity", made.Capacity)
	return made, nil
}

// provides reports whether this node can make such an image now.
func (v *volumes) provides(fsType filesystem.Type, capacity int64) error {
	if err := v.tools.Ready(fsType); err != nil {
		return refuse(codes.FailedPrecondition, "%v", err)
	}
	available, err := v.available()
	if err != nil {
		return err
	}
	if capacity > available {
		return refuse(codes.ResourceExhausted, "%d bytes are asked for, and node %s has %d left", capacity, v.node, available)
	}
	return nil
}

// available is the space that is left for volumes, in bytes.
func (v *volumes) available() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(v.root, &st); err != nil {
		return 0, fmt.Errorf("look at free space of %s: %w", v.root, err)
	}
	return blocks(st.Bavail, st.Frsize), nil
}

// finishCreate makes the content of a recorded volume, whatever of it is
// already there.
func (v *volumes) finishCreate(rec record.Volume) (record.Volume, error) {
	if err := v.makeContent(rec); err != nil {
		switch {
		case errors.Is(err, unix.EFBIG):
			return rec, refuse(codes.OutOfRange, "make volume %s: the node's file system cannot hold a file of %d bytes", rec.ID, rec.Capacity)
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
			return rec, refuse(codes.ResourceExhausted, "make volume %s: %v", rec.ID, err)
		}
		return rec, fmt.Errorf("make volume %s: %w", rec.ID, err)
	}
	v.passed(createMade)
	rec.State = record.Ready
	return rec, v.put(rec)
}

func (v *volumes) makeContent(rec record.Volume) error {
	key := keyOf(rec)
	if err := os.MkdirAll(v.dir(key), 0o700); err != nil {
		return err
	}
	switch rec.Content {
	case record.Directory:
		if err := os.MkdirAll(v.data(key), 0o755); err != nil {
			return err
		}
		// As mkfs makes the top of a file system, whatever the umask is.
		if err := os.Chmod(v.data(key), 0o755); err != nil {
			return err
		}
	case record.Image:
		if err := makeImage(v.image(key), rec.Capacity); err != nil {
			return err
		}
	}
	return errors.Join(record.SyncDir(v.dir(key)), record.SyncDir(filepath.Dir(v.dir(key))))
}

// makeImage makes a sparse file. One that is there was left by a call that was
// cut off, and holds nothing yet.
func makeImage(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Sync(), f.Close())
}

// newUUID is a random UUID (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
