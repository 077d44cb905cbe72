package main

import (
	"os"
	"syscall"
)

// childAttributes makes the kernel kill a child when this process ends. The child does not
// receive Ctrl-C of the terminal, because the demo stops its processes in a fixed order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
