//go:build unix

package main

import "syscall"

// ownFiles sets the umask of the process so that only its user can read files that the process
// creates. This also applies to files that libraries create with mode 0644.
func ownFiles() { syscall.Umask(0o077) }
