package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// namespace is a Linux network namespace. It has no name: it exists as long as its file is open or
// a process is in it. So it disappears with the test, even if the test is killed. The nil namespace
// is the one in which the test runs.
type namespace struct{ file *os.File }

// newNamespace creates a namespace and starts its loopback device.
func newNamespace() (*namespace, error) {
	var ns namespace
	err := alone(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		var err error
		ns.file, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	if err := ns.ip("link set lo up"); err != nil {
		ns.close()
		return nil, err
	}
	return &ns, nil
}

func (s *namespace) close() { s.file.Close() }

// alone calls f on a new thread that ends with the call, because some changes that f makes to its
// thread cannot be undone.
func alone(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and not unlocked: Go ends the thread
		done <- f()
	}()
	return <-done
}

// enter moves the calling thread into the namespace. The processes that the thread starts, and the
// sockets that it opens, then belong to the namespace.
func (s *namespace) enter() error {
	if s == nil {
		return nil
	}
	if err := unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("setns: %w", err)
	}
	return nil
}

// do calls f in the namespace. Goroutines that f starts are not in the namespace.
func (s *namespace) do(f func() error) error {
	return alone(func() error {
		if err := s.enter(); err != nil {
			return err
		}
		return f()
	})
}

// ip runs commands of the program ip in the namespace, each given as one line.
func (s *namespace) ip(lines ...string) error {
	return s.do(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), commandWithin)
		defer cancel()
		cmd := exec.CommandContext(ctx, "ip", "-batch", "-")
		cmd.Stdin = strings.NewReader(strings.Join(lines, "\n"))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("ip %q: %w\n%s", lines, err, out)
		}
		return nil
	})
}

// dial connects to an IP address and port from within the namespace.
func (s *namespace) dial(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	if s == nil {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	err = s.do(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, addr)
		return err
	})
	return conn, err
}

// transport returns an HTTP transport that opens its connections within the namespace.
func (s *namespace) transport() *http.Transport {
	return &http.Transport{MaxIdleConnsPerHost: connectionsPerNode, DialContext: s.dial}
}

// Addresses in the simulated network. The last byte is the number of the node, or middle for the
// foreign peers.
const (
	addressOf = "10.77.0.%d"
	hardware  = "02:00:00:00:00:%02x"
	middle    = 254
	mostApart = 16 // largest number of nodes
)

// network connects the namespaces of nodes, either by a bridge in the namespace hub, or by a relay
// with simulated lines. To cut a node off, its port is removed from the bridge: its link stays up,
// no program is notified, and packets are lost in both directions.
type network struct {
	hub   *namespace
	nodes []*namespace
	relay *relay // simulates lines; nil means that there is a bridge
}

// NeedNamespaces skips a test if the process cannot create network namespaces.
func NeedNamespaces(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("a network namespace needs root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		tb.Skip("a network namespace needs ip, of iproute2")
	}
}

// newNetwork creates a network, or skips the test if that is not possible. If line is nil, the
// nodes are connected by a bridge, without delay and loss.
func newNetwork(tb testing.TB, line *Line) *network {
	tb.Helper()
	NeedNamespaces(tb)
	if line != nil {
		needTUN(tb)
	}
	hub, err := newNamespace()
	if errors.Is(err, unix.EPERM) {
		tb.Skipf("root may not do everything here: %v", err) // in a container
	}
	if err != nil {
		tb.Fatal(err)
	}
	w := &network{hub: hub}
	tb.Cleanup(w.close)
	if line != nil {
		w.relay = newRelay(*line)
		switch err := w.attach(hub, middle); {
		case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
			tb.Skipf("no TUN devices here: %v", err)
		case err != nil:
			tb.Fatal(err)
		}
		return w
	}
	if err := hub.ip(append([]string{
		"link add hub address " + fmt.Sprintf(hardware, middle) + " type bridge stp_state 0",
		"address add " + fmt.Sprintf(addressOf, middle) + "/24 dev hub",
		"link set hub up",
	}, neighbours("hub")...)...); err != nil {
		tb.Fatal(err)
	}
	return w
}

func (w *network) close() {
	if w.relay != nil {
		w.relay.close()
	}
	for _, ns := range append(w.nodes, w.hub) {
		ns.close()
	}
}

// neighbours returns the commands of the program ip that set the hardware addresses of all nodes on
// a device permanently. If a node had to ask for such an address while another node is cut off, it
// would get the error "no route to host", although packets should only be lost.
func neighbours(device string) []string {
	var lines []string
	add := func(i int) {
		lines = append(lines, fmt.Sprintf("neigh replace "+addressOf+" lladdr "+hardware+" nud permanent dev %s", i, i, device))
	}
	for i := 1; i <= mostApart; i++ {
		add(i)
	}
	add(middle)
	return lines
}

// join creates the namespace of the next node and connects it to the network. It returns the
// namespace, the number of the node, and its IP address as text.
func (w *network) join() (ns *namespace, at int, host string, err error) {
	at = len(w.nodes) + 1
	if at > mostApart {
		return nil, 0, "", fmt.Errorf("a network has %d nodes at the most", mostApart)
	}
	if ns, err = newNamespace(); err != nil {
		return nil, 0, "", err
	}
	w.nodes = append(w.nodes, ns)
	host = fmt.Sprintf(addressOf, at)
	if w.relay != nil {
		return ns, at, host, w.attach(ns, at)
	}
	err = errors.Join(
		w.hub.ip(
			fmt.Sprintf("link add port%d type veth peer name net address "+hardware+" netns /proc/%d/fd/%d", at, at, os.Getpid(), ns.file.Fd()),
			fmt.Sprintf("link set port%d master hub up", at),
		),
		ns.ip(append([]string{"address add " + host + "/24 dev net", "link set net up"}, neighbours("net")...)...),
	)
	return ns, at, host, err
}

// attach connects the namespace of the node with number at by a simulated line.
func (w *network) attach(ns *namespace, at int) error {
	if err := w.relay.attach(ns, address(at)); err != nil {
		return err
	}
	return ns.ip("address add "+fmt.Sprintf(addressOf, at)+"/24 dev net", "link set net up")
}

// address returns the IP address of the node with number at.
func address(at int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf(addressOf, at)) }

// cut cuts the node with number at off from all others.
func (w *network) cut(at int) error {
	if w.relay != nil {
		w.relay.cut(address(at), true)
		return nil
	}
	return w.hub.ip(fmt.Sprintf("link set port%d nomaster", at))
}

// heal connects the node with number at again.
func (w *network) heal(at int) error {
	if w.relay != nil {
		w.relay.cut(address(at), false)
		return nil
	}
	return w.hub.ip(fmt.Sprintf("link set port%d master hub", at))
}

// Cut cuts the node off from the other nodes and from the foreign peers of the cluster, until Heal
// is called. Packets are lost in both directions, and no program is notified. The test can still
// reach the node. Only nodes of a cluster with Options.Apart can be cut off.
func (n *Node) Cut() {
	n.tb.Helper()
	if n.network == nil {
		n.tb.Fatalf("%s is in no network of its own", n.Name)
	}
	if err := n.network.cut(n.at); err != nil {
		n.tb.Fatalf("%s: cut: %v", n.Name, err)
	}
}

// Heal connects the node again after Cut.
func (n *Node) Heal() {
	n.tb.Helper()
	if err := n.network.heal(n.at); err != nil {
		n.tb.Fatalf("%s: heal: %v", n.Name, err)
	}
}
