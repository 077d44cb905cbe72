package peer

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/cache"
	ma "github.com/multiformats/go-multiaddr"
)

// Bounds of looking up the names in origins before they are dialled.
const (
	lookupTimeout = 5 * time.Second
	// maxLookups are under way at a time. Of a name beyond them nothing is known until somebody
	// asks again.
	maxLookups = 4
	// maxVerdicts is how many names are remembered.
	maxVerdicts = 1 << 10
	// verdictFor is how long a verdict is good; a name may move.
	verdictFor = time.Minute
)

// names remembers which names in origins have no public address. Nobody waits for a lookup: a
// pin is accepted without one, and told the verdict by whoever reads it later.
type names struct {
	// lookup returns the addresses of a name; network is ip, ip4 or ip6. Set once.
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

	// mu guards what follows. It is never held while calling out.
	mu       sync.Mutex
	verdicts *cache.Cache[string, *verdict] // by network and name
	running  int
}

func newNames(lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)) names {
	return names{lookup: lookup, verdicts: cache.New[string, *verdict](maxVerdicts)}
}

// verdict is what is known of a name.
type verdict struct {
	why     string    // it is refused; empty: it is not, or nothing is known
	until   time.Time // when it is looked up again
	running bool      // it is being looked up
}

// whyRefused tells why an address with a name is not dialled, as far as that is known, and has
// the name looked up where it is not, or not any more.
func (p *Peer) whyRefused(a ma.Multiaddr) string {
	network := ""
	switch a[0].Protocol().Code {
	case ma.P_DNS:
		network = "ip"
	case ma.P_DNS4:
		network = "ip4"
	case ma.P_DNS6:
		network = "ip6"
	default: // what is behind a dnsaddr is found with the dial
		return ""
	}
	host := a[0].Value()
	v, look := p.names.known(network+" "+host, time.Now())
	if look && !p.streams.enter() {
		p.names.learn(v, "", time.Now())
	} else if look {
		go func() {
			defer p.streams.leave()
			ctx, cancel := context.WithTimeout(p.ctx, lookupTimeout)
			defer cancel()
			found, err := p.names.lookup(ctx, network, host)
			p.names.learn(v, notPublic(a, host, found, err), time.Now())
		}()
	}
	return p.names.read(v)
}

// known returns the verdict on a name; look tells the caller to look the name up and to tell
// learn of it.
func (n *names) known(name string, now time.Time) (v *verdict, look bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	v, found := n.verdicts.Get(name)
	if !found {
		v = new(verdict)
		n.verdicts.Put(name, v)
	}
	if v.running || now.Before(v.until) || n.running >= maxLookups {
		return v, false
	}
	v.running = true
	n.running++
	return v, true
}

// learn keeps what a lookup has shown.
func (n *names) learn(v *verdict, why string, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	v.why, v.until, v.running = why, now.Add(verdictFor), false
	n.running--
}

func (n *names) read(v *verdict) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return v.why
}

// notPublic tells why the addresses that were found for the name in a are all refused; "" if
// one is not, or none was found.
func notPublic(a ma.Multiaddr, host string, found []netip.Addr, err error) string {
	if err != nil || len(found) == 0 {
		return ""
	}
	for _, ip := range found {
		protocol := ma.P_IP4
		if ip = ip.Unmap(); ip.Is6() {
			protocol = ma.P_IP6
		}
		c, err := ma.NewComponent(ma.ProtocolWithCode(protocol).Name, ip.WithZone("").String())
		if err != nil {
			return ""
		}
		if checkPublicIP(append(ma.Multiaddr{*c}, a[1:]...), ip) == nil {
			return ""
		}
	}
	return fmt.Sprintf("%v: %s is %s, which is not a public address", ErrOriginRefused, host, found[0])
}
