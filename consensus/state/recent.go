package state

// Applier applies commands to one store, one after the other, and caches the newest operation
// ids and the pins of new roots. The caches affect only speed. The zero value is ready to use. After
// the state of the store was replaced or applied commands were discarded, the caller must use a new
// Applier.
type Applier struct {
	ops    recentOps
	firsts firstPins
}

// recentOps caches the newest remembered operations. For each new operation, the state forgets
// the oldest one, whose id and size it must know. The cache avoids reading them from the store,
// which is slow because the keys of results are spread over the whole store.
type recentOps struct {
	ring       []recentOp // at most ringOps long; the operation with sequence n is at (n-base) % ringOps
	base, next uint64     // the cache has the operations with sequences in [base, next), as far as ring has room
}

// ringOps is the capacity of the cache: one more than MaxOps, because the oldest operation is
// removed after the newest was added.
const ringOps = MaxOps + 1

type recentOp struct {
	id   OpID
	size uint32 // bytes of the result
}

// note adds the operation with sequence n to the cache.
func (r *recentOps) note(n uint64, id OpID, size int) {
	if n != r.next {
		r.ring, r.base = r.ring[:0], n // there were others in between
	}
	op := recentOp{id, uint32(size)} //nolint:gosec // at most MaxCommand
	if len(r.ring) < ringOps {
		r.ring = append(r.ring, op)
	} else {
		r.ring[(n-r.base)%ringOps] = op
	}
	r.next = n + 1
}

// at returns the operation with sequence n, and whether it is in the cache.
func (r *recentOps) at(n uint64) (op recentOp, ok bool) {
	if n < r.base || n >= r.next || r.next-n > uint64(len(r.ring)) {
		return recentOp{}, false
	}
	return r.ring[(n-r.base)%ringOps], true
}

// firstPins caches which pin created a root. Most roots have one pin, and a report about a new root
// changes that pin a moment later. To find the pin in the index of attached pins is slow, because
// the index is in random order and spread over the whole store.
type firstPins struct {
	pins map[RootKey]firstPin
	ring []RootKey // at most maxFirstPins long
	next int       // place in ring of the oldest root
}

type firstPin struct {
	account AccountID
	id      RequestID
}

// maxFirstPins is the capacity of the cache: the roots that are created in some seconds.
const maxFirstPins = 8192

// note adds the pin that has created a root. A nil cache stays empty.
func (f *firstPins) note(k RootKey, p *Pin) {
	if f == nil {
		return
	}
	if f.pins == nil {
		f.pins = make(map[RootKey]firstPin)
	}
	if _, known := f.pins[k]; !known {
		if len(f.ring) < maxFirstPins {
			f.ring = append(f.ring, k)
		} else {
			delete(f.pins, f.ring[f.next])
			f.ring[f.next] = k
			f.next = (f.next + 1) % maxFirstPins
		}
	}
	f.pins[k] = firstPin{p.Account, p.ID}
}

// only returns the pin that is attached to a root, if the root has one pin and the cache knows it.
// Otherwise it returns nil, and the caller searches the index. It does not trust the cache: a pin
// that waits for the root and has not failed is attached to it.
func (e *entry) only(r Reader, root *Root) (*Pin, error) {
	if e.firsts == nil || root.Refs != 1 {
		return nil, nil
	}
	at, known := e.firsts.pins[root.Key]
	if !known {
		return nil, nil
	}
	p, err := findPin(r, at.account, at.id)
	if err != nil || p == nil || p.Status == Failed {
		return nil, err
	}
	if of, err := p.root(); err != nil || of != root.Key {
		return nil, err
	}
	return p, nil
}
