package peer

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/holdfast-ipfs/holdfast/internal/cache"
	"github.com/holdfast-ipfs/holdfast/internal/publicip"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

const (
	// maxOriginLength bounds the length of one origin, in bytes.
	maxOriginLength = 1024
	// maxParsed is how many parsed origins are cached.
	maxParsed = 1 << 10
)

// ErrOriginRefused is the cause of every refusal of an address that a user gave.
var ErrOriginRefused = errors.New("origin refused")

// CheckOrigin returns why the node would not dial an address that a user gave, or nil if it
// would. It does not resolve names; they are checked when they are dialled.
func CheckOrigin(origin string, allowPrivate bool) error {
	_, err := parseOrigin(origin, allowPrivate)
	return err
}

// WhyRefused returns why an origin is not dialled. It returns "" if the origin is dialled, or
// if its name was not looked up yet; in that case it starts the lookup. It does not block.
func (p *Peer) WhyRefused(origin string) string {
	info, err := p.origins.parse(origin)
	switch {
	case err != nil:
		return err.Error()
	case p.opts.AllowPrivateOrigins || len(info.Addrs) == 0:
		return ""
	}
	return p.whyRefused(info.Addrs[0])
}

// parseOrigin parses an address that a user gave. It accepts TCP, WebSocket and QUIC to a
// peer with an id, at a public address or a name. The result has the peer id also if the
// address is refused.
func parseOrigin(origin string, allowPrivate bool) (libp2ppeer.AddrInfo, error) {
	var none libp2ppeer.AddrInfo
	refuse := func(why any) (libp2ppeer.AddrInfo, error) {
		return none, fmt.Errorf("%w: %v", ErrOriginRefused, why)
	}
	if len(origin) > maxOriginLength {
		return refuse("address too long")
	}
	whole, err := ma.NewMultiaddr(origin)
	if err != nil {
		return refuse(err)
	}
	a, id := libp2ppeer.SplitAddr(whole)
	if id == "" {
		return refuse("no peer id (/p2p/...) at the end")
	}
	none.ID = id
	if len(a) == 0 {
		return libp2ppeer.AddrInfo{ID: id}, nil // routing finds its addresses
	}
	if err := checkTransport(a); err != nil {
		return refuse(err)
	}
	if ip, ok := ipOf(a); ok && !allowPrivate {
		if err := checkPublicIP(a, ip); err != nil {
			return refuse(err)
		}
	}
	return libp2ppeer.AddrInfo{ID: id, Addrs: []ma.Multiaddr{a}}, nil
}

// origins parses the addresses that users give and caches the results. The pins of one
// client name the same few origins, and parsing takes longer than the rest of starting a
// session.
type origins struct {
	private bool // addresses that are not public are allowed

	parsed *cache.Locked[string, libp2ppeer.AddrInfo] // the values are shared: do not change their addresses
}

func newOrigins(private bool) origins {
	return origins{private: private, parsed: cache.NewLocked[string, libp2ppeer.AddrInfo](maxParsed)}
}

func (o *origins) parse(origin string) (libp2ppeer.AddrInfo, error) {
	if info, known := o.parsed.Get(origin); known {
		return info, nil
	}
	info, err := parseOrigin(origin, o.private)
	if err == nil {
		o.parsed.Put(origin, info)
	}
	return info, err
}

// checkTransport accepts ip|dns tcp, the same with [tls [sni]] ws or wss, ip|dns udp
// quic-v1, and dnsaddr alone.
func checkTransport(a ma.Multiaddr) error {
	codes := make([]int, 0, len(a))
	for _, c := range a {
		codes = append(codes, c.Protocol().Code)
		if v := c.Value(); (c.Protocol().Code == ma.P_TCP || c.Protocol().Code == ma.P_UDP) && v == "0" {
			return errors.New("port 0")
		}
	}
	switch codes[0] {
	case ma.P_IP4, ma.P_IP6, ma.P_DNS, ma.P_DNS4, ma.P_DNS6:
	case ma.P_DNSADDR:
		if len(codes) == 1 {
			return nil
		}
		return errors.New("something after dnsaddr")
	default:
		return fmt.Errorf("%s is not a way to a public peer", a[0].Protocol().Name)
	}
	for _, form := range [][]int{
		{ma.P_TCP},
		{ma.P_TCP, ma.P_WS},
		{ma.P_TCP, ma.P_WSS},
		{ma.P_TCP, ma.P_TLS, ma.P_WS},
		{ma.P_TCP, ma.P_TLS, ma.P_SNI, ma.P_WS},
		{ma.P_UDP, ma.P_QUIC_V1},
	} {
		if equalCodes(codes[1:], form) {
			return nil
		}
	}
	return errors.New("only tcp, ws, wss and quic-v1 are dialled")
}

func equalCodes(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// checkPublic refuses an address that is not public. It is called just before the dial, so
// the address must be resolved.
func checkPublic(a ma.Multiaddr) error {
	bare, _ := libp2ppeer.SplitAddr(a)
	if len(bare) == 0 {
		return errors.New("no address")
	}
	if err := checkTransport(bare); err != nil {
		return err
	}
	ip, ok := ipOf(bare)
	if !ok {
		return errors.New("not an IP address")
	}
	return checkPublicIP(bare, ip)
}

// ipOf returns the IP address at the beginning of a multiaddr.
func ipOf(a ma.Multiaddr) (netip.Addr, bool) {
	if len(a) == 0 {
		return netip.Addr{}, false
	}
	switch a[0].Protocol().Code {
	case ma.P_IP4, ma.P_IP6:
		return netip.AddrFromSlice(a[0].RawValue())
	}
	return netip.Addr{}, false
}

// checkPublicIP refuses addresses outside the public internet, by the lists of internal/publicip
// and by those of go-multiaddr.
func checkPublicIP(a ma.Multiaddr, ip netip.Addr) error {
	if err := publicip.Check(ip); err != nil {
		return err
	}
	if manet.IsPrivateAddr(a) || !manet.IsPublicAddr(a) {
		return fmt.Errorf("%s is not a public address", ip)
	}
	return nil
}
