package main

import (
	"os"
	"syscall"
)

// childAttributes returns attributes with which the kernel kills a child process when this
// program ends. The child is in a process group of its own, so that Ctrl-C at the terminal does
// not reach it: the demo stops its processes itself.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
