package pins

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// reach classifies an address by the distance from which clients can dial it.
type reach int

const (
	fromAnywhere reach = iota // public addresses, and names, relays and bare peer ids
	fromNearby                // addresses of private networks
	fromHere                  // loopback, link-local and invalid targets, useless for clients on other machines
)

// shared is the address range that providers share among their customers (RFC 6598). It is as
// private as the ranges of RFC 1918.
var shared = netip.MustParsePrefix("100.64.0.0/10")

// reachOf returns the reach of a multiaddr by its first component.
func reachOf(addr string) reach {
	protocol, rest, _ := strings.Cut(strings.TrimPrefix(addr, "/"), "/")
	value, _, _ := strings.Cut(rest, "/")
	switch protocol {
	case "ip4", "ip6":
	case "ip6zone":
		return fromHere
	default:
		return fromAnywhere
	}
	ip, err := netip.ParseAddr(value)
	if err != nil {
		return fromAnywhere
	}
	switch ip = ip.Unmap(); {
	case ip.IsLoopback(), ip.IsUnspecified(), ip.IsLinkLocalUnicast(), ip.IsMulticast():
		return fromHere
	case ip.IsPrivate(), shared.Contains(ip):
		return fromNearby
	}
	return fromAnywhere
}

// farFirst sorts addresses by their reach: public addresses first. Addresses with the same reach
// keep their order.
func farFirst(addrs []string) {
	slices.SortStableFunc(addrs, func(a, b string) int { return cmp.Compare(reachOf(a), reachOf(b)) })
}

// public returns the addresses of a member for clients, public addresses first. It leaves out
// addresses that only the member's own machine can dial, unless the first one is such an address.
// For a member without addresses it returns the bare peer id, which IPFS routing can resolve.
func public(n *state.Node) []string {
	if len(n.Addrs) == 0 {
		return []string{"/p2p/" + string(n.ID)}
	}
	addrs := slices.Clone(n.Addrs)
	farFirst(addrs)
	here := slices.IndexFunc(addrs, func(a string) bool { return reachOf(a) == fromHere })
	if here > 0 {
		addrs = addrs[:here]
	}
	return addrs
}

// interleave merges lists of addresses: first the first address of each list, then the second of
// each, up to MaxDelegates without duplicates. It sorts the result as farFirst does, and never
// returns nil.
func interleave(lists [][]string) []string {
	all := make([]string, 0, MaxDelegates)
	seen := make(map[string]struct{}, MaxDelegates)
	for i := 0; len(all) < MaxDelegates; i++ {
		more := false
		for _, list := range lists {
			if i >= len(list) {
				continue
			}
			more = true
			if _, twice := seen[list[i]]; twice || len(all) == MaxDelegates {
				continue
			}
			seen[list[i]] = struct{}{}
			all = append(all, list[i])
		}
		if !more {
			break
		}
	}
	farFirst(all)
	return all
}
