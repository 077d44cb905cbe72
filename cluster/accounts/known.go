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

// Limits of the sign-ins that a node remembers.
const (
	// knownFor is how long a node remembers that somebody has signed in with a given name from a given
	// network.
	knownFor = 30 * 24 * time.Hour
	// maxKnown is the number of names that are remembered. The name with the oldest sign-in is
	// forgotten first.
	maxKnown = 4096
	// maxKnownNetworks is the number of networks of one name that are remembered, so that one
	// account cannot displace the others.
	maxKnownNetworks = 8
	// knownTries is how often per minute callers with one name may use the queue of regulars;
	// callers from one network may use it addressTries times as often. So the owner of one
	// account cannot occupy the whole queue.
	knownTries = 10
)

// known remembers recent sign-ins through this node, by name and network. It authenticates
// nobody. Callers that it knows are served before unknown ones, so that a flood of wrong
// passwords does not keep regular users out. It stores keyed hashes instead of names and
// addresses; the key is only in memory.
type known struct {
	key    []byte
	firsts *tries // counts the uses of the queue of regulars

	mu sync.Mutex                               // guards by
	by *cache.Cache[[sha256.Size]byte, []place] // networks by hash of the name; the newest is last
}

// place is a network from which somebody signed in with a name.
type place struct {
	network [sha256.Size]byte // hash of the name and the network
	last    time.Time
}

func newKnown() *known {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails, see crypto/rand
	return &known{key: key, firsts: newTries(knownTries), by: cache.New[[sha256.Size]byte, []place](maxKnown)}
}

// names returns the hash of a name, and the hash of the name together with a network.
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

// note remembers a successful sign-in with a name from an address.
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

// first returns whether a sign-in with a name from an address may use the queue of regulars, and
// counts that use. Its duration does not depend on whether the name is known.
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

// neighbours returns the network as which an address is remembered: the /24 of an IPv4 address,
// because many clients get another address of it every day, and the /64 of an IPv6 address.
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
