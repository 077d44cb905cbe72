package accounts

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/cache"
)

// Limits for wrong passwords.
const (
	// DefaultTries is how many wrong passwords are accepted for a name within triesWithin,
	// unless Options contain another number.
	DefaultTries = 5
	// addressTries is the factor by which more wrong passwords are accepted from one address than
	// for one name, because many people may share an address.
	addressTries = 10
	triesWithin  = time.Minute
	// maxTried is the number of names and addresses that a node remembers. The oldest are
	// forgotten first.
	maxTried = 1 << 15
)

// tries counts wrong passwords on this node, by name and by client address. It counts names
// without an account too.
type tries struct {
	perName, perAddress int
	seed                maphash.Seed

	// mu guards the fields below.
	mu      sync.Mutex
	times   *cache.Cache[uint64, []int64] // times of attempts, oldest first, in nanoseconds
	pending map[uint64]int                // number of attempts whose result is not known yet
}

func newTries(perName int) *tries {
	if perName <= 0 {
		perName = DefaultTries
	}
	return &tries{
		perName: perName, perAddress: perName * addressTries, seed: maphash.MakeSeed(),
		times: cache.New[uint64, []int64](maxTried), pending: map[uint64]int{},
	}
}

// take counts an attempt as wrong until its result is passed to end.
//
// Errors: state.ErrLimited if there were too many wrong attempts within a minute;
// state.ErrUnavailable if there are too many when attempts without a result are included.
func (t *tries) take(now time.Time, name string, from netip.Addr) (end func(wrong bool), err error) {
	normal, err := NormalEmail(name)
	if err != nil {
		normal = "" // all names that no account can have are one
	}
	keys := []uint64{maphash.Comparable(t.seed, normal)}
	most := []int{t.perName}
	if from.IsValid() {
		keys, most = append(keys, maphash.Comparable(t.seed, Network(from))), append(most, t.perAddress)
	}
	at := now.UnixNano()
	t.mu.Lock()
	defer t.mu.Unlock()
	busy := false
	for i, k := range keys {
		n := len(t.recent(k, at))
		if n-t.pending[k] >= most[i] {
			return nil, state.Errorf(state.CodeLimited, "too many attempts to sign in")
		}
		busy = busy || n >= most[i]
	}
	if busy {
		return nil, tooManyAtOnce()
	}
	for _, k := range keys {
		t.times.Put(k, append(t.recent(k, at), at))
		t.pending[k]++
	}
	return func(wrong bool) { t.end(keys, at, wrong) }, nil
}

// recent returns the times of the attempts of a key within triesWithin. It ignores times far in
// the future, which exist after the clock was set back. The caller must hold mu.
func (t *tries) recent(k uint64, now int64) []int64 {
	times, _ := t.times.Peek(k)
	for len(times) > 0 && (times[0] <= now-int64(triesWithin) || times[0] > now+int64(triesWithin)) {
		times = times[1:]
	}
	return times
}

func (t *tries) end(keys []uint64, at int64, wrong bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range keys {
		if t.pending[k]--; t.pending[k] == 0 {
			delete(t.pending, k)
		}
		if wrong {
			continue
		}
		times := t.recent(k, at)
		for i, then := range times {
			if then != at {
				continue
			}
			if len(times) > 1 {
				t.times.Put(k, append(times[:i:i], times[i+1:]...))
			} else { // an empty one would take the place of one that counts
				t.times.Remove(k)
			}
			break
		}
	}
}

// Network returns the address or network that counts as one client: an IPv4 address, or the /64
// of an IPv6 address, because one host usually has all addresses of a /64.
func Network(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return a
	}
	p, err := a.Prefix(64)
	if err != nil {
		return netip.Addr{}
	}
	return p.Addr()
}
