// Command holdfast is the one program of a Holdfast cluster: it runs a node,
// and it is what an operator types on the machine of a node.
//
// Commands are thin: one file for each noun, flags in, one call of the local
// operator API, text or JSON out. Exit codes are 0, 2 for wrong usage and 1 for
// everything else, with one line on standard error.
//
// Imports: config, cluster/node, api, api/admin/client.
// Never:   use cases or islands directly; business rules.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/holdfast-ipfs/holdfast/cluster/node"
)

func main() {
	node.HashInPlace()
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	build, _ := debug.ReadBuildInfo()
	a := &app{
		version:  programVersion(version, build),
		environ:  os.Environ(),
		stdin:    os.Stdin,
		stdout:   os.Stdout,
		stderr:   os.Stderr,
		connect:  connect,
		ownFiles: ownFiles,
	}
	code := a.execute(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// endings are the signals that end the program in order. SIGHUP is one of them: a terminal
// that closes sends it, and certificates are read anew without it. Under nohup, which has it
// ignored, it stays so.
func endings() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}
