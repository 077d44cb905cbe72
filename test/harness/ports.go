package harness

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports come from below Linux's range for outgoing connections, so that no
// connection takes the port of a node while the node is down.
const (
	lowestPort  = 20_000
	highestPort = 32_000
	portTries   = 1_000
)

// errNoPort says that the range has no free port.
var errNoPort = errors.New("no free port on loopback")

// ports are those given to any cluster of this process: a node that is down needs its
// own again, and must not find the node of a test beside it there.
var ports given

type given struct {
	mu    sync.Mutex
	taken map[int]bool
}

// free returns a port of 127.0.0.1 that nobody uses, on TCP and UDP, and that was not given
// before.
func (g *given) free() (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.taken == nil {
		g.taken = map[int]bool{}
	}
	for range portTries {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if g.taken[port] {
			continue
		}
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		tcp, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		udp, err := net.ListenPacket("udp", addr)
		tcp.Close()
		if err != nil {
			continue
		}
		udp.Close()
		g.taken[port] = true
		return port, nil
	}
	return 0, errNoPort
}
