// Command holdfast is the one program of a Holdfast cluster. It runs a node, and
// operators use it on the machine of a node.
//
// Commands are thin. Each noun has a file. A command reads its flags, calls the
// local operator API and prints text or JSON. It exits with 0, with 2 for wrong
// usage, or with 1 for any other failure, and then prints one line on standard error.
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

// endings returns the signals that shut the program down: SIGINT, SIGTERM and SIGHUP. A terminal
// sends SIGHUP when it closes. The program does not need SIGHUP to reload certificates, because
// it reloads them without a signal. If SIGHUP is ignored, as under nohup, endings omits it.
func endings() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}
