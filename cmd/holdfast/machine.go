package main

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// shown returns the host:port of a listener as people can open it. An unspecified address such as 0.0.0.0, which
// means all addresses of the machine, becomes the one that machineAddr returns.
func shown(hostPort string) string { return specified(hostPort, machineAddr) }

// specified replaces an unspecified address in hostPort with the address that instead returns. It returns any
// other text as it is.
func specified(hostPort string, instead func(unspecified netip.Addr) netip.Addr) string {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return hostPort
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = instead(ip).String()
	}
	return net.JoinHostPort(host, port)
}

// loopback returns the loopback address of the same IP version.
func loopback(unspecified netip.Addr) netip.Addr {
	if unspecified.Is6() {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// machineAddr returns the address from which this machine reaches others, or a loopback address if it has no
// route. A listener on all IPv6 addresses answers on all IPv4 addresses too, so that an IPv4 address comes first.
func machineAddr(unspecified netip.Addr) netip.Addr {
	// To connect a UDP socket chooses a source address and sends nothing. The addresses are for documentation
	// (RFC 5737, RFC 3849).
	routes := [][2]string{{"udp4", "192.0.2.1:9"}, {"udp6", "[2001:db8::1]:9"}}
	for _, to := range routes {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		conn, err := new(net.Dialer).DialContext(ctx, to[0], to[1])
		cancel()
		if err != nil {
			continue
		}
		local, err := netip.ParseAddrPort(conn.LocalAddr().String())
		_ = conn.Close() // nothing was sent
		if err == nil && (unspecified.Is6() || local.Addr().Is4()) {
			return local.Addr()
		}
	}
	return loopback(unspecified)
}
