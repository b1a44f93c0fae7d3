package main

import (
	"os"

	"golang.org/x/sys/unix"
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
