package harness

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
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

// freePort is a port of 127.0.0.1 that nobody uses, on TCP and UDP.
func freePort(taken map[int]bool) (int, error) {
	for range portTries {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if taken[port] {
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
		taken[port] = true
		return port, nil
	}
	return 0, errNoPort
}
