package main

import (
	"os"
	"syscall"
)

// childAttributes ties a process to this one, and keeps Ctrl-C of the terminal
// from it: the demo ends its processes in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
