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
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/internal/localdriver/clone"
	"github.com/berth-dev/berth/internal/localdriver/filesystem"
	"github.com/berth-dev/berth/internal/localdriver/record"
)

// create makes a volume, or finds the one that an earlier call with the same
// name has made.
func (v *volumes) create(ctx context.Context, p plan) (record.Volume, error) {
	id := record.ID{Key: record.KeyOf(p.name), Node: v.node}
	if running := v.copies.find(v.dir(id.Key)); running != nil {
		if err := running.wait(ctx); err != nil {
			return record.Volume{}, err
		}
	}
	end, err := v.calls.begin(id.Key)
	if err != nil {
		return record.Volume{}, err
	}
	rec, fresh, err := v.begun(ctx, id, p)
	if err != nil || rec.State == record.Ready {
		end()
		return rec, err
	}
	finish := func(ctx context.Context, progress *clone.Progress) error {
		defer end()
		err := v.finishCreate(ctx, rec, progress)
		if fresh {
			err = v.takeBack(ctx, rec, err)
		}
		return err
	}
	if rec.Source == nil {
		err = finish(ctx, nil)
	} else {
		err = v.copies.start(ctx, v.dir(id.Key), finish).wait(ctx)
	}
	if err != nil {
		return rec, err
	}
	return v.find(id)
}

// begun is the record of the volume that is asked for: of one that is there,
// or, fresh, of one that is to be made.
func (v *volumes) begun(ctx context.Context, id record.ID, p plan) (rec record.Volume, fresh bool, err error) {
	rec, err = v.store.Get(id.Key)
	if err == nil && rec.State == record.Deleting {
		// Its deletion was cut off. The new volume must not find its data.
		if err := v.finishDelete(ctx, rec); err != nil {
			return rec, false, err
		}
		err = record.ErrNotFound
	}
	if errors.Is(err, record.ErrNotFound) {
		rec, err = v.beginNew(id, p)
		return rec, true, err
	}
	if err == nil {
		err = p.compatible(rec)
	}
	return rec, false, err
}

func (v *volumes) beginNew(id record.ID, p plan) (record.Volume, error) {
	if !p.here {
		return record.Volume{}, refuse(codes.ResourceExhausted,
			"this driver makes volumes on node %s only, which is not in the accessibility requirements", v.node)
	}
	if _, err := os.Lstat(v.dir(id.Key)); !errors.Is(err, fs.ErrNotExist) {
		// Somebody's data whose record was lost. It is neither handed out as
		// new nor taken back with a creation that fails.
		return record.Volume{}, refuse(codes.FailedPrecondition, "%s is there without a record; move it away", v.dir(id.Key))
	}
	rec := record.Volume{ID: id.String(), Name: p.name, State: record.Creating, Source: p.source}
	var err error
	if p.source == nil {
		rec.Body, err = p.body(v.subvolumes())
	} else {
		var from original
		if from, err = v.original(*p.source); err == nil {
			rec.Body, err = p.copyOf(from.body)
		}
	}
	if err != nil {
		return rec, err
	}
	if err := v.provides(rec.Body); err != nil {
		return rec, err
	}
	if err := v.put(rec); err != nil {
		return rec, err
	}
	v.passed(createRecorded)
	return rec, nil
}

// provides reports whether this node can make and use such a volume now.
func (v *volumes) provides(b record.Body) error {
	if b.FileSystem != nil {
		if err := v.tools.Ready(filesystem.Type(b.FileSystem.Type)); err != nil {
			return refuse(codes.FailedPrecondition, "%v", err)
		}
	}
	return v.hasRoom(b.Capacity)
}

// hasRoom reports whether this node has so many bytes left.
func (v *volumes) hasRoom(wanted int64) error {
	available, err := v.available()
	if err != nil {
		return err
	}
	if wanted > available {
		return refuse(codes.ResourceExhausted, "%d bytes are asked for, and node %s has %d left", wanted, v.node, available)
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

// subvolumes reports whether this node can make subvolumes.
func (v *volumes) subvolumes() bool { return v.btrfs && v.tools.SubvolumesReady() == nil }

// finishCreate makes the content of a recorded volume, whatever of it is
// already there.
func (v *volumes) finishCreate(ctx context.Context, rec record.Volume, progress *clone.Progress) error {
	body, err := v.makeContent(ctx, rec, progress)
	if err != nil {
		return full(fmt.Errorf("make volume %s: %w", rec.ID, err), rec.Capacity)
	}
	v.passed(createMade)
	rec.State, rec.Body = record.Ready, body
	if err := v.put(rec); err != nil {
		return err
	}
	v.log.Info("volume created", "volume", rec.ID, "name", rec.Name, "content", rec.Content, "capacity", rec.Capacity)
	return nil
}

// takeBack undoes a creation that has failed: nobody knows the volume yet. If
// even that fails, the record stays for the next call or start, as it does
// where the creation was only interrupted.
func (v *volumes) takeBack(ctx context.Context, rec record.Volume, cause error) error {
	if cause == nil || ctx.Err() != nil || status.Code(cause) == codes.Aborted {
		return cause
	}
	return errors.Join(cause, v.finishDelete(context.WithoutCancel(ctx), rec))
}

// full gives an error of a disk that has no room the code that says so.
func full(err error, capacity int64) error {
	switch {
	case errors.Is(err, unix.EFBIG):
		return refuse(codes.OutOfRange, "%v: the node's file system cannot hold a file of %d bytes", err, capacity)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return refuse(codes.ResourceExhausted, "%v", err)
	}
	return err
}

// makeContent makes what a record says, and returns what it consists of in the
// end.
func (v *volumes) makeContent(ctx context.Context, rec record.Volume, progress *clone.Progress) (record.Body, error) {
	key := keyOf(rec)
	if err := os.MkdirAll(v.dir(key), 0o700); err != nil {
		return rec.Body, err
	}
	var err error
	body := rec.Body
	if rec.Source != nil {
		body, err = v.copyInto(ctx, *rec.Source, rec.Body, v.dir(key), progress)
	} else {
		err = v.makeEmpty(ctx, rec.Body, v.dir(key))
	}
	if err != nil {
		return body, err
	}
	if body.Content == record.Subvolume && body.Capacity > 0 {
		if err := v.tools.Limit(ctx, v.data(key), body.Capacity); err != nil {
			return body, err
		}
	}
	return body, errors.Join(record.SyncDir(v.dir(key)), record.SyncDir(filepath.Dir(v.dir(key))))
}

// makeEmpty makes content with nothing in it.
func (v *volumes) makeEmpty(ctx context.Context, b record.Body, dir string) error {
	data := filepath.Join(dir, dataName)
	switch b.Content {
	case record.Image, record.Block:
		return makeImage(filepath.Join(dir, imageName), b.Capacity)
	case record.Subvolume:
		made, err := filesystem.IsSubvolume(data)
		if err == nil && !made {
			err = v.tools.MakeSubvolume(ctx, data)
		}
		if err != nil {
			return err
		}
	case record.Directory:
		if err := os.MkdirAll(data, 0o755); err != nil {
			return err
		}
	}
	// As mkfs makes the top of a file system, whatever the umask is.
	return os.Chmod(data, 0o755)
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

// enlarge gives an image that is there its size. It never makes one, and never
// takes anything from one that is larger.
func enlarge(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil && st.Size() < size {
		err = errors.Join(f.Truncate(size), f.Sync())
	}
	return errors.Join(err, f.Close())
}

// newUUID is a random UUID (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
