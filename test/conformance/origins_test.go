//go:build conformance

package conformance

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// insideVariable says that the test runs inside a network namespace of its own.
const insideVariable = "HOLDFAST_TEST_INSIDE"

// privateAddrs are addresses of every kind that is not public, and that a
// namespace can have on its loopback; %d is the port.
var privateAddrs = []string{
	"10.1.2.3", "100.64.1.2", "127.0.0.1", "127.9.9.9", "169.254.169.254", "172.16.1.2", "192.0.0.8", "192.0.2.1",
	"192.88.99.1", "192.168.1.2", "198.18.1.2", "198.51.100.1", "203.0.113.1", "240.1.2.3",
	"::1", "64:ff9b::7f00:1", "64:ff9b::a01:203", "2002:7f00:1::1", "2002:a01:203::1", "2001:0:7f00:1::1",
	"2001:db8::1", "fc00::1", "fd12::1", "fec0::1", "3fff::1", "100::1",
}

// oddOrigins are forms of which no address has to be configured.
var oddOrigins = []string{
	"/ip4/0.0.0.0/tcp/%d", "/ip6/::/tcp/%d", "/ip6/::ffff:127.0.0.1/tcp/%d", "/ip4/255.255.255.255/udp/%d/quic-v1",
	"/ip4/224.0.0.1/udp/%d/quic-v1", "/ip6/ff02::1/udp/%d/quic-v1",
	"/dns4/localhost/tcp/%d", "/dns/localhost/tcp/%d", "/dns6/localhost/tcp/%d", "/dns4/localhost/tcp/%d/ws",
	"/dns4/localhost/udp/%d/quic-v1", "/ip4/127.0.0.1/tcp/%d/tls/ws", "/ip4/127.0.0.1/tcp/%d/http",
	"/ip4/127.0.0.1/udp/%d/quic-v1/webtransport", "/ip6zone/lo/ip6/fe80::1/tcp/%d", "/unix/%d.sock",
	"/ip4/127.0.0.1/tcp/%d/p2p/12D3KooWP1Zc2bV5qR6b8YjZMpyuXrA7fGukvf93mjXKGAJ1NWSU/p2p-circuit",
}

// originID ends every origin of this test.
const originID = "/p2p/12D3KooWNrbHpKYDmTUXFRQBnnvJ7aMLUCGNCAio2P3AW2N3LNB9"

// TestOriginsOnPrivateNetworksAreNeverDialled promises that a node dials no origin on a private address, and one that
// may dial them does (A58). In a namespace where every private address is this machine, a listener on all of them
// hears what comes.
func TestOriginsOnPrivateNetworksAreNeverDialled(t *testing.T) {
	if os.Getenv(insideVariable) == "" {
		t.Parallel() // another process does it
		inNamespace(t)
		return
	}
	run := func(args ...string) {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v %s", strings.Join(args, " "), err, out)
		}
	}
	run("link", "set", "lo", "up")
	for _, a := range privateAddrs {
		if a != "::1" && !strings.HasPrefix(a, "127.") {
			run("addr", "add", a, "dev", "lo")
		}
	}
	port, heard := listenEverywhere(t)
	var origins []string
	for _, a := range privateAddrs {
		family := map[bool]string{true: "ip6", false: "ip4"}[strings.Contains(a, ":")]
		origins = append(origins,
			fmt.Sprintf("/%s/%s/tcp/%d%s", family, a, port, originID),
			fmt.Sprintf("/%s/%s/udp/%d/quic-v1%s", family, a, port, originID))
	}
	for _, o := range oddOrigins {
		origins = append(origins, fmt.Sprintf(o, port)+originID)
	}

	c := harness.Start(t, harness.Options{Nodes: 1, Env: shortFetch, Args: []string{"--allow-private-origins=false"}})
	s := newService(t, c, "origins@example.org")
	var waiting []string
	refused := 0
	for _, o := range origins {
		st, err := s.next().Post(t.Context(), harness.Pin{CID: nowhere().String(), Origins: []string{o}})
		if err != nil {
			refused++
			if api := (*harness.APIError)(nil); !errors.As(err, &api) || api.Status != http.StatusBadRequest {
				t.Errorf("%s: %v", o, err)
			}
			continue
		}
		waiting = append(waiting, st.RequestID)
	}
	t.Logf("%d origins, %d refused with 400", len(origins), refused)
	for _, id := range waiting {
		if _, err := harness.WaitStatus(t.Context(), s.next(), id, "failed", time.Minute); err != nil {
			t.Error(err)
		}
	}
	if n := heard.Load(); n != 0 {
		t.Errorf("%d connections or packets came to private addresses", n)
	}

	open := harness.Start(t, harness.Options{Nodes: 1, Env: shortFetch})
	so := newService(t, open, "open@example.org")
	id := so.post(harness.Pin{CID: nowhere().String(), Origins: []string{
		fmt.Sprintf("/ip4/10.1.2.3/tcp/%d%s", port, originID), fmt.Sprintf("/ip4/10.1.2.3/udp/%d/quic-v1%s", port, originID),
	}}).RequestID
	if _, err := harness.WaitStatus(t.Context(), so.next(), id, "failed", time.Minute); err != nil {
		t.Error(err)
	}
	if heard.Load() == 0 {
		t.Error("nothing was heard of a node that may dial private origins: the test hears nothing")
	}
}

