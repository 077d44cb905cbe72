package main

import "golang.org/x/sys/unix"

// The requests that read and change the settings of a terminal.
const (
	getTermios = unix.TCGETS
	setTermios = unix.TCSETS
)
