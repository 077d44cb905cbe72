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

// Bounds of the lookups of names in origins, which happen before a dial.
const (
	lookupTimeout = 5 * time.Second
	// maxLookups is the maximum number of lookups at a time. If there are more names, their
	// result stays unknown until the next call.
	maxLookups = 4
	// maxVerdicts is how many names are remembered.
	maxVerdicts = 1 << 10
	// verdictFor is how long a result is valid, because the address of a name can change.
	verdictFor = time.Minute
)

// names remembers which names in origins have no public address. No caller waits for a
// lookup: a pin is accepted without the result, and the result appears in later reads of
// the pin.
type names struct {
	// lookup returns the addresses of a name; network is ip, ip4 or ip6. Set once.
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

	// mu guards the fields below. It is never held while calling out.
	mu       sync.Mutex
	verdicts *cache.Cache[string, *verdict] // key: network and name
	running  int
}

func newNames(lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)) names {
	return names{lookup: lookup, verdicts: cache.New[string, *verdict](maxVerdicts)}
}

// verdict is what the node knows about a name in an origin: whether its addresses may be dialled.
type verdict struct {
	why     string    // why the name is refused; empty if it is allowed or its result is not known yet
	until   time.Time // when the result expires
	running bool      // a lookup is in progress
}

// whyRefused returns why an address that begins with a name is refused; "" if it is allowed
// or not known yet. It starts a lookup if there is no valid result.
func (p *Peer) whyRefused(a ma.Multiaddr) string {
	network := ""
	switch a[0].Protocol().Code {
	case ma.P_DNS:
		network = "ip"
	case ma.P_DNS4:
		network = "ip4"
	case ma.P_DNS6:
		network = "ip6"
	default: // a dnsaddr is resolved by the dial
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

// known returns the stored result for a name. If look is true, there is no valid result and no
// running lookup: the caller must look up the name and call learn.
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

// learn stores the result of a lookup.
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

// notPublic returns an error text if all addresses found for the name in a are refused; ""
// if one is allowed or none was found.
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