// TestOriginsThatAreRefusedAreNamedAtOnce promises that the answer to a pin names the origins on private addresses as
// refused, and that the pin fails with the first attempt for that reason.
func TestOriginsThatAreRefusedAreNamedAtOnce(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Env: []string{"HOLDFAST_TRACKER_IDLE_TIMEOUT=4s"}, Args: []string{"--allow-private-origins=false"}})
	s := newService(t, c, "refused@example.org")
	origin := "/ip4/192.168.1.20/tcp/4001" + originID
	const why = ": origin refused: 192.168.1.20 is not a public address"
	st := s.post(harness.Pin{CID: nowhere().String(), Origins: []string{origin}})
	if details := st.Info["status_details"]; !strings.Contains(details, origin+why) {
		t.Errorf("the answer says %q", details)
	}
	n := c.Nodes[0]
	cli := strings.TrimSpace(n.CLI("pin", "add", nowhere().String(), "--origin", origin, "--user", "refused@example.org"))
	if out := n.CLI("pin", "get", cli, "--user", "refused@example.org"); !strings.Contains(out, origin+why) {
		t.Errorf("pin get says\n%s", out)
	}
	testNamesAreRefused(t, c, s)
	for _, id := range []string{st.RequestID, cli} {
		last, err := harness.WaitStatus(t.Context(), s.next(), id, "failed", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if details := last.Info["status_details"]; !strings.Contains(details, origin+why) || !strings.Contains(details, "within 4s") {
			t.Errorf("it failed for %q", details)
		}
	}
}

// testNamesAreRefused names hosts that are this machine: nobody waits for the lookup, and the
// pin says so when it is read. Each of two pins of one CID is told of its own origin.
func testNamesAreRefused(t *testing.T, c *harness.Cluster, s *service) {
	t.Helper()
	other := newService(t, c, "named@example.org")
	root := nowhere().String()
	for i, from := range []*service{s, other} {
		origin := fmt.Sprintf("/%s/localhost/tcp/4001%s", []string{"dns4", "dns"}[i], originID)
		st := from.post(harness.Pin{CID: root, Origins: []string{origin}})
		harness.Eventually(t, pinnedWithin, "the pin with the origin "+origin+" says that it is refused", func() (bool, error) {
			now, err := from.next().Get(t.Context(), st.RequestID)
			details := now.Info["status_details"]
			return strings.Contains(details, origin+": origin refused: localhost is "), fmt.Errorf("%s: %s %w", now.Status, details, err)
		})
	}
}

// inNamespace runs this test once more in a network namespace of its own, which
// goes with the process.
func inNamespace(t *testing.T) {
	t.Helper()
	harness.NeedNamespaces(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run", "^"+t.Name()+"$", "-test.timeout", "3m")
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("in the namespace: %v", err)
	}
}

// listenEverywhere counts what comes to one port of every address, by TCP and by
// UDP.
func listenEverywhere(t *testing.T) (port int, heard *atomic.Int64) {
	t.Helper()
	heard = new(atomic.Int64)
	ln, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	port = ln.Addr().(*net.TCPAddr).Port
	udp, err := net.ListenUDP("udp", &net.UDPAddr{Port: port})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{}, 2)
	go func() {
		defer func() { ended <- struct{}{} }()
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			heard.Add(1)
			c.Close()
		}
	}()
	go func() {
		defer func() { ended <- struct{}{} }()
		b := make([]byte, 2048)
		for {
			if _, _, err := udp.ReadFrom(b); err != nil {
				return
			}
			heard.Add(1)
		}
	}()
	t.Cleanup(func() { ln.Close(); udp.Close(); <-ended; <-ended })
	return port, heard
}
