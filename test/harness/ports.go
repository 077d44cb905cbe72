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

// given remembers ports by a mark for each, which other processes see too: suites that run
// at once on one machine never give one port twice. A mark ends with its process.
type given struct {
	mu    sync.Mutex
	marks []net.Listener
}

// mark takes a port for this process, or returns an error if a process has it. The mark is
// an abstract Unix socket: like a port it belongs to a network namespace, and it leaves no file.
func mark(port int) (net.Listener, error) {
	return net.Listen("unix", fmt.Sprintf("@holdfast-test-port-%d", port))
}

// free returns a port of 127.0.0.1 that nobody uses, on TCP and UDP, and that no process
// was given before while it still runs.
func (g *given) free() (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for range portTries {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		m, err := mark(port)
		if err != nil {
			continue
		}
		if unused(port) {
			g.marks = append(g.marks, m)
			return port, nil
		}
		m.Close()
	}
	return 0, errNoPort
}

// unused returns whether nobody listens on a port of 127.0.0.1, on TCP and UDP.
func unused(port int) bool {
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	tcp, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", addr)
	if err != nil {
		return false
	}
	udp.Close()
	return true
}
