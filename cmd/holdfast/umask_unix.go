//go:build unix

package main

import "syscall"

// ownFiles sets the umask of the process so that only its user can read new files. This
// includes files of libraries that ask for the mode 0644.
func ownFiles() { syscall.Umask(0o077) }
