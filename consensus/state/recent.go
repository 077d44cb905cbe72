package state

// Applier applies commands to one store, one after the other, and has at hand what it has
// written lately: what Apply does, and what it writes, is the same without it. The zero value
// is ready to use. Whoever gives the store another state, or discards what was applied, goes on
// with a new one.
type Applier struct {
	ops recentOps
}

// recentOps is the newest operations that were remembered, so that those which a store in
// use forgets, one for each that comes, need not be read: the key of a result is random, so
// that was a look-up in the whole store.
type recentOps struct {
	ring        []recentOp // the one of sequence n is at n % len(ring)
	first, next uint64     // sequences that are in it
}

type recentOp struct {
	id   OpID
	size uint32 // bytes of the result
}

// note has an operation at hand that was remembered.
func (r *recentOps) note(n uint64, id OpID, size int) {
	if r.ring == nil {
		r.ring = make([]recentOp, MaxOps+1) // the oldest goes after the newest has come
	}
	if n != r.next {
		r.first = n // there were others in between
	}
	r.ring[n%uint64(len(r.ring))] = recentOp{id, uint32(size)} //nolint:gosec // at most MaxCommand
	r.next = n + 1
	r.first = max(r.first, r.next-min(r.next, uint64(len(r.ring))))
}

// at returns an operation that is at hand.
func (r *recentOps) at(n uint64) (op recentOp, ok bool) {
	if n < r.first || n >= r.next {
		return recentOp{}, false
	}
	return r.ring[n%uint64(len(r.ring))], true
}
