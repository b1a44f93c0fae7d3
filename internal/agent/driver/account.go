package driver

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/moby/sys/user"

	"github.com/berth-dev/berth/internal/agent/driver/executor"
)

// Where the host keeps its users. A directory service's are not found: a task
// must start when the network is down.
const (
	passwdFile = "/etc/passwd"
	groupFile  = "/etc/group"
)

// account is a user of the host.
type account struct {
	executor.User
	name, home string
}

// lookUpAccount finds name, uid, name:group or uid:gid among the host's users.
// A uid that the host does not know gets the gid of the same number: never 0,
// because that is root's.
func lookUpAccount(spec string) (account, error) {
	const none = -1
	found, err := user.GetExecUserPath(spec, &user.ExecUser{Uid: none, Gid: none, Home: "/"}, passwdFile, groupFile)
	if err != nil {
		return account{}, fmt.Errorf("look up user %q: %w", spec, err)
	}
	if found.Uid == none {
		return account{}, fmt.Errorf("look up user %q: it names no user", spec)
	}
	if found.Gid == none {
		found.Gid = found.Uid
	}
	a := account{
		User: executor.User{UID: found.Uid, GID: found.Gid, Groups: found.Sgids},
		home: found.Home,
	}
	a.name = accountName(spec, found.Uid)
	return a, nil
}

// accountName is the name in spec, or the one that the host has for the uid.
func accountName(spec string, uid int) string {
	name, _, _ := strings.Cut(spec, ":")
	if _, err := strconv.Atoi(name); err != nil {
		return name
	}
	if u, err := user.LookupUid(uid); err == nil {
		return u.Name
	}
	return name
}

// nobody is the account of tasks that ask for none.
func nobody() account {
	if a, err := lookUpAccount("nobody"); err == nil {
		return a
	}
	const id = 65534 // what the kernel calls the overflow uid
	return account{User: executor.User{UID: id, GID: id}, name: "nobody", home: "/"}
}

// self is the account that the agent runs as.
func self() account {
	if a, err := lookUpAccount(strconv.Itoa(os.Geteuid())); err == nil {
		return a
	}
	return account{User: executor.User{UID: os.Geteuid(), GID: os.Getegid()}, home: "/"}
}
