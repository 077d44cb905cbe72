package tracker

import (
	"encoding/binary"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// NodeMeta stores the attempts to fetch each root on this node's disk, so that they survive a
// restart. The replicated state has only their final result. A crash may lose the newest changes,
// which only causes one more attempt.
type NodeMeta interface {
	Get(key string) (value []byte, ok bool)
	Set(key string, value []byte)
	Delete(key string)
	// Keys calls fn with each key, in any order. fn may call Delete.
	Keys(fn func(key string))
}

// attemptsVersion is the first byte of an encoded record.
const attemptsVersion = 2

// attempts is the stored record of the attempts to fetch one incarnation of a root. Its fields
// are those of entry.
type attempts struct {
	born     uint64
	attempts int           // number of attempts that have failed in a row
	due      time.Time     // time of the next attempt
	waited   time.Duration // time without a block in fetches that had to yield their slot
	reached  uint64        // number of blocks that a fetch has reached
	holder   bool          // a node with the complete content answered during the last failed attempt
	seen     uint64        // log index of the state with which the last attempt began
}

// encode returns the version byte and then the fields as varints, in their order in the struct.
// due is in milliseconds since 1970, and waited in milliseconds.
func (n attempts) encode() []byte {
	b := []byte{attemptsVersion}
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

// decodeAttempts decodes a record that encode has made. ok is false if b is not such a record.
func decodeAttempts(b []byte) (n attempts, ok bool) {
	if len(b) == 0 || b[0] != attemptsVersion {
		return attempts{}, false
	}
	b = b[1:]
	var v [7]uint64
	for i := range v {
		x, used := binary.Uvarint(b)
		if used <= 0 {
			return attempts{}, false
		}
		v[i], b = x, b[used:]
	}
	const most = 1 << 40 // attempts and milliseconds beyond it are nonsense
	if len(b) > 0 || v[1] > most || v[2] > most*16 || v[3] > most {
		return attempts{}, false
	}
	return attempts{
		born: v[0], attempts: int(v[1]), due: time.UnixMilli(int64(v[2])),
		waited: time.Duration(v[3]) * time.Millisecond, reached: v[4], holder: v[5] == 1, seen: v[6],
	}, true
}

// attemptsOf returns the stored attempts of a root. ok is false if there are none.
func (t *Tracker) attemptsOf(k state.RootKey) (attempts, bool) {
	b, ok := t.opts.NodeMeta.Get(string(k))
	if !ok {
		return attempts{}, false
	}
	return decodeAttempts(b)
}

// saveAttempts stores the attempts of a root. due is the time of the next attempt.
func (d *dispatcher) saveAttempts(e *entry, due time.Time) {
	e.resumed = true
	n := attempts{e.born, e.attempts, due, e.waited, e.reached, e.holder, e.seen}
	d.t.opts.NodeMeta.Set(string(e.root), n.encode())
}

// forgetAttempts deletes the stored attempts of a root that is complete, given up or not wanted.
func (d *dispatcher) forgetAttempts(e *entry) {
	e.resumed = true
	d.t.opts.NodeMeta.Delete(string(e.root))
}

// auditNodeMeta deletes the stored attempts of roots that the state does not want on this node or
// records as held there.
func (t *Tracker) auditNodeMeta() error {
	view, release := t.opts.State.LocalView()
	defer release()
	var failed error
	t.opts.NodeMeta.Keys(func(key string) {
		_, own, err := wanted(view, state.RootKey(key), t.opts.Self)
		switch {
		case err != nil:
			failed = err
		case own == nil, own.Phase == state.Held:
			t.opts.NodeMeta.Delete(key)
		}
	})
	return failed
}
