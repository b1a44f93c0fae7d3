// Package loop attaches image files to loop devices, and finds the device that
// an image is attached to.
//
// It owns the kernel's loop table as this driver sees it. It never remembers
// anything: whether an image is attached is asked of the kernel every time,
// and a device is known by the inode behind it, never by a name or a number
// that another process may have been given meanwhile.
//
// Invariant: a device that is to be mounted is attached with
// LO_FLAGS_AUTOCLEAR, so the kernel itself detaches it when the last opener or
// mount lets go. A process that is killed between attaching and mounting leaves
// nothing behind, and an unmount by anybody frees the device. Only what is
// handed out as a block device stays attached until Release.
package loop

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	control = "/dev/loop-control"
	devices = "/dev"
	// table lists the devices that are attached, without opening any.
	table = "/sys/block/loop*/loop/backing_file"

	// deletedMark is what the kernel writes behind the name of a file that is
	// there no more.
	deletedMark = " (deleted)"

	// attempts bounds the race for a free device with other processes.
	attempts = 64
	// patience is how long Release waits for others to let go of a device: a
	// udev rule that looks at it, an unmount that is still on its way.
	patience = 5 * time.Second
	interval = 20 * time.Millisecond
)

// ErrBusy is answered when a device stays attached because something else
// still holds it, for instance a mount in another mount namespace.
var ErrBusy = errors.New("something else still holds it")

// Device is an attached loop device, held open. While it is open the kernel
// does not detach it.
type Device struct {
	Path         string
	Major, Minor int

	file *os.File
}

// Close lets go of the device. If nothing else holds it, that detaches it.
func (d *Device) Close() error { return d.file.Close() }

// Sync brings what was written to the device to the image, and the image to
// the disk.
func (d *Device) Sync() error {
	if err := d.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", d.Path, err)
	}
	return nil
}

// Resize gives the device the size that its image has become.
func (d *Device) Resize() error {
	if err := unix.IoctlSetInt(int(d.file.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return fmt.Errorf("resize %s: %w", d.Path, err)
	}
	return nil
}

// SetReadOnly makes the kernel refuse writes through the device, or take them.
// What is open for writing already stays so.
func (d *Device) SetReadOnly(on bool) error {
	value := 0
	if on {
		value = 1
	}
	if err := unix.IoctlSetPointerInt(int(d.file.Fd()), unix.BLKROSET, value); err != nil {
		return fmt.Errorf("make %s read-only (%v): %w", d.Path, on, err)
	}
	return nil
}

// Find opens the device that the image is attached to. An image that was
// removed behind the driver's back may still be: the kernel keeps it until the
// device is detached, and shows its name.
func Find(image string) (d *Device, found bool, err error) {
	var want unix.Stat_t
	err = unix.Stat(image, &want)
	removed := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
	if err != nil && !removed {
		return nil, false, fmt.Errorf("look at image %s: %w", image, err)
	}
	attached, err := filepath.Glob(table)
	if err != nil {
		return nil, false, fmt.Errorf("list loop devices: %w", err)
	}
	// Opening a device disturbs whoever detaches it at that moment, so only
	// those are opened that can be ours by the end of their path. The start
	// differs where the driver runs under another root.
	tail := filepath.Join(filepath.Base(filepath.Dir(image)), filepath.Base(image))
	if removed {
		tail = image + deletedMark
	}
	for _, entry := range attached {
		backing, err := os.ReadFile(entry)
		if err != nil || !strings.HasSuffix(strings.TrimSpace(string(backing)), tail) {
			continue // it is another's, or was detached just now
		}
		d, err := open(filepath.Base(filepath.Dir(filepath.Dir(entry))))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		if removed || d.backedBy(&want) {
			return d, true, nil
		}
		_ = d.Close()
	}
	return nil, false, nil
}

// Holder is what keeps a device attached.
type Holder int

// The holders.
const (
	// User: whoever has it open or mounted; the kernel detaches it with the last.
	User Holder = iota
	// Nobody: it stays attached until Release, open or not.
	Nobody
)

// Attach attaches the image to a free device. The caller has made sure that it
// is not attached yet: two devices on one image would corrupt it.
func Attach(image string, holder Holder) (*Device, error) {
	backing, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open image: %w", err)
	}
	defer backing.Close()
	ctl, err := os.OpenFile(control, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open loop control: %w", err)
	}
	defer ctl.Close()
	for range attempts {
		number, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		d, err := open(fmt.Sprintf("loop%d", number))
		if err != nil {
			return nil, err
		}
		err = d.configure(backing, holder)
		if err == nil {
			// Read-only is the device's, and outlives what it was attached to.
			err = d.SetReadOnly(false)
		}
		if err == nil {
			return d, nil
		}
		_ = d.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("attach %s to %s: %w", image, d.Path, err)
		}
		// Another process was faster: ask for the next one.
	}
	return nil, fmt.Errorf("attach %s: no free loop device after %d attempts", image, attempts)
}

// Release detaches every device that the image is attached to, and returns nil
// when the kernel shows none. The error is ErrBusy if something holds one.
func Release(ctx context.Context, image string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		d, found, err := Find(image)
		if err != nil || !found {
			return err
		}
		// The next image on the device may be another program's.
		if err := errors.Join(d.SetReadOnly(false), d.detach()); err != nil {
			return err
		}
		if d, found, err = Find(image); err != nil || !found {
			return err
		}
		_ = d.Close()
		select {
		case <-ctx.Done():
			return fmt.Errorf("detach %s: %w", d.Path, ErrBusy)
		case <-tick.C:
		}
	}
}

func open(name string) (*Device, error) {
	path := filepath.Join(devices, name)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open loop device: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("look at %s: %w", path, err)
	}
	return &Device{
		Path:  path,
		Major: int(unix.Major(st.Rdev)),
		Minor: int(unix.Minor(st.Rdev)),
		file:  f,
	}, nil
}

// backedBy reports whether the open device is attached to that very inode.
// Since the device is held open, the answer stays true until it is closed.
func (d *Device) backedBy(image *unix.Stat_t) bool {
	info, err := unix.IoctlLoopGetStatus64(int(d.file.Fd()))
	return err == nil && info.Device == image.Dev && info.Inode == image.Ino
}

// configure attaches in one step (LOOP_CONFIGURE, Linux 5.8), so there is no
// moment at which a device is attached without its flags.
func (d *Device) configure(backing *os.File, holder Holder) error {
	config := unix.LoopConfig{Fd: uint32(backing.Fd())} //nolint:gosec // a descriptor is small
	if holder == User {
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
	}
	// For people who run losetup; the kernel itself does not use the name.
	copy(config.Info.File_name[:len(config.Info.File_name)-1], backing.Name())
	return unix.IoctlLoopConfigure(int(d.file.Fd()), &config)
}

// detach asks the kernel to let the device go, now or with its last holder,
// and closes it.
func (d *Device) detach() error {
	defer d.Close()
	err := unix.IoctlSetInt(int(d.file.Fd()), unix.LOOP_CLR_FD, 0)
	if err != nil && !errors.Is(err, unix.ENXIO) && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("detach %s: %w", d.Path, err)
	}
	return nil
}
