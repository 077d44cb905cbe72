package peer

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"

	"github.com/ipfs/go-libdht/kad/key/bitstr"
	mh "github.com/multiformats/go-multihash"
)

// Sizes of a keystore.
const (
	keystoreBits  = 12 // of a key choose its shelf
	keystoreBatch = 1 << 10
)

// keystore holds the multihashes of the roots that are announced, by their keys
// in the DHT, for the provider that sweeps over them. It is in memory, about 80
// bytes for each: the state is where they come from.
type keystore struct {
	// mu guards what follows.
	mu      sync.Mutex
	shelves [1 << keystoreBits][]keptRoot
	size    int
	round   uint8               // of sweep
	gone    map[string]struct{} // deleted since look, and not put again; nil: there is no look
}

// keptRoot is one multihash with its key in the DHT at hand again by sha256.
type keptRoot struct {
	hash  string
	round uint8 // when it was last put
}

func dhtKey(hash string) [sha256.Size]byte { return sha256.Sum256([]byte(hash)) }

func shelfOf(key [sha256.Size]byte) int { return int(key[0])<<4 | int(key[1])>>4 }

// look begins a look at all roots, which ends with sweep. What is deleted meanwhile does not
// come back by it: what it sees may be from before.
func (k *keystore) look() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gone = map[string]struct{}{}
}

// hold is put for a look.
func (k *keystore) hold(hash mh.Multihash) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, gone := k.gone[string(hash)]
	return !gone && k.add(string(hash))
}

// put adds one multihash and tells whether it is new.
func (k *keystore) put(hash mh.Multihash) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.gone, string(hash))
	return k.add(string(hash))
}

// add is put. The caller holds mu.
func (k *keystore) add(text string) bool {
	at := shelfOf(dhtKey(text))
	shelf := k.shelves[at]
	for i := range shelf {
		if shelf[i].hash == text {
			shelf[i].round = k.round
			return false
		}
	}
	k.shelves[at] = append(shelf, keptRoot{text, k.round})
	k.size++
	return true
}

// only returns those of the hashes that are there.
func (k *keystore) only(hashes []mh.Multihash) (there []mh.Multihash) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range hashes {
		shelf := k.shelves[shelfOf(dhtKey(string(h)))]
		if slices.ContainsFunc(shelf, func(r keptRoot) bool { return r.hash == string(h) }) {
			there = append(there, h)
		}
	}
	return there
}

// sweep returns what was not put since it was called last.
func (k *keystore) sweep() (old []mh.Multihash) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, shelf := range k.shelves {
		for _, r := range shelf {
			if r.round != k.round {
				old = append(old, mh.Multihash(r.hash))
			}
		}
	}
	k.round++
	k.gone = nil
	return old
}

// Put implements the provider's keystore.
func (k *keystore) Put(_ context.Context, hashes ...mh.Multihash) (fresh []mh.Multihash, err error) {
	for _, h := range hashes {
		if k.put(h) {
			fresh = append(fresh, h)
		}
	}
	return fresh, nil
}

// each calls fn with what has a prefix, until fn says false.
func (k *keystore) each(prefix bitstr.Key, fn func(hash string) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	first, last := 0, 1<<keystoreBits-1
	for i := range min(len(prefix), keystoreBits) {
		half := 1 << (keystoreBits - 1 - i)
		if prefix[i] == '1' {
			first += half
		} else {
			last -= half
		}
	}
	for _, shelf := range k.shelves[first : last+1] {
		for _, r := range shelf {
			if hasPrefix(dhtKey(r.hash), prefix) && !fn(r.hash) {
				return
			}
		}
	}
}

func hasPrefix(key [sha256.Size]byte, prefix bitstr.Key) bool {
	for i := range len(prefix) {
		if i >= 8*len(key) || key[i/8]>>(7-i%8)&1 != prefix[i]-'0' {
			return false
		}
	}
	return true
}

// Get implements the provider's keystore.
func (k *keystore) Get(_ context.Context, prefix bitstr.Key) (found []mh.Multihash, err error) {
	k.each(prefix, func(hash string) bool { found = append(found, mh.Multihash(hash)); return true })
	return found, nil
}

// CountKeysUpTo implements the provider's keystore.
func (k *keystore) CountKeysUpTo(_ context.Context, prefix bitstr.Key, limit int) (n int, err error) {
	k.each(prefix, func(string) bool { n++; return limit <= 0 || n < limit })
	return n, nil
}

// ContainsPrefix implements the provider's keystore.
func (k *keystore) ContainsPrefix(ctx context.Context, prefix bitstr.Key) (bool, error) {
	n, err := k.CountKeysUpTo(ctx, prefix, 1)
	return n > 0, err
}

// Delete implements the provider's keystore.
func (k *keystore) Delete(_ context.Context, hashes ...mh.Multihash) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range hashes {
		if k.gone != nil {
			k.gone[string(h)] = struct{}{}
		}
		at := shelfOf(dhtKey(string(h)))
		shelf := k.shelves[at]
		for i := range shelf {
			if shelf[i].hash == string(h) {
				shelf[i] = shelf[len(shelf)-1]
				k.shelves[at] = shelf[:len(shelf)-1]
				k.size--
				break
			}
		}
	}
	return nil
}

// Empty implements the provider's keystore.
func (k *keystore) Empty(context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.shelves[:])
	k.size = 0
	return nil
}

// Size implements the provider's keystore.
func (k *keystore) Size(context.Context) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.size, nil
}

// BatchSize implements the provider's keystore.
func (k *keystore) BatchSize() int { return keystoreBatch }

// Close implements the provider's keystore.
func (k *keystore) Close() error { return nil }
