package main

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/cli"
)

// narrow is taken for a terminal that does not know its width.
const narrow = 80

// columns answers how wide the terminal is that a file is, 0 if it is none.
func columns(f *os.File) func() int {
	return func() int {
		size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
		switch {
		case err != nil:
			return 0
		case size.Col == 0:
			return narrow
		}
		return int(size.Col)
	}
}

// terminal is a terminal that a person types on.
type terminal struct{ *os.File }

// terminalOf is the terminal that a file is, or nil.
func terminalOf(f *os.File) cli.Terminal {
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
		return nil
	}
	return terminal{f}
}

// Raw implements cli.Terminal.
func (t terminal) Raw() (restore func(), err error) {
	fd := int(t.Fd())
	was, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("look at terminal: %w", err)
	}
	raw := *was
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &raw); err != nil {
		return nil, fmt.Errorf("set terminal: %w", err)
	}
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, was) }, nil // the terminal may be gone
}

// Size implements cli.Terminal.
func (t terminal) Size() api.TerminalSize {
	size, err := unix.IoctlGetWinsize(int(t.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return api.TerminalSize{}
	}
	return api.TerminalSize{Rows: int(size.Row), Columns: int(size.Col)}
}

// Sizes implements cli.Terminal.
func (t terminal) Sizes() (sizes <-chan api.TerminalSize, stop func()) {
	changed, all, over := make(chan os.Signal, 1), make(chan api.TerminalSize), make(chan struct{})
	signal.Notify(changed, syscall.SIGWINCH)
	var around sync.WaitGroup
	around.Go(func() {
		for {
			select {
			case <-changed:
			case <-over:
				return
			}
			select {
			case all <- t.Size():
			case <-over:
				return
			}
		}
	})
	return all, func() {
		signal.Stop(changed)
		close(over)
		around.Wait()
	}
}

// signals are those that this program gets and that can be handed on.
func signals() (<-chan string, func()) {
	got, all, over := make(chan os.Signal, 4), make(chan string), make(chan struct{})
	signal.Notify(got, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	var around sync.WaitGroup
	around.Go(func() {
		for {
			select {
			case s := <-got:
				number, _ := s.(syscall.Signal) // they all are
				select {
				case all <- unix.SignalName(number):
				case <-over:
					return
				}
			case <-over:
				return
			}
		}
	})
	return all, func() {
		signal.Stop(got)
		close(over)
		around.Wait()
	}
}
