//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// hideTyping has a terminal not show what is typed until restore is called. Both are done
// when they return, so that who is interrupted in between leaves the terminal as it was.
func hideTyping(terminal *os.File) (restore func() error, err error) {
	fd := int(terminal.Fd())
	was, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return nil, err
	}
	hidden := *was
	hidden.Lflag &^= unix.ECHO
	hidden.Lflag |= unix.ICANON | unix.ISIG
	hidden.Iflag |= unix.ICRNL
	if err := unix.IoctlSetTermios(fd, setTermios, &hidden); err != nil {
		return nil, err
	}
	return func() error { return unix.IoctlSetTermios(fd, setTermios, was) }, nil
}
