package state

// Applier applies commands to one store, one after the other, and caches the newest operation
// ids. The cache affects only speed. The zero value is ready to use. After the state of the store
// was replaced or applied commands were discarded, the caller must use a new Applier.
type Applier struct {
	ops recentOps
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
