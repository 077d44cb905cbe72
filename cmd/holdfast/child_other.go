//go:build !linux

package main

import (
	"os"
	"syscall"
)

// childAttributes asks for nothing: only Linux ties a process to another.
func childAttributes() *syscall.SysProcAttr { return nil }

func terminate(p *os.Process) error { return p.Signal(os.Interrupt) }
