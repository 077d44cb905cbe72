package accounts

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/cache"
)

// Bounds of what a node remembers of who signed in.
const (
	// knownFor is how long who signed in with a name from a network is known there.
	knownFor = 30 * 24 * time.Hour
	// maxKnown is how many names are remembered. The one that signed in the longest ago
	// is forgotten first.
	maxKnown = 4096
	// maxKnownNetworks is how many networks of a name are remembered, so that one account
	// cannot have the others forgotten.
	maxKnownNetworks = 8
	// knownTries is how often a minute a name may go first, and addressTries times as often
	// a network: who has an account cannot take the place for those who are known.
	knownTries = 10
)

// known records recent sign-ins, by name and by network, on this node since its start. It does
// not authenticate. Its callers are served before unknown ones, so that a flood of wrong
// passwords does not keep regular users out. It holds keyed hashes, no names and no addresses,
// and the key is in memory only.
type known struct {
	key    []byte
	firsts *tries // how often who is known went first

	mu sync.Mutex                               // guards by
	by *cache.Cache[[sha256.Size]byte, []place] // the newest place is last
}

// place is a network that a name signed in from.
type place struct {
	network [sha256.Size]byte // hash of the name and the network
	last    time.Time
}

func newKnown() *known {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails, see crypto/rand
	return &known{key: key, firsts: newTries(knownTries), by: cache.New[[sha256.Size]byte, []place](maxKnown)}
}

// names returns the hashes of a name, and of the name and a network.
func (k *known) names(name string, network netip.Addr) (of, from [sha256.Size]byte) {
	normal, err := NormalEmail(name)
	if err != nil {
		normal = ""
	}
	sum := func(parts ...[]byte) [sha256.Size]byte {
		h := hmac.New(sha256.New, k.key)
		for _, p := range parts {
			h.Write(p)
		}
		return [sha256.Size]byte(h.Sum(nil))
	}
	address := network.As16()
	of = sum([]byte(normal))
	return of, sum(of[:], address[:])
}

// note remembers that a name signed in from an address.
func (k *known) note(now time.Time, name string, from netip.Addr) {
	of, network := k.names(name, neighbours(from))
	k.mu.Lock()
	defer k.mu.Unlock()
	before, _ := k.by.Peek(of)
	places := slices.DeleteFunc(before, func(p place) bool { return p.network == network || p.over(now) })
	if len(places) >= maxKnownNetworks {
		places = places[1:]
	}
	k.by.Put(of, append(places, place{network, now}))
}

func (p place) over(now time.Time) bool { return now.Sub(p.last) >= knownFor }

// first tells whether who signs in with a name from an address may go first, and counts it
// if so. It does the same work for every name.
func (k *known) first(now time.Time, name string, from netip.Addr) bool {
	from = neighbours(from)
	of, network := k.names(name, from)
	k.mu.Lock()
	places, _ := k.by.Peek(of)
	there := slices.ContainsFunc(places, func(p place) bool { return p.network == network && !p.over(now) })
	k.mu.Unlock()
	if !there {
		return false
	}
	end, err := k.firsts.take(now, name, from)
	if err == nil {
		end(true) // it counts
	}
	return err == nil
}

// neighbours returns the network that an address is known by: the /24 of an IPv4 one, since many
// get another one of it every day, and the /64 of an IPv6 one.
func neighbours(a netip.Addr) netip.Addr {
	a = Network(a)
	if !a.Is4() {
		return a
	}
	p, err := a.Prefix(24)
	if err != nil {
		return netip.Addr{}
	}
	return p.Addr()
}
