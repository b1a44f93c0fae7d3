package localdriver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// readGroup reads a volume_mount_group. It is a number: the names of groups
// are the workload's, and this driver does not know them.
func readGroup(group string) (gid int, err error) {
	if group == "" {
		return -1, nil
	}
	n, err := strconv.ParseUint(group, 10, 31)
	if err != nil {
		return 0, refuse(codes.InvalidArgument, "volume_mount_group is %q; give the number of a group", group)
	}
	return int(n), nil
}

// giveToGroup makes everything below top readable and writable for a group,
// and what will be made there too: new entries inherit the group by the setgid
// bit and its rights by a default ACL, whatever the umask of who makes them.
//
// No file system that this driver makes has a mount option for it (CSI spec,
// VOLUME_MOUNT_GROUP), so it is done to the files. The top comes last, and is
// how a volume is known that has it already.
func giveToGroup(top, group string) error {
	gid, err := readGroup(group)
	if err != nil || gid < 0 {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(top, &st); err != nil {
		return fmt.Errorf("give %s to group %d: %w", top, gid, err)
	}
	const forGroup = unix.S_ISGID | 0o070
	if int(st.Gid) == gid && st.Mode&forGroup == forGroup {
		return nil
	}
	err = filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == top {
			return err
		}
		return giveOne(path, entry.Type(), gid)
	})
	if err == nil {
		err = giveOne(top, fs.ModeDir, gid)
	}
	if err != nil {
		return fmt.Errorf("give %s to group %d: %w", top, gid, err)
	}
	return nil
}

func giveOne(path string, kind fs.FileMode, gid int) error {
	err := os.Lchown(path, -1, gid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // somebody removed it meanwhile
	}
	if err != nil || kind&fs.ModeSymlink != 0 {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return err
	}
	mode := st.Mode&0o7777 | 0o060
	if kind.IsDir() {
		mode |= unix.S_ISGID | 0o010
		if err := unix.Setxattr(path, "system.posix_acl_default", defaultACL(mode), 0); err != nil {
			return &os.PathError{Op: "set default ACL of", Path: path, Err: err}
		}
	}
	return unix.Fchmodat(unix.AT_FDCWD, path, mode, 0)
}

// defaultACL is an ACL (linux/posix_acl_xattr.h) by which new entries get the
// rights of their directory, and the group may write.
func defaultACL(mode uint32) []byte {
	const (
		version   = 2
		userObj   = 0x01
		groupObj  = 0x04
		other     = 0x20
		noID      = 0xffffffff
		readWrite = 0o7
	)
	acl := binary.LittleEndian.AppendUint32(nil, version)
	for _, entry := range []struct{ tag, rights uint16 }{
		{userObj, readWrite}, {groupObj, readWrite}, {other, uint16(mode & 0o7)},
	} {
		acl = binary.LittleEndian.AppendUint16(acl, entry.tag)
		acl = binary.LittleEndian.AppendUint16(acl, entry.rights)
		acl = binary.LittleEndian.AppendUint32(acl, noID)
	}
	return acl
}
