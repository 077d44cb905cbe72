package tracker

import (
	"encoding/binary"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Notes is what a node remembers for itself alone, across its processes: how
// often it has tried, and when it tries again. Only the end of all attempts is
// replicated. A crash may lose the newest notes; that costs an attempt more.
type Notes interface {
	Get(key string) (value []byte, ok bool)
	Set(key string, value []byte)
	Delete(key string)
	// Keys calls fn for every key there is, in any order. fn may delete.
	Keys(fn func(key string))
}

// noteVersion begins a note's value.
const noteVersion = 2

// note is what is remembered of the attempts to fetch one incarnation of a root.
type note struct {
	born     uint64
	attempts int           // failed in a row
	due      time.Time     // of the next one
	waited   time.Duration // without a block, in turns that were cut short
	reached  uint64        // blocks that a turn came to
	holder   bool          // somebody held it when the last one failed
	seen     uint64        // the state that the last one began with, by its index
}

// encode is the version and then, as varints, the fields in their order; due in
// milliseconds since 1970, waited in milliseconds.
func (n note) encode() []byte {
	b := []byte{noteVersion}
	holder := uint64(0)
	if n.holder {
		holder = 1
	}
	for _, v := range []uint64{
		n.born, uint64(max(n.attempts, 0)), uint64(max(n.due.UnixMilli(), 0)),
		uint64(max(n.waited.Milliseconds(), 0)), n.reached, holder, n.seen,
	} {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

// decodeNote reads what encode wrote; ok is false for anything else.
func decodeNote(b []byte) (n note, ok bool) {
	if len(b) == 0 || b[0] != noteVersion {
		return note{}, false
	}
	b = b[1:]
	var v [7]uint64
	for i := range v {
		x, used := binary.Uvarint(b)
		if used <= 0 {
			return note{}, false
		}
		v[i], b = x, b[used:]
	}
	const most = 1 << 40 // attempts and milliseconds beyond it are nonsense
	if len(b) > 0 || v[1] > most || v[2] > most*16 || v[3] > most {
		return note{}, false
	}
	return note{
		born: v[0], attempts: int(v[1]), due: time.UnixMilli(int64(v[2])),
		waited: time.Duration(v[3]) * time.Millisecond, reached: v[4], holder: v[5] == 1, seen: v[6],
	}, true
}

func (t *Tracker) noted(k state.RootKey) (note, bool) {
	b, ok := t.opts.Notes.Get(string(k))
	if !ok {
		return note{}, false
	}
	return decodeNote(b)
}

// note remembers how far the attempts have come.
func (d *dispatcher) note(e *entry, due time.Time) {
	e.noted = true
	n := note{e.born, e.attempts, due, e.waited, e.reached, e.holder, e.seen}
	d.t.opts.Notes.Set(string(e.root), n.encode())
}

// unnote forgets the attempts of a root that is held, given up or not wanted.
func (d *dispatcher) unnote(e *entry) {
	e.noted = true
	d.t.opts.Notes.Delete(string(e.root))
}

// auditNotes forgets what is noted of roots that are not wanted here any more, or held.
func (t *Tracker) auditNotes() error {
	view, release := t.opts.State.LocalView()
	defer release()
	var failed error
	t.opts.Notes.Keys(func(key string) {
		_, own, err := wanted(view, state.RootKey(key), t.opts.Self)
		switch {
		case err != nil:
			failed = err
		case own == nil, own.Phase == state.Held:
			t.opts.Notes.Delete(key)
		}
	})
	return failed
}
