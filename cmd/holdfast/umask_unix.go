//go:build unix

package main

import "syscall"

// ownFiles has every file that the process makes from now on readable by its user alone,
// those of libraries included, which ask for 0644.
func ownFiles() { syscall.Umask(0o077) }
