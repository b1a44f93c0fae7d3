package localdriver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/berth-dev/berth/internal/localdriver/filesystem"
	"github.com/berth-dev/berth/internal/localdriver/loop"
	"github.com/berth-dev/berth/internal/localdriver/mount"
	"github.com/berth-dev/berth/internal/localdriver/record"
)

// stage makes a volume visible at its staging path.
func (v *volumes) stage(ctx context.Context, id string, want record.Staging) error {
	rec, end, err := v.begin(id)
	if err != nil {
		return err
	}
	defer end()
	if rec.State != record.Ready {
		return refuse(codes.NotFound, "volume %s is %s", rec.ID, rec.State)
	}
	options, err := usable(rec, want.Use)
	if err != nil {
		return err
	}
	if want.Path, err = v.resolve(want.Path); err != nil {
		return err
	}
	if st, err := os.Stat(want.Path); err != nil {
		return refuse(codes.FailedPrecondition, "staging path cannot be used: %v", err)
	} else if !st.IsDir() {
		return refuse(codes.FailedPrecondition, "staging path %s is there and is no directory", want.Path)
	}
	seen, err := v.look(rec)
	if err != nil {
		return err
	}
	// A record without a single mount is what a crash left of an earlier call;
	// it binds nobody.
	inUse := len(seen.mounts) > 0 || rec.Content == record.Block && seen.attached
	if rec.Staging != nil && inUse && !rec.Staging.Equal(want) {
		return refuse(codes.AlreadyExists, "volume %s is already staged at %s, with other arguments than these at %s",
			rec.ID, rec.Staging.Path, want.Path)
	}
	m, err := seen.at(want.Path)
	if err != nil {
		return err
	}
	if rec.Staging == nil && m == nil && len(seen.mounts) > 0 {
		return refuse(codes.AlreadyExists, "volume %s is mounted at %s already", rec.ID, seen.mounts[0].Mountpoint)
	}
	if rec.Staging != nil && v.staged(rec, seen, m, options) {
		return nil
	}
	rec.Staging = &want
	if err := v.put(rec); err != nil {
		return err
	}
	v.passed(stageRecorded)
	if err := v.mountStaging(ctx, &rec, m != nil, options); err != nil {
		return v.abandonStaging(ctx, rec, fmt.Errorf("stage volume %s: %w", rec.ID, err))
	}
	v.log.Info("volume staged", "volume", rec.ID, "path", want.Path)
	return nil
}

// staged reports whether nothing is left to be done for the staging that the
// record has.
func (v *volumes) staged(rec record.Volume, seen sight, m *mountinfo.Info, options mount.Options) bool {
	if rec.Content == record.Block {
		return seen.attached
	}
	return m != nil && mount.Matches(m, options.Flags&mount.PerMount) && rec.Staging.Group == "" &&
		(rec.FileSystem == nil || !rec.FileSystem.Grow)
}

// usable reads how the orchestrator wants to use a volume, and reports whether
// this volume can be used like that.
func usable(rec record.Volume, use record.Use) (mount.Options, error) {
	options, err := mount.Parse(use.MountFlags)
	if err != nil {
		return options, refuse(codes.InvalidArgument, "%v", err)
	}
	if use.Block != (rec.Content == record.Block) {
		return options, refuse(codes.FailedPrecondition, "volume %s is a %s: block and mount access do not mix", rec.ID, rec.Content)
	}
	if problem := fsMismatch(rec.Body, filesystem.Type(use.FSType)); problem != "" {
		return options, refuse(codes.FailedPrecondition, "volume %s cannot be used like that: %s, it is a %s", rec.ID, problem, kindOf(rec.Body))
	}
	if bad, ok := options.ForDirectory(); !ok && !rec.Sparse() {
		return options, refuse(codes.FailedPrecondition,
			"volume %s is a plain directory without a file system of its own, and cannot have the mount flag %q", rec.ID, bad)
	}
	return options, nil
}

