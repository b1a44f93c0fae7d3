package localdriver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/berth-dev/berth/internal/localdriver/clone"
	"github.com/berth-dev/berth/internal/localdriver/filesystem"
	"github.com/berth-dev/berth/internal/localdriver/loop"
	"github.com/berth-dev/berth/internal/localdriver/record"
	"github.com/berth-dev/berth/internal/tree"
)

// frozenCopy is how long the writers of a volume may be made to wait for a
// copy of it. It ends well before the guard thaws by itself.
const frozenCopy = filesystem.FreezeLimit - 5*time.Second

// original is what is copied: a volume, or a snapshot of one.
type original struct {
	id   string
	body record.Body
	dir  string
	// volume is nil for a snapshot.
	volume *record.Volume
}

// original reads the record of what is to be copied.
func (v *volumes) original(s record.Source) (original, error) {
	if s.Snapshot != "" {
		rec, err := v.findSnapshot(s.Snapshot)
		if err != nil {
			return original{}, err
		}
		id, _ := record.ParseID(rec.ID)
		return original{id: rec.ID, body: rec.Body, dir: v.snapshotDir(id.Key)}, nil
	}
	id, ok := record.ParseID(s.Volume)
	if !ok {
		return original{}, refuse(codes.NotFound, "volume %q does not exist", s.Volume)
	}
	rec, err := v.find(id)
	if err == nil && rec.State != record.Ready {
		err = refuse(codes.NotFound, "volume %s is %s", rec.ID, rec.State)
	}
	return original{id: rec.ID, body: rec.Body, dir: v.dir(id.Key), volume: &rec}, err
}

// hold keeps what is to be copied as it is, and where it is, until release.
func (v *volumes) hold(s record.Source) (o original, release func(), err error) {
	if id, ok := record.ParseID(s.Snapshot); ok {
		release, err = v.snapshotCalls.share(id.Key)
	} else if id, ok := record.ParseID(s.Volume); ok {
		release, err = v.calls.begin(id.Key)
	} else {
		release = func() {}
	}
	if err != nil {
		return o, nil, err
	}
	if o, err = v.original(s); err != nil {
		release()
		return o, nil, err
	}
	return o, release, nil
}

// copyInto makes dir hold what the source holds, and returns what it consists
// of. What an earlier copy that was cut off has left there goes first.
func (v *volumes) copyInto(ctx context.Context, s record.Source, want record.Body, dir string, p *clone.Progress) (record.Body, error) {
	from, release, err := v.hold(s)
	if err != nil {
		return want, err
	}
	defer release()
	body := record.Body{
		Content:    from.body.Content,
		Capacity:   max(want.Capacity, from.body.Capacity), // it may have grown since
		FileSystem: copiedFileSystem(from.body, max(want.Capacity, from.body.Capacity)),
	}
	if err := v.copyContent(ctx, from, dir, p); err != nil {
		return body, fmt.Errorf("copy %s: %w", from.id, err)
	}
	if body.Sparse() {
		return body, enlarge(filepath.Join(dir, imageName), body.Capacity)
	}
	return body, nil
}

// copyContent copies the original into dir, as it was at one moment.
func (v *volumes) copyContent(ctx context.Context, from original, dir string, p *clone.Progress) error {
	if p == nil {
		p = new(clone.Progress) // nobody asks
	}
	source, target := filepath.Join(from.dir, dataName), filepath.Join(dir, dataName)
	switch from.body.Content {
	case record.Image, record.Block:
		return v.copySparse(ctx, from, filepath.Join(dir, imageName), p)
	case record.Subvolume:
		if err := v.removeSubvolume(ctx, target); err != nil {
			return err
		}
		// Of a snapshot nobody may change a thing; the kernel copies both alike.
		return v.tools.CopySubvolume(ctx, source, target, filepath.Dir(dir) == filepath.Join(v.root, snapshotsDir))
	case record.Directory:
		if err := v.standsStill(from); err != nil {
			return err
		}
		if err := tree.Remove(ctx, dir, dataName); err != nil {
			return err
		}
		if err := v.tools.CopyTree(ctx, source, target); err != nil {
			return err
		}
		v.passed(copyMade)
		return syncFileSystem(dir)
	}
	return nil
}

// standsStill refuses a directory that somebody may write to: copied file by
// file, it would be of no moment at all.
func (v *volumes) standsStill(from original) error {
	if from.volume == nil {
		return nil
	}
	seen, err := v.look(*from.volume)
	if err != nil {
		return err
	}
	for target, p := range from.volume.Publications {
		if !p.ReadOnly && seen.shows(target) {
			return refuse(codes.FailedPrecondition,
				"volume %s is a plain directory and may be written to at %s: unpublish it there first, "+
					"or use a volume with a capacity, which can be copied at any time", from.id, target)
		}
	}
	return nil
}

