package ownership

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Through lets a user go through a directory that is closed to others, to what
// they know the name of there, by an entry in its ACL (acl(5)). It is one call at
// a time for one directory.
func Through(dir string, uid int) error {
	if err := through(dir, uid); err != nil {
		return fmt.Errorf("let user %d through %s: %w", uid, dir, err)
	}
	return nil
}

func through(dir string, uid int) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&search != 0 || int(st.Uid) == uid {
		return nil
	}
	const attribute = "system.posix_acl_access"
	buf := make([]byte, 64<<10) // no attribute is longer
	n, err := unix.Fgetxattr(fd, attribute, buf)
	var list acl
	switch {
	case errors.Is(err, unix.ENODATA):
		list = aclOf(st.Mode)
	case err != nil:
		return err
	default:
		if list, err = parseACL(buf[:n]); err != nil {
			return err
		}
	}
	if !list.letIn(uint32(uid)) { //nolint:gosec // the kernel's are no larger
		return nil
	}
	return unix.Fsetxattr(fd, attribute, list.bytes(), 0)
}

// Of an ACL, as linux/posix_acl_xattr.h has it.
const (
	aclVersion = 2
	userObj    = 0x01
	userTag    = 0x02
	groupObj   = 0x04
	maskTag    = 0x10
	otherTag   = 0x20
	noID       = 0xffffffff
	search     = 0o1
	allRights  = 0o7
)

// entry is one of an ACL.
type entry struct {
	tag, rights uint16
	id          uint32
}

type acl []entry

// aclOf is what a mode says.
func aclOf(mode uint32) acl {
	right := func(shift int) uint16 { return uint16(mode >> shift & allRights) }
	return acl{{userObj, right(6), noID}, {groupObj, right(3), noID}, {otherTag, right(0), noID}}
}

func parseACL(b []byte) (acl, error) {
	const head, size = 4, 8
	if len(b) < head || len(b)%size != head || binary.LittleEndian.Uint32(b) != aclVersion {
		return nil, fmt.Errorf("its ACL of %d bytes is of an unknown kind", len(b))
	}
	var list acl
	for b = b[head:]; len(b) > 0; b = b[size:] {
		list = append(list, entry{
			tag: binary.LittleEndian.Uint16(b), rights: binary.LittleEndian.Uint16(b[2:]), id: binary.LittleEndian.Uint32(b[4:]),
		})
	}
	return list, nil
}

// letIn gives a user the right to search, and reports whether that is a change.
func (l *acl) letIn(uid uint32) (changed bool) {
	give := func(tag uint16, id uint32, otherwise uint16) {
		i := slices.IndexFunc(*l, func(e entry) bool { return e.tag == tag && e.id == id })
		if i < 0 {
			*l = append(*l, entry{tag: tag, id: id, rights: otherwise})
			i, changed = len(*l)-1, true
		}
		if (*l)[i].rights&search == 0 {
			(*l)[i].rights |= search
			changed = true
		}
	}
	give(userTag, uid, 0)
	group := uint16(0) // a mask that takes nothing from the group
	for _, e := range *l {
		if e.tag == groupObj {
			group = e.rights
		}
	}
	give(maskTag, noID, group)
	slices.SortFunc(*l, func(a, b entry) int { return cmp.Or(cmp.Compare(a.tag, b.tag), cmp.Compare(a.id, b.id)) })
	return changed
}

func (l acl) bytes() []byte {
	b := binary.LittleEndian.AppendUint32(nil, aclVersion)
	for _, e := range l {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.rights)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}
