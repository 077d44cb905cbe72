package config

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// endpoint is an address and port on which the node listens because of a setting.
type endpoint struct {
	key     string // key of the setting
	given   string // the address as the operator wrote it
	network string // tcp or udp
	v4, v6  bool   // the node listens on IPv4 and on IPv6
	ip      string // address or host name; empty: all addresses of the IP versions
	port    string
}

// overlaps reports whether a process cannot listen on both e and o.
func (e *endpoint) overlaps(o *endpoint) bool {
	return e.network == o.network && e.port == o.port && (e.v4 && o.v4 || e.v6 && o.v6) && (e.ip == "" || o.ip == "" || e.ip == o.ip)
}

// endpoints returns the endpoints of the IPFS hosts and of the HTTP listeners. It omits the settings
// without effect in this release, and endpoints with port 0.
func (c *Config) endpoints() (all []endpoint) {
	for _, l := range []struct{ key, addr string }{
		{"pinning.listen", c.Pinning.Listen}, {"s3.listen", c.S3.Listen}, {"console.listen", c.Console.Listen}, {"admin.listen", c.Admin.Listen}, {"paid.listen", c.Paid.Listen},
	} {
		all = addEndpoint(all, l.key, l.addr, "tcp", l.addr)
	}
	for _, l := range []struct {
		key   string
		addrs []string
	}{{"peer.listen", c.Peer.Listen}, {"peer.cluster_listen", c.Peer.ClusterListen}} {
		for _, text := range l.addrs {
			a, err := multiaddr.NewMultiaddr(text)
			if err != nil {
				continue // it was reported already
			}
			if network, addr, err := manet.DialArgs(a); err == nil {
				all = addEndpoint(all, l.key, text, network, addr)
			}
		}
	}
	return all
}

// addEndpoint appends an endpoint to all and returns the result. network is a network of package
// net: tcp, tcp4, tcp6, udp, udp4 or udp6. addr is host:port; if it is malformed or the port is
// 0, addEndpoint returns all unchanged.
func addEndpoint(all []endpoint, key, given, network, addr string) []endpoint {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "0" {
		return all
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	e := endpoint{key: key, given: given, network: strings.TrimRight(network, "46"), ip: host, port: port}
	e.v4, e.v6 = !strings.HasSuffix(network, "6"), !strings.HasSuffix(network, "4")
	if ip, err := netip.ParseAddr(host); err == nil {
		ip = ip.Unmap()
		if e.ip = ip.String(); ip.IsUnspecified() {
			e.ip = ""
		}
		if ip.Is4() {
			e.v6 = false
		} else if e.ip != "" {
			e.v4 = false
		}
	}
	return append(all, e)
}

// twice returns a problem for each port that two settings use, and for each address that one list
// contains twice. Addresses of one list may have the same port, because several transports of one
// host can share a port.
func (c *Config) twice(origin func(setting) source) (found []Problem) {
	from := map[string]source{}
	names := map[string]string{} // what people call a setting
	for _, s := range table {
		from[s.key], names[s.key] = origin(s), "--"+s.flag
	}
	all := c.endpoints()
	for i := range all {
		for j := range i {
			first, then := &all[j], &all[i]
			if from[then.key].name == "" {
				first, then = then, first // report the setting that the operator made, not the default
			}
			same := first.key == then.key
			var detail string
			switch {
			case same && first.given == then.given:
				detail = then.given + " is given twice"
			case !same && first.overlaps(then):
				detail = fmt.Sprintf("%s is a port of %s %s already", then.given, names[first.key], first.given)
			default:
				continue
			}
			found = append(found, Problem{
				Key: then.key, Source: from[then.key].name, Detail: detail, flag: from[then.key].flag || from[first.key].flag,
			})
		}
	}
	return found
}
