package harness

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// Ports are below the range that Linux uses for outgoing connections, so that no connection gets
// the port of a node while the node is down.
const (
	lowestPort  = 20_000
	highestPort = 32_000
	portTries   = 1_000
)

// errNoPort means that no free port was found.
var errNoPort = errors.New("no free port on loopback")

// ports has the ports that the clusters of this process use. A port stays reserved while its node
// is down, because the node needs it again at its next start, and no other node may use it
// meanwhile.
var ports given

// given reserves ports. It holds a mark for each reserved port. Other processes see the marks, so
// test suites that run at the same time on one machine never use the same port. The marks of a
// process disappear when it ends.
type given struct {
	mu    sync.Mutex
	marks []net.Listener
}

// FreePort reserves a port of 127.0.0.1 on which nothing listens, by TCP or UDP, until this process ends. No connection
// and no other test gets the port, also while nobody listens on it.
func FreePort(tb testing.TB) int {
	tb.Helper()
	port, err := ports.free()
	if err != nil {
		tb.Fatal(err)
	}
	return port
}

// mark reserves a port for this process. It returns an error if a process has reserved the port
// already. The mark is an abstract Unix socket: like a port it belongs to a network namespace, and
// it leaves no file behind.
func mark(port int) (net.Listener, error) {
	return net.Listen("unix", fmt.Sprintf("@holdfast-test-port-%d", port))
}

// free returns a port of 127.0.0.1 on which nothing listens, by TCP or UDP, and reserves it. No
// running process of the harness has reserved this port.
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

// unused reports whether nothing listens on a port of 127.0.0.1, by TCP or UDP.
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
