package executor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/api"
)

// openTerminal makes a terminal of the host: its master, and its other end for a
// command, which belongs to the user.
func openTerminal(user *User) (master, command *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open terminal: %w", err)
	}
	master = os.NewFile(uintptr(fd), "ptmx")
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("unlock terminal: %w", err), master.Close())
	}
	n, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("name terminal: %w", err), master.Close())
	}
	path := fmt.Sprintf("/dev/pts/%d", n)
	command, err = os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open terminal: %w", err), master.Close())
	}
	if user != nil {
		if err := command.Chown(user.UID, -1); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("give terminal to user: %w", err), master.Close(), command.Close())
		}
	}
	return master, command, nil
}

// terminal is the master of a terminal.
type terminal struct{ *os.File }

// Read implements io.Reader. That nobody has the other end open any more is the
// end.
func (t terminal) Read(p []byte) (int, error) {
	n, err := t.File.Read(p)
	if errors.Is(err, syscall.EIO) {
		err = io.EOF
	}
	return n, err
}

func (t terminal) resize(size api.TerminalSize) error {
	conn, err := t.SyscallConn()
	if err != nil {
		return fmt.Errorf("resize terminal: %w", err)
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(size.Rows), Col: uint16(size.Columns)}) //nolint:gosec // they are valid
	})
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("resize terminal: %w", err)
	}
	return nil
}

// typed is what a visitor types. Its end is the key that ends a line of input,
// for a terminal has no other: closing it would take the command's output away.
type typed struct{ terminal }

// Close implements io.Closer.
func (t typed) Close() error {
	const endOfTransmission = 4
	_, err := t.Write([]byte{endOfTransmission})
	return err
}

// consoleSocket is a pair of sockets over which a command's side hands out the
// master of the terminal that it made in its own root.
func consoleSocket() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make socket for terminal: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "console"), os.NewFile(uintptr(fds[1]), "console"), nil
}

// receiveTerminal takes the master out of the socket.
func receiveTerminal(socket *os.File) (terminal, error) {
	name, rights := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(int(socket.Fd()), name, rights, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return terminal{}, fmt.Errorf("receive terminal: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		return terminal{}, fmt.Errorf("receive terminal: %d messages (%w)", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return terminal{}, fmt.Errorf("receive terminal: %d descriptors (%w)", len(fds), err)
	}
	// Without it, a read could not be given a limit.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return terminal{}, errors.Join(fmt.Errorf("receive terminal: %w", err), unix.Close(fds[0]))
	}
	return terminal{os.NewFile(uintptr(fds[0]), "ptmx")}, nil
}