// kindOf says what a volume is, for people.
func kindOf(b record.Body) string {
	switch {
	case b.FileSystem != nil:
		return b.FileSystem.Type + " " + string(b.Content)
	case b.Content == record.Directory:
		return "plain directory"
	}
	return string(b.Content)
}

// mountStaging brings about what the record says, from whatever the kernel
// already has of it, and looks whether it is there.
func (v *volumes) mountStaging(ctx context.Context, rec *record.Volume, mounted bool, options mount.Options) error {
	if rec.Content == record.Block {
		return v.attachBlock(*rec)
	}
	path := rec.Staging.Path
	if !mounted {
		var err error
		if rec.Content == record.Image {
			err = v.mountImage(ctx, rec, options)
		} else {
			err = mount.Bind(v.data(keyOf(*rec)), path)
		}
		if err != nil {
			return err
		}
		v.passed(stageMounted)
	}
	if options.Flags&unix.MS_RDONLY == 0 {
		// Before it becomes what was asked for: a failure here is repeated.
		if err := giveToGroup(ctx, path, rec.Staging.Group); err != nil {
			return err
		}
		if err := v.growStaged(ctx, rec); err != nil {
			return err
		}
	}
	return v.setFlags(*rec, path, options.Flags&mount.PerMount)
}

// growStaged grows the file system of an image where it is staged, if it has
// to and can.
func (v *volumes) growStaged(ctx context.Context, rec *record.Volume) error {
	if rec.FileSystem == nil || !rec.FileSystem.Grow || !filesystem.Type(rec.FileSystem.Type).GrowsMounted() {
		return nil
	}
	device, found, err := loop.Find(v.image(keyOf(*rec)))
	if err != nil || !found {
		return err
	}
	defer device.Close()
	if err := device.Resize(); err != nil {
		return err
	}
	return v.growMounted(ctx, rec, device, rec.Staging.Path)
}

// setFlags gives the volume's mount at path its flags if it has others, and
// fails if there is no such mount.
func (v *volumes) setFlags(rec record.Volume, path string, flags uintptr) error {
	for range 2 {
		seen, err := v.look(rec)
		if err != nil {
			return err
		}
		m, err := seen.at(path)
		if err != nil {
			return err
		}
		if m == nil {
			return fmt.Errorf("the mount at %s is gone again", path)
		}
		if mount.Matches(m, flags) {
			return nil
		}
		if err := mount.Remount(path, flags); err != nil {
			return err
		}
	}
	return fmt.Errorf("the mount at %s does not take its flags", path)
}

// mountImage attaches, formats if that was never done, and mounts. The device
// is held until the mount holds it; should the driver die before, the kernel
// detaches it.
func (v *volumes) mountImage(ctx context.Context, rec *record.Volume, options mount.Options) error {
	image := v.image(keyOf(*rec))
	if err := enlarge(image, rec.Capacity); err != nil {
		return err
	}
	device, found, err := loop.Find(image)
	if err == nil && !found {
		device, err = loop.Attach(image, loop.User)
	}
	if err != nil {
		return err
	}
	defer device.Close()
	v.passed(stageAttached)
	if err := v.format(ctx, rec, device); err != nil {
		return err
	}
	if err := v.growUnmounted(ctx, rec, device); err != nil {
		return err
	}
	if rec.Source != nil && rec.FileSystem.Type == string(filesystem.XFS) {
		// A copy has the UUID of its original, and both may be mounted at once.
		options.Data = append(slices.Clone(options.Data), "nouuid")
	}
	err = mount.FileSystem(device.Path, rec.Staging.Path, rec.FileSystem.Type, options)
	if errors.Is(err, unix.EINVAL) && len(options.Data) > 0 {
		return refuse(codes.InvalidArgument, "%v; perhaps %s does not know %s", err, rec.FileSystem.Type, strings.Join(options.Data, ","))
	}
	return err
}

