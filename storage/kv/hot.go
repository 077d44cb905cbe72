package kv

import "github.com/holdfast-ipfs/holdfast/internal/cache"

// hotBytes is about how much memory the values take that a generation
// remembers, keys included.
const hotBytes = 4 << 20

// entryBytes is what an entry of the cache takes beside its key and value.
const entryBytes = 160

// hot remembers committed values that transactions and views have read, and that
// there are none, so that records which everybody reads cost no look-up in Pebble:
// there is one writer, so a value stays true until it writes another.
type hot struct{ *cache.Cache[string, fact] }

// fact is what the newest commit holds for a key.
type fact struct {
	value  []byte // nobody changes it any more
	exists bool
	// since is a commit from which on this is so. It may have been so before.
	since uint64
}

func newHot() hot { return hot{cache.Weighted(hotBytes, weigh, nil)} }

// weigh is the memory of an entry, in bytes.
func weigh(key string, f fact) int { return len(key) + len(f.value) + entryBytes }

// put remembers what the newest commit holds.
func (h hot) put(key string, f fact) {
	if weigh(key, f) > hotBytes/16 {
		h.Remove(key) // it would throw out too much
		return
	}
	h.Put(key, f)
}

// update remembers what a commit has written in the place of what is remembered.
func (h hot) update(key string, f fact) {
	if _, known := h.Peek(key); known {
		h.put(key, f)
	}
}
