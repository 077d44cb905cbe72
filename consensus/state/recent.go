package state

// Applier applies commands to one store, one after the other, and caches its latest writes. The
// cache changes neither results nor writes. The zero value is ready to use. A caller that
// replaces the state of the store, or discards applied commands, must continue with a new
// Applier.
type Applier struct {
	ops recentOps
}

// recentOps caches the newest remembered operations. The store forgets one operation for
// each new one, and the cache saves reading it, which would be a look-up in the whole store
// because the key of a result is random.
type recentOps struct {
	ring       []recentOp // at most ringOps long; the operation with sequence n is at (n-base) % ringOps
	base, next uint64     // base: no gap since; next: sequence of the next operation
}

// ringOps is one more than the maximum, because the oldest operation is removed after the
// newest was added.
const ringOps = MaxOps + 1

type recentOp struct {
	id   OpID
	size uint32 // bytes of the result
}

// note caches a remembered operation.
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

// at returns a cached operation.
func (r *recentOps) at(n uint64) (op recentOp, ok bool) {
	if n < r.base || n >= r.next || r.next-n > uint64(len(r.ring)) {
		return recentOp{}, false
	}
	return r.ring[(n-r.base)%ringOps], true
}