// copySparse copies an image. One that is mounted is frozen for it.
func (v *volumes) copySparse(ctx context.Context, from original, target string, p *clone.Progress) error {
	source := filepath.Join(from.dir, imageName)
	var device *loop.Device
	attached := false
	if from.volume != nil {
		var err error
		if device, attached, err = loop.Find(source); err != nil {
			return err
		}
	}
	if !attached {
		return v.shareOrCopy(ctx, source, target, p)
	}
	defer device.Close()
	if from.body.Content == record.Block {
		return copyDevice(device, from.id, source, target)
	}
	seen, err := v.look(*from.volume)
	if err != nil {
		return err
	}
	if len(seen.mounts) == 0 {
		return refuse(codes.FailedPrecondition, "the image of volume %s is on %s, which this driver did not attach", from.id, device.Path)
	}
	return v.frozen(ctx, *from.volume, seen, func() error {
		ctx, cancel := context.WithTimeout(ctx, frozenCopy)
		defer cancel()
		err := v.shareOrCopy(ctx, source, target, p)
		if errors.Is(err, context.DeadlineExceeded) {
			done, total := p.Get()
			return refuse(codes.FailedPrecondition,
				"volume %s is in use, and its writers are not made to wait longer than %s: %d of %d bytes were copied by then; "+
					"unstage it for the copy, or put the driver's root on xfs or btrfs, which copy in no time", from.id, frozenCopy, done, total)
		}
		return err
	})
}

// shareOrCopy copies an image that nobody writes to.
func (v *volumes) shareOrCopy(ctx context.Context, source, target string, p *clone.Progress) error {
	shared, err := clone.Share(source, target)
	if err != nil {
		return err
	}
	if !shared {
		size, err := clone.Allocated(source)
		if err != nil {
			return err
		}
		if err := v.hasRoom(size); err != nil {
			return err
		}
		if err := clone.Copy(ctx, source, target, p); err != nil {
			return err
		}
	}
	v.passed(copyMade)
	return nil
}

// copyDevice copies the image of a block device in use, at one moment: what
// the device was told to write by then. The kernel does that where it can
// share blocks; nothing else knows how to stop writers of a block device.
func copyDevice(device *loop.Device, id, source, target string) error {
	if err := device.Sync(); err != nil {
		return err
	}
	shared, err := clone.Share(source, target)
	if err == nil && !shared {
		return refuse(codes.FailedPrecondition, "volume %s is a block device in use, and the driver's root is on a file system "+
			"that cannot share blocks (xfs and btrfs can): unstage it for the copy", id)
	}
	return err
}

// frozen runs work while nothing is written to a mounted image. Its record
// says so, for the start after a crash that takes the guard along as well.
func (v *volumes) frozen(ctx context.Context, rec record.Volume, seen sight, work func() error) error {
	path := seen.mounts[0].Mountpoint
	rec.Frozen = true
	if err := v.put(rec); err != nil {
		return err
	}
	thaw, err := v.tools.Freeze(ctx, path)
	if err == nil {
		v.passed(copyFrozen)
		err = work()
		err = errors.Join(err, thaw())
		v.passed(copyThawed)
	}
	rec.Frozen = false
	return errors.Join(err, v.put(rec))
}

// thawAll ends what a driver and its guard that were both killed have left
// frozen. It runs before the first call is served.
func (v *volumes) thawAll() error {
	for _, rec := range v.store.List() {
		if !rec.Frozen {
			continue
		}
		seen, err := v.look(rec)
		if err != nil {
			return err
		}
		if rec.Content == record.Image && len(seen.mounts) > 0 {
			if err := filesystem.Thaw(seen.mounts[0].Mountpoint); err != nil {
				return err
			}
			v.log.Warn("file system thawed that was frozen to be copied", "volume", rec.ID, "path", seen.mounts[0].Mountpoint)
		}
		rec.Frozen = false
		if err := v.store.Put(rec); err != nil {
			return err
		}
	}
	return nil
}

// removeContent removes a volume's or snapshot's directory. A subvolume goes at
// once; as a tree if it holds others.
func (v *volumes) removeContent(ctx context.Context, b record.Body, dir string) error {
	if b.Content == record.Subvolume {
		if err := v.removeSubvolume(ctx, filepath.Join(dir, dataName)); err != nil {
			v.log.Debug("subvolume is removed file by file", "path", dir, "error", err)
		}
	}
	return tree.Remove(ctx, filepath.Dir(dir), filepath.Base(dir))
}

func (v *volumes) removeSubvolume(ctx context.Context, path string) error {
	there, err := filesystem.IsSubvolume(path)
	if err != nil || !there {
		return err
	}
	return v.tools.RemoveSubvolume(ctx, path)
}

// syncFileSystem brings all of the file system that holds dir to the disk.
func syncFileSystem(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}
