package filesystem

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// FreezeLimit is how long a file system stays frozen at most, whatever becomes
// of who froze it.
const FreezeLimit = 15 * time.Second

// guard freezes a file system, says so, and thaws it when its input ends or
// its time is up: when the driver has what it wanted, and when the driver is
// no more. The status of timeout(1) tells which.
//
// It stays inside, so nobody unmounts what is frozen, and whoever detaches it
// does not take it out of the guard's reach.
const guard = `
trap "" HUP INT TERM
cd "$1" && fsfreeze --freeze . || exit 1
echo frozen
timeout "$2" cat >/dev/null
status=$?
fsfreeze --unfreeze . || status=1
exit $status`

// Freeze stops all writes to the file system mounted at path, with everything
// that was written on its device. thaw lets them go on, and fails if they went
// on before it was called.
//
// The kernel keeps a file system frozen when the process that froze it is gone.
// So a second process watches the first: it thaws when the driver dies.
func (t Tools) Freeze(ctx context.Context, path string) (thaw func() error, err error) {
	if _, err := t.find("fsfreeze"); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	//nolint:noctx // a guard that is killed thaws nothing; its time is bounded by itself
	cmd := exec.Command("/bin/sh", "-c", guard, "sh", path, strconv.Itoa(int(FreezeLimit.Seconds())))
	cmd.Env = []string{"PATH=" + strings.Join(t.Dirs, ":")}
	// What is sent to the driver's group at a terminal must not reach the guard.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var complaints strings.Builder
	cmd.Stderr = &complaints
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("freeze %s: %w", path, err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("freeze %s: %w", path, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("freeze %s: %w", path, err)
	}
	// fail undoes what a guard that failed, or was killed, may have done.
	fail := func(what string, err error) error {
		err = errors.Join(err, Thaw(path))
		return fmt.Errorf("%s %s: %w: %s", what, path, err, firstLine([]byte(complaints.String())))
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "frozen\n" {
		return nil, fail("freeze", errors.Join(err, cmd.Wait())) // and nothing that the guard has started runs any more
	}
	return func() error {
		err := in.Close()
		if waited := cmd.Wait(); err != nil || waited != nil {
			return fail("thaw", errors.Join(err, waited))
		}
		return nil
	}, nil
}

// Numbers of linux/fs.h, which golang.org/x/sys does not have.
const ioctlThaw = 0xc0045878 // FITHAW

// Thaw lets writes go on that a guard which was killed has left stopped. What
// is not frozen stays as it is.
func Thaw(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("thaw %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.IoctlSetInt(fd, ioctlThaw, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("thaw %s: %w", path, err)
	}
	return nil
}
