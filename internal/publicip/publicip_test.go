package publicip

import (
	"net"
	"net/netip"
	"strings"
	"testing"
)

// Check accepts public addresses and refuses private, loopback, link-local, multicast, mapped and reserved ones.
func TestOnlyPublicAddressesPass(t *testing.T) {
	for _, ip := range []string{"1.1.1.1", "9.9.9.9", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1", "192.169.0.1", "223.255.255.255", "2606:4700:4700::1111"} {
		if err := Check(netip.MustParseAddr(ip)); err != nil {
			t.Error(err)
		}
	}
	for _, ip := range []string{
		"0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.168.1.1", "198.18.0.1", "224.0.0.1", "255.255.255.255",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:1.1.1.1", "64:ff9b::7f00:1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00::1", "ff02::1", "2002:7f00:1::", "2001:db8::1",
	} {
		if err := Check(netip.MustParseAddr(ip)); err == nil {
			t.Errorf("%s passes", ip)
		}
	}
	if err := Check(netip.Addr{}); err == nil {
		t.Error("no address passes")
	}
}

// A dialer with Control reaches no server on loopback, neither by address nor by a name. The dialer asks Control
// after it has resolved the name.
func TestADialerRefusesANameOfALoopbackAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	d := net.Dialer{Control: Control}
	for _, host := range []string{"127.0.0.1", "localhost"} {
		c, err := d.DialContext(t.Context(), "tcp", net.JoinHostPort(host, port))
		if err == nil {
			_ = c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "is not a public address") {
			t.Errorf("%s: %v", host, err)
		}
	}
	if err := Control("tcp", "no address", nil); err == nil {
		t.Error("what is no address passes")
	}
}

// CheckService accepts https without credentials and query, and plain http on this machine only.
func TestURLsOfServices(t *testing.T) {
	for text, ok := range map[string]bool{
		"https://facilitator.example.org": true, "https://facilitator.example.org/x402/": true, "https://10.0.0.1:8443": true,
		"http://127.0.0.1:4021": true, "http://localhost:4021": true, "http://[::1]:4021": true,
		"": false, "facilitator.example.org": false, "http://facilitator.example.org": false, "http://10.0.0.1": false,
		"ftp://facilitator.example.org": false, "https://user:secret@example.org": false, "https://example.org?key=1": false, "https://": false,
		"http://127.0.0.1.example.org": false,
	} {
		if err := CheckService(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Literal says whether a host is an address of this machine or of a private network; names other than localhost are
// neither.
func TestLiteralHosts(t *testing.T) {
	for host, want := range map[string][2]bool{
		"localhost": {true, true}, "127.0.0.1": {true, true}, "::1": {true, true}, "::ffff:127.0.0.1": {true, true},
		"10.1.2.3": {false, true}, "fd00::1": {false, true}, "1.1.1.1": {}, "example.org": {}, "localhost.": {}, "": {},
	} {
		if loopback, private := Literal(host); loopback != want[0] || private != want[1] {
			t.Errorf("%q: loopback %v, private %v", host, loopback, private)
		}
	}
}