// format makes the file system of a new image. Two things must agree that
// there is none: the record, and the bytes on the device.
func (v *volumes) format(ctx context.Context, rec *record.Volume, device *loop.Device) error {
	if rec.FileSystem.Formatted {
		return nil
	}
	fsType, uuid := filesystem.Type(rec.FileSystem.Type), rec.FileSystem.UUID
	if err := v.tools.Ready(fsType); err != nil {
		return refuse(codes.FailedPrecondition, "%v", err)
	}
	found, err := v.tools.Probe(ctx, device.Path)
	if err != nil {
		return err
	}
	// Our own UUID and no record of success: mkfs was cut off, or the note of
	// its success. It was never mounted, so nothing is lost by doing it again.
	again := found.UUID == uuid
	if found.What != "" && !again {
		return refuse(codes.FailedPrecondition,
			"image %s holds something (%s) that this driver did not put there, and it is not formatted over; move it away or wipe it",
			v.image(keyOf(*rec)), found.What)
	}
	if err := v.tools.Make(ctx, fsType, device.Path, uuid, again); err != nil {
		return err
	}
	if err := device.Sync(); err != nil {
		return err
	}
	v.passed(stageFormatted)
	rec.FileSystem.Formatted = true
	if err := v.put(*rec); err != nil {
		return err
	}
	v.passed(stageNoted)
	return nil
}

// abandonStaging takes back a staging that failed, so that the volume is not
// left looking staged. What cannot be taken back stays recorded.
func (v *volumes) abandonStaging(ctx context.Context, rec record.Volume, cause error) error {
	seen, err := v.look(rec)
	if err != nil {
		return errors.Join(cause, err)
	}
	for target := range rec.Publications {
		if seen.shows(target) {
			return cause // it is still published
		}
	}
	return errors.Join(cause, v.dismantle(context.WithoutCancel(ctx), rec))
}

// unstage undoes stage. A volume that is not staged there is unstaged.
func (v *volumes) unstage(ctx context.Context, id, path string) error {
	rec, end, err := v.begin(id)
	if err != nil {
		return err
	}
	defer end()
	if path, err = v.resolveOld(path); err != nil {
		return err
	}
	seen, err := v.look(rec)
	if err != nil {
		return err
	}
	m, err := seen.at(path)
	if err != nil {
		return err
	}
	if m == nil && (rec.Staging == nil || rec.Staging.Path != path) {
		return nil
	}
	for target := range rec.Publications {
		if target == path {
			return refuse(codes.InvalidArgument, "%s is a target path of volume %s; unpublish it", path, rec.ID)
		}
		if seen.shows(target) {
			return refuse(codes.FailedPrecondition, "volume %s is still published at %s", rec.ID, target)
		}
	}
	rec.Staging = &record.Staging{Path: path}
	if err := v.dismantle(ctx, rec); err != nil {
		return fmt.Errorf("unstage volume %s: %w", rec.ID, err)
	}
	v.log.Info("volume unstaged", "volume", rec.ID, "path", path)
	return nil
}

// dismantle unmounts the staging path, detaches the image, and then forgets
// both.
func (v *volumes) dismantle(ctx context.Context, rec record.Volume) error {
	if err := v.unmountAll(rec, rec.Staging.Path); err != nil {
		return err
	}
	v.passed(unstageUnmounted)
	seen, err := v.look(rec)
	if err != nil {
		return err
	}
	if len(seen.mounts) > 0 {
		return refuse(codes.FailedPrecondition, "volume %s is still mounted at %s", rec.ID, seen.mounts[0].Mountpoint)
	}
	if rec.Sparse() {
		err := loop.Release(ctx, v.image(keyOf(rec)))
		if errors.Is(err, loop.ErrBusy) {
			return refuse(codes.FailedPrecondition, "%v; perhaps a mount in another mount namespace", err)
		}
		if err != nil {
			return err
		}
	}
	v.passed(unstageDetached)
	rec.Staging, rec.Publications = nil, nil
	return v.put(rec)
}
