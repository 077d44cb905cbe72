// Package cache keeps what was used last, up to a bound.
//
// Imports: github.com/hashicorp/golang-lru.
// Never:   anything of ours.
package cache

import (
	"math"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Cache maps keys to values. When it holds more than its bound, the entries that were not
// used for the longest time go. It is for one goroutine at a time; Locked is for many.
type Cache[K comparable, V any] struct {
	entries *simplelru.LRU[K, V]
	weigh   func(K, V) int
	weight  int
	most    int
}

// New returns a cache of at most so many entries.
func New[K comparable, V any](entries int) *Cache[K, V] {
	return Weighted(entries, func(K, V) int { return 1 }, nil)
}

// Weighted returns a cache of entries that weigh at most so much together. One that weighs
// more alone is not kept. gone, if it is not nil, is called with each entry that leaves the
// cache, but not with a value that Put replaces.
func Weighted[K comparable, V any](most int, weigh func(K, V) int, gone func(K, V)) *Cache[K, V] {
	c := &Cache[K, V]{weigh: weigh, most: most}
	// The size is above 0, so there is no error.
	c.entries, _ = simplelru.NewLRU(math.MaxInt, func(key K, value V) {
		c.weight -= weigh(key, value)
		if gone != nil {
			gone(key, value)
		}
	})
	return c
}

// Get returns the value of a key, which counts as a use.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) { return c.entries.Get(key) }

// Peek returns the value of a key, which does not count as a use.
func (c *Cache[K, V]) Peek(key K) (value V, ok bool) { return c.entries.Peek(key) }

// Put sets the value of a key, which counts as a use.
func (c *Cache[K, V]) Put(key K, value V) {
	if old, ok := c.entries.Peek(key); ok {
		c.weight -= c.weigh(key, old)
	}
	c.entries.Add(key, value)
	for c.weight += c.weigh(key, value); c.weight > c.most; {
		c.entries.RemoveOldest()
	}
}

// Remove forgets a key.
func (c *Cache[K, V]) Remove(key K) { c.entries.Remove(key) }

// Clear forgets everything.
func (c *Cache[K, V]) Clear() { c.entries.Purge() }

// Len returns the number of entries.
func (c *Cache[K, V]) Len() int { return c.entries.Len() }

// Weight returns the weight of all entries together.
func (c *Cache[K, V]) Weight() int { return c.weight }

// Locked is a Cache for many goroutines.
type Locked[K comparable, V any] struct {
	mu    sync.Mutex // guards cache
	cache *Cache[K, V]
}

// NewLocked returns a cache of at most so many entries.
func NewLocked[K comparable, V any](entries int) *Locked[K, V] {
	return &Locked[K, V]{cache: New[K, V](entries)}
}

// Get calls Cache.Get and holds the lock meanwhile.
func (l *Locked[K, V]) Get(key K) (value V, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cache.Get(key)
}

// Put calls Cache.Put and holds the lock meanwhile.
func (l *Locked[K, V]) Put(key K, value V) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cache.Put(key, value)
}

// Len calls Cache.Len and holds the lock meanwhile.
func (l *Locked[K, V]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cache.Len()
}
