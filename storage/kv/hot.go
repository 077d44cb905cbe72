package kv

// hotBytes is about how much memory the values take that a generation
// remembers, keys included.
const hotBytes = 4 << 20

// entryBytes is what an entry of a map takes beside its key and value.
const entryBytes = 96

// hot remembers committed values that transactions and views have read, and that
// there are none, so that records which everybody reads cost no look-up in Pebble:
// there is one writer, so a value stays true until it writes another. It is two
// maps: when the younger is full it becomes the older, and the older goes; what
// is read again is taken over.
type hot struct {
	younger, older map[string]fact
	bytes          int // of younger
}

// fact is what the newest commit holds for a key.
type fact struct {
	value  []byte // nobody changes it any more
	exists bool
	// since is a commit from which on this is so. It may have been so before.
	since uint64
}

func (h *hot) get(key []byte) (fact, bool) {
	if f, ok := h.younger[string(key)]; ok {
		return f, true
	}
	f, ok := h.older[string(key)]
	if ok {
		h.put(string(key), f)
	}
	return f, ok
}

// put remembers what the newest commit holds.
func (h *hot) put(key string, f fact) {
	size := len(key) + len(f.value) + entryBytes
	if size > hotBytes/16 {
		h.forget(key) // it would throw out too much
		return
	}
	old, known := h.younger[key]
	if known {
		h.bytes += len(f.value) - len(old.value)
	} else {
		h.bytes += size
	}
	if h.bytes > hotBytes/2 {
		h.older, h.younger, h.bytes = h.younger, nil, size
	}
	if h.younger == nil {
		h.younger = make(map[string]fact)
	}
	h.younger[key] = f
}

// update remembers what a commit has written in the place of what is remembered.
func (h *hot) update(key string, f fact) {
	_, young := h.younger[key]
	_, old := h.older[key]
	if young || old {
		h.put(key, f)
	}
}

func (h *hot) forget(key string) {
	if old, ok := h.younger[key]; ok {
		h.bytes -= len(key) + len(old.value) + entryBytes
		delete(h.younger, key)
	}
	delete(h.older, key)
}

// clear forgets everything.
func (h *hot) clear() { *h = hot{} }
