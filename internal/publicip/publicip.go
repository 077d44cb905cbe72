// Package publicip tells addresses of the public internet from all others, so that what a user or
// another server names is not used to reach private networks.
//
// Imports: std.
// Never:   the network.
package publicip

import (
	"fmt"
	"net/netip"
	"net/url"
	"syscall"
)

// Check returns an error for an address that is not on the public internet: private, loopback,
// link-local, multicast, reserved, and IPv6 forms that carry an IPv4 address.
func Check(ip netip.Addr) error {
	bad := ip.Is6() && !publicIP6.Contains(ip)
	for _, r := range specialRanges {
		bad = bad || r.Contains(ip)
	}
	if bad || !ip.IsValid() {
		return fmt.Errorf("%s is not a public address", ip)
	}
	return nil
}

// Control returns the Control function of a net.Dialer that connects to public addresses only. The
// dialer calls it after it has resolved a name, right before it connects, so a name that changes
// its address between two look-ups is refused too.
func Control(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%s is not an address: %w", address, err)
	}
	return Check(at.Addr())
}

// publicIP6 is the part of IPv6 that is assigned for public use. NAT64 (64:ff9b::),
// IPv4-mapped, link-local, unique local and multicast addresses lie outside.
var publicIP6 = netip.MustParsePrefix("2000::/3")

// specialRanges has the ranges of RFC 6890 and its updates.
var specialRanges = [...]netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),   // carrier-grade NAT
	netip.MustParsePrefix("127.0.0.0/8"),     // loopback
	netip.MustParsePrefix("169.254.0.0/16"),  // link-local, metadata services
	netip.MustParsePrefix("172.16.0.0/12"),   //
	netip.MustParsePrefix("192.0.0.0/24"),    // protocol assignments
	netip.MustParsePrefix("192.0.2.0/24"),    // documentation
	netip.MustParsePrefix("192.88.99.0/24"),  // 6to4 relays
	netip.MustParsePrefix("192.168.0.0/16"),  //
	netip.MustParsePrefix("198.18.0.0/15"),   // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"), // documentation
	netip.MustParsePrefix("203.0.113.0/24"),  // documentation
	netip.MustParsePrefix("224.0.0.0/4"),     // multicast
	netip.MustParsePrefix("240.0.0.0/4"),     // reserved, broadcast
	netip.MustParsePrefix("2001::/23"),       // Teredo, ORCHID, benchmarks
	netip.MustParsePrefix("2001:db8::/32"),   // documentation
	netip.MustParsePrefix("2002::/16"),       // 6to4 carries any IPv4 address
	netip.MustParsePrefix("3fff::/20"),       // documentation
}

// Literal returns what a host of a URL is by its own text: loopback if it is localhost or a loopback
// address, and private if it is an address that is not on the public internet. Names are neither.
func Literal(host string) (loopback, private bool) {
	if host == "localhost" {
		return true, true
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false, false
	}
	ip = ip.Unmap()
	return ip.IsLoopback(), Check(ip) != nil
}

// CheckService returns an error for text that is not the URL of a service of others: https, or plain
// http on this machine, without credentials, query and fragment.
func CheckService(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q is not a URL such as https://service.example.org", text)
	}
	switch loopback, _ := Literal(u.Hostname()); {
	case u.Scheme == "https", u.Scheme == "http" && loopback:
		return nil
	case u.Scheme == "http":
		return fmt.Errorf("%q has no TLS: plain http is for a service on this machine", text)
	}
	return fmt.Errorf("%q does not begin with https://", text)
}
