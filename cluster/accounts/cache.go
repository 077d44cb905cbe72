package accounts

import (
	"crypto/sha256"
	"sync"
)

// maxVerified is how many tokens' signatures are remembered as good, about
// 500 bytes each.
const maxVerified = 8192

// cache remembers the claims of tokens whose signature was found good, by the
// hash of the token: whether it is still valid is asked of the state each time.
// It is two maps: when the younger is full it becomes the older, and the older
// goes. What is in use is taken over, so it stays.
type cache struct {
	half int // entries of one map

	// mu guards what follows.
	mu             sync.Mutex
	younger, older map[[sha256.Size]byte]claims
}

func newCache(size int) *cache {
	return &cache{half: max(1, size/2), younger: map[[sha256.Size]byte]claims{}}
}

func (c *cache) get(hash [sha256.Size]byte) (claims, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found, ok := c.younger[hash]; ok {
		return found, true
	}
	found, ok := c.older[hash]
	if ok {
		c.keep(hash, found)
	}
	return found, ok
}

func (c *cache) put(hash [sha256.Size]byte, found claims) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(hash, found)
}

// keep needs mu.
func (c *cache) keep(hash [sha256.Size]byte, found claims) {
	if len(c.younger) >= c.half {
		c.older, c.younger = c.younger, make(map[[sha256.Size]byte]claims, c.half)
	}
	c.younger[hash] = found
}
