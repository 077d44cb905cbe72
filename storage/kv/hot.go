package kv

// hotBytes is about how much memory the values take that are remembered for
// the transactions to come, keys included.
const hotBytes = 4 << 20

// entryBytes is what an entry of a map takes beside its key and value.
const entryBytes = 64

// hot remembers committed values that transactions have read, so that records
// which every transaction reads cost no look-up in Pebble: there is one writer,
// so a value stays true until it writes another. It belongs to who holds
// Store.writer. It is two maps: when the younger is full it becomes the older,
// and the older goes; what is read again is taken over.
type hot struct {
	younger, older map[string][]byte
	bytes          int // of younger
}

func (h *hot) get(key []byte) ([]byte, bool) {
	if value, ok := h.younger[string(key)]; ok {
		return value, true
	}
	value, ok := h.older[string(key)]
	if ok {
		h.put(string(key), value)
	}
	return value, ok
}

// put remembers a value, which nobody changes any more.
func (h *hot) put(key string, value []byte) {
	size := len(key) + len(value) + entryBytes
	if size > hotBytes/16 {
		h.forget(key) // it would throw out too much
		return
	}
	old, known := h.younger[key]
	if known {
		h.bytes += len(value) - len(old)
	} else {
		h.bytes += size
	}
	if h.bytes > hotBytes/2 {
		h.older, h.younger, h.bytes = h.younger, nil, size
	}
	if h.younger == nil {
		h.younger = make(map[string][]byte)
	}
	h.younger[key] = value
}

// update remembers a new value in the place of one that is remembered.
func (h *hot) update(key string, value []byte) {
	_, young := h.younger[key]
	_, old := h.older[key]
	if young || old {
		h.put(key, value)
	}
}

func (h *hot) forget(key string) {
	if old, ok := h.younger[key]; ok {
		h.bytes -= len(key) + len(old) + entryBytes
		delete(h.younger, key)
	}
	delete(h.older, key)
}

// clear forgets everything.
func (h *hot) clear() { *h = hot{} }
