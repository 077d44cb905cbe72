//go:build !linux

package main

import (
	"os"
	"syscall"
)

// childAttributes returns no attributes. Only Linux can kill a child process when its parent
// ends.
func childAttributes() *syscall.SysProcAttr { return nil }

func terminate(p *os.Process) error { return p.Signal(os.Interrupt) }
