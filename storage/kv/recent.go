package kv

import "github.com/holdfast-ipfs/holdfast/internal/cache"

// recentBytes bounds the memory of the cache of a generation, in bytes. Keys and entryBytes
// count too.
const recentBytes = 4 << 20

// entryBytes is the memory of a cache entry in addition to its key and value, in bytes.
const entryBytes = 160

// recent caches keys that were read recently: their values in the newest commit, or the fact that
// they do not exist. So records that every request reads are seldom searched in Pebble. The store
// has only one writer, so an entry stays valid until this writer writes the key.
type recent struct{ *cache.Cache[string, fact] }

// fact is the value of a key in the newest commit, or the fact that the key does not exist.
type fact struct {
	value  []byte // must not be changed
	exists bool
	// since is a commit from which on the fact is true. The fact may have been true earlier.
	since uint64
}

func newRecent() recent { return recent{cache.Weighted(recentBytes, weigh, nil)} }

// weigh returns the memory of an entry in bytes.
func weigh(key string, f fact) int { return len(key) + len(f.value) + entryBytes }

// put caches a fact of the newest commit. If the fact is larger than 1/16 of recentBytes, put
// removes the entry instead.
func (h recent) put(key string, f fact) {
	if weigh(key, f) > recentBytes/16 {
		h.Remove(key)
		return
	}
	h.Put(key, f)
}

// update replaces the cached fact of a key by the one that a commit has written.
func (h recent) update(key string, f fact) {
	if _, known := h.Peek(key); known {
		h.put(key, f)
	}
}
