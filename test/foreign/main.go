// Command foreign is an IPFS peer that is not Holdfast: a plain libp2p host (TCP and QUIC) with a
// block store in memory and boxo's bitswap, in a separate process. Tests and the demo pin content
// of this peer, fetch Holdfast's content with it, and make it misbehave on purpose.
//
// When the peer is ready, it prints one JSON line on standard output:
//
//	{"id": PEER, "addrs": [multiaddrs with /p2p/], "control": "http://127.0.0.1:PORT"}
//
// Then it can be controlled by HTTP at the address "control" (see control.go). The process ends on
// SIGTERM or SIGINT. With the flag -vanish-after, the peer leaves the network after it has served
// that many blocks, but the process continues.
//
// Imports: std, libp2p, boxo, go-ipld-prime.
// Never:   imports of packages of Holdfast.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// ready is the line that main prints once the peer can be reached.
type ready struct {
	ID      string   `json:"id"`
	Addrs   []string `json:"addrs"`
	Control string   `json:"control"`
}

// headerTimeout is the longest time in which a client of the control server must send its request
// headers.
const headerTimeout = 10 * time.Second

// shutdownTimeout is the longest time for which open control requests may continue after the
// process was told to end.
const shutdownTimeout = 5 * time.Second

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "foreign:", err)
		os.Exit(1)
	}
}

func run() error {
	var (
		listen  = flag.String("listen", "/ip4/127.0.0.1/tcp/0,/ip4/127.0.0.1/udp/0/quic-v1", "comma-separated multiaddrs to listen on")
		control = flag.String("control", "127.0.0.1:0", "loopback address of the control server")
		hang    = flag.Bool("hang", false, "accept bitswap streams but never answer")
		vanish  = flag.Int64("vanish-after", 0, "drop off the network after serving this many blocks (0: never)")
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()

	p, err := openPeer(ctx, peerOptions{
		Listen: strings.Split(*listen, ","), Hang: *hang, VanishAfter: *vanish,
	})
	if err != nil {
		return err
	}
	defer p.Close()
	ln, err := net.Listen("tcp", *control)
	if err != nil {
		return fmt.Errorf("control: %w", err)
	}
	srv := &http.Server{Handler: newControl(p), ReadHeaderTimeout: headerTimeout}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()

	line, err := json.Marshal(ready{ID: p.ID(), Addrs: p.Addrs(), Control: "http://" + ln.Addr().String()})
	if err != nil {
		return fmt.Errorf("ready line: %w", err)
	}
	fmt.Println(string(line))

	select {
	case <-ctx.Done():
	case err := <-served:
		return fmt.Errorf("control: %w", err)
	}
	stopCtx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	err = srv.Shutdown(stopCtx)
	if served := <-served; !errors.Is(served, http.ErrServerClosed) {
		return fmt.Errorf("control: %w", served)
	}
	return err
}
