package clustertest

import (
	"hash/maphash"
	"slices"
	"sync/atomic"
)

// tree is a node of a persistent treap, an ordered map in which a change copies the path to the
// changed node. So a reader that holds an older root still sees the older map.
type tree struct {
	key         string
	value       []byte
	priority    uint64
	left, right *tree
}

// seed is the seed of the hash that gives the priorities of nodes. They determine the shape of
// the tree, which callers cannot see.
type seed struct{ maphash.Seed }

func newSeed() seed { return seed{maphash.MakeSeed()} }

func (t *tree) get(key string) ([]byte, bool) {
	for t != nil {
		switch {
		case key < t.key:
			t = t.left
		case key > t.key:
			t = t.right
		default:
			return t.value, true
		}
	}
	return nil, false
}

func (t *tree) set(key string, value []byte, priority uint64) *tree {
	if t == nil {
		return &tree{key: key, value: value, priority: priority}
	}
	n := *t
	switch {
	case key < t.key:
		n.left = t.left.set(key, value, priority)
		if l := n.left; l.priority > n.priority { // rotate right; l is a copy of ours
			n.left, l.right = l.right, &n
			return l
		}
	case key > t.key:
		n.right = t.right.set(key, value, priority)
		if r := n.right; r.priority > n.priority {
			n.right, r.left = r.left, &n
			return r
		}
	default:
		n.value = value
	}
	return &n
}

func (t *tree) remove(key string) *tree {
	if t == nil {
		return nil
	}
	n := *t
	switch {
	case key < t.key:
		n.left = t.left.remove(key)
	case key > t.key:
		n.right = t.right.remove(key)
	default:
		return merge(t.left, t.right)
	}
	return &n
}

// merge joins two trees. All keys of a must be below those of b.
func merge(a, b *tree) *tree {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.priority > b.priority:
		n := *a
		n.right = merge(a.right, b)
		return &n
	}
	n := *b
	n.left = merge(a, b.left)
	return &n
}

// walk calls fn for the keys in [lower, upper), in reverse order if reverse is true. If bounded
// is false, it ignores upper. It returns whether to continue.
func (t *tree) walk(lower, upper string, bounded, reverse bool, fn func(*tree) (bool, error)) (bool, error) {
	if t == nil {
		return true, nil
	}
	above, below := t.key >= lower, !bounded || t.key < upper
	first, second := t.left, t.right
	firstIn, secondIn := above, below
	if reverse {
		first, second, firstIn, secondIn = second, first, secondIn, firstIn
	}
	if firstIn {
		if more, err := first.walk(lower, upper, bounded, reverse, fn); !more || err != nil {
			return false, err
		}
	}
	if above && below {
		if more, err := fn(t); !more || err != nil {
			return false, err
		}
	}
	if !secondIn {
		return true, nil
	}
	return second.walk(lower, upper, bounded, reverse, fn)
}

// snapshot is a state.Reader of one tree.
type snapshot struct {
	root  *tree
	reads *atomic.Uint64 // counter of reads; nil means no count
	fault *fault         // nil means that no read fails
}

// fault makes one read fail.
type fault struct {
	left atomic.Int64 // number of reads before the failing one
	err  error
}

// meet counts a read, and returns the error if this read must fail. f may be nil.
func (f *fault) meet() error {
	if f != nil && f.left.Add(-1) == -1 {
		return f.err
	}
	return nil
}

// Get implements state.Reader.
func (s snapshot) Get(key []byte) ([]byte, bool, error) {
	if s.reads != nil {
		s.reads.Add(1)
	}
	if err := s.fault.meet(); err != nil {
		return nil, false, err
	}
	value, ok := s.root.get(string(key))
	return slices.Clone(value), ok, nil
}

// Scan implements state.Reader. It overwrites the slices that it has passed to fn before the
// next call of fn, so that code that keeps them fails its tests.
func (s snapshot) Scan(lower, upper []byte, reverse bool, fn func(key, value []byte) (bool, error)) error {
	if err := s.fault.meet(); err != nil {
		return err
	}
	var key, value []byte
	_, err := s.root.walk(string(lower), string(upper), upper != nil, reverse, func(t *tree) (bool, error) {
		key, value = append(key[:0], t.key...), append(value[:0], t.value...)
		return fn(key, value)
	})
	return err
}

// transaction is a state.Tx whose changes are not visible outside of it until its root is taken
// over.
type transaction struct {
	snapshot
	seed seed
}

// Set implements state.Tx.
func (t *transaction) Set(key, value []byte) error {
	k := string(key)
	t.root = t.root.set(k, slices.Clone(value), maphash.String(t.seed.Seed, k))
	return nil
}

// Delete implements state.Tx.
func (t *transaction) Delete(key []byte) error {
	k := string(key)
	if _, ok := t.root.get(k); ok {
		t.root = t.root.remove(k)
	}
	return nil
}
