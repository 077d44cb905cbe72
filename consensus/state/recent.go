package state

// Applier applies commands to one store, one after the other, and caches the newest operation
// ids and the pins of new roots. The caches affect only speed. The zero value is ready to use, and
// caches no pins. After the state of the store was replaced or applied commands were discarded, the
// caller must call Reset or use another Applier.
type Applier struct {
	ops    recentOps
	firsts *firstPins // nil: no cache
}

// FirstPins is a cache of the pins that have created roots, for the newest roots. Its methods may be
// called concurrently.
type FirstPins interface {
	Get(k RootKey) (p FirstPin, known bool)
	Put(k RootKey, p FirstPin)
}

// FirstPin is the pin that has created a root.
type FirstPin struct {
	Account AccountID
	ID      RequestID
}

// NewApplier returns an Applier with all caches. pins is empty, and only the Applier uses it.
func NewApplier(pins FirstPins) *Applier { return &Applier{firsts: &firstPins{pins}} }

// Reset empties the cache of operations. That of pins is only a hint and may stay.
func (a *Applier) Reset() { a.ops = recentOps{} }

// View returns a view of the state in r, as NewView does. It uses the cache of pins, also while
// commands are applied.
func (a *Applier) View(r Reader, index uint64) View {
	return View{r: r, index: index, firsts: a.firsts}
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

// firstPins caches which pin created a root. Most roots have one pin, and a moment after its creation
// that pin is needed several times: when nodes fetch the root and when they report about it. To find
// it in an index is slow, because the keys of these indexes are in random order and spread over the
// whole store. A nil cache is empty. Its methods may be called concurrently.
type firstPins struct{ pins FirstPins }

// note adds the pin that has created a root.
func (f *firstPins) note(k RootKey, p *Pin) {
	if f != nil {
		f.pins.Put(k, FirstPin{p.Account, p.ID})
	}
}

// only returns the pin that is attached to a root, if the root has one pin and the cache knows it.
// Otherwise it returns nil, and the caller searches the index. It does not trust the cache: a pin
// that waits for the root and has not failed is attached to it.
func (f *firstPins) only(r Reader, root *Root) (*Pin, error) {
	if f == nil || root.Refs != 1 {
		return nil, nil
	}
	at, known := f.pins.Get(root.Key)
	if !known {
		return nil, nil
	}
	p, err := findPin(r, at.Account, at.ID)
	if err != nil || p == nil || p.Status == Failed {
		return nil, err
	}
	if of, err := p.root(); err != nil || of != root.Key {
		return nil, err
	}
	return p, nil
}
