package localdriver

import (
	"context"
	"strconv"

	"google.golang.org/grpc/codes"

	"github.com/berth-dev/berth/internal/ownership"
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

// giveToGroup gives everything below top to a group, and what will be made there
// too: new entries inherit the group by the setgid bit and its rights by a default
// ACL, whatever the umask of who makes them.
//
// No file system that this driver makes has a mount option for it (CSI spec,
// VOLUME_MOUNT_GROUP), so it is done to the files.
func giveToGroup(ctx context.Context, top, group string) error {
	gid, err := readGroup(group)
	if err != nil || gid < 0 {
		return err
	}
	_, err = ownership.Give(ctx, ownership.Order{Dir: top, Group: gid, Inherit: true})
	return err
}
