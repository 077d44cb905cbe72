package kv

import "github.com/holdfast-ipfs/holdfast/internal/cache"

// recentBytes bounds the memory of the cache of a generation, in bytes with keys and
// entryBytes.
const recentBytes = 4 << 20

// entryBytes is the memory of a cache entry beside its key and value, in bytes.
const entryBytes = 160

// recent is the cache of recently read keys: their values in the newest commit, or their
// absence. Records that every request reads then cost no look-up in Pebble. There is one
// writer, so an entry stays valid until that writes the key.
type recent struct{ *cache.Cache[string, fact] }

// fact is what the newest commit holds for a key.
type fact struct {
	value  []byte // must not be changed
	exists bool
	// since is a commit from which on the fact holds. It may have held earlier.
	since uint64
}

func newRecent() recent { return recent{cache.Weighted(recentBytes, weigh, nil)} }

// weigh is the memory of an entry, in bytes.
func weigh(key string, f fact) int { return len(key) + len(f.value) + entryBytes }

// put stores the fact of the newest commit. It removes one that is larger than 1/16 of
// recentBytes.
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
