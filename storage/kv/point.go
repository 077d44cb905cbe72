package kv

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// points has the states of a generation that open views read. A state lasts from one commit to the
// next. The newest state needs no snapshot, because Pebble itself has it until the next commit
// begins. That commit then takes one snapshot for all views of the state, if there are any. So an
// idle store keeps no old versions, and a view that ends before the next commit costs Pebble
// nothing.
type points struct {
	// mu guards the following fields and all points. It is never held during input or output.
	mu sync.Mutex
	// now is the newest state; nil during a commit and until a view needs it.
	now     *point
	writing bool   // a commit is running, so it is unknown whether a read of Pebble sees its writes
	commits uint64 // number of commits since the generation was opened, plus one
	recent  recent // cache of the newest state; the end of a commit updates it
}

// point is one state of the store, shared by all views that were opened between the same two
// commits.
type point struct {
	gen *generation
	// commit is the number of the newest commit in this state, or 0 if it is unknown.
	commit uint64
	views  int
	// filter has every key of the state that the filter selects; nil means that there is no
	// filter.
	filter *bits
	// snap is the snapshot of this state; nil means that nothing has been written since.
	snap *pebble.Snapshot
}

// current opens a view of the newest state.
func (g *generation) current() *point {
	s := &g.points
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writing {
		return &point{gen: g, views: 1, filter: g.filter.whole.Load(), snap: g.db.NewSnapshot()}
	}
	if s.now == nil {
		s.now = &point{gen: g, commit: s.commits, filter: g.filter.whole.Load()}
	}
	s.now.views++
	return s.now
}

// close ends one view of the state.
func (p *point) close() error {
	s := &p.gen.points
	s.mu.Lock()
	p.views--
	snap := p.snap
	if p.views > 0 {
		snap = nil
	}
	s.mu.Unlock()
	if snap == nil {
		return nil
	}
	return snap.Close() // no view can find the point any more
}

// writes records that a commit begins. Open views keep their state, by a snapshot.
func (s *points) writes(db *pebble.DB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now != nil && s.now.views > 0 {
		s.now.snap = db.NewSnapshot()
	}
	s.now, s.writing = nil, true
}

// wrote records the end of a commit, with the keys that its transaction has read and
// written. If the commit failed, the stored values are unknown.
func (s *points) wrote(keys map[string]*known, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.commits
	s.writing = false
	s.commits++
	if failed {
		s.recent.Clear()
		return
	}
	for key, k := range keys {
		switch {
		case k.written && k.reread && k.exists:
			s.recent.put(key, fact{value: k.value, exists: true, since: s.commits})
		case k.written: // most of what was only written is never read again
			s.recent.update(key, fact{value: k.value, exists: k.exists, since: s.commits})
		case k.reread:
			s.recent.put(key, fact{value: k.value, exists: true, since: before})
		}
	}
}

// recall returns what the cache has about a key in the newest state. The second result is false if
// it has nothing.
func (s *points) recall(key []byte) (fact, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recent.Get(string(key))
}

// newest returns the value of a key in the newest state. The second result is false if the key does
// not exist.
func (g *generation) newest(key []byte) ([]byte, bool, error) {
	if g.filter.lacks(key) {
		return nil, false, nil
	}
	f, known, commit := g.points.cached(key)
	if known {
		return owned(f.value, f.exists)
	}
	value, ok, err := get(g.db, key)
	if err == nil && g.points.found(key, value, ok, commit) {
		return owned(value, ok)
	}
	return value, ok, err
}

// cached returns what the cache has about a key, or otherwise the number of the newest commit.
// During a commit it returns neither, because a cached fact could be older than facts that the
// caller has read about other keys.
func (s *points) cached(key []byte) (f fact, known bool, commit uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writing {
		return fact{}, false, 0
	}
	f, known = s.recent.Get(string(key))
	return f, known, s.commits
}

// found stores a fact that was read from Pebble after a call of cached, which returned commit. If
// there was a commit in between, found stores nothing and returns false.
func (s *points) found(key, value []byte, exists bool, commit uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writing || s.commits != commit {
		return false
	}
	s.recent.put(string(key), fact{value: value, exists: exists, since: commit})
	return true
}

// recall returns what the cache has about a key in this state. If it has nothing, the caller must
// read the key from snap, or from Pebble itself if snap is nil.
func (p *point) recall(key []byte) (f fact, known bool, snap *pebble.Snapshot) {
	s := &p.gen.points
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, known = s.recent.Get(string(key)); known && f.since <= p.commit {
		return f, true, nil
	}
	return fact{}, false, p.snap
}

// source returns where to read this state: in the snapshot, or in Pebble itself if there is no
// snapshot.
func (p *point) source() *pebble.Snapshot {
	s := &p.gen.points
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.snap
}

// get returns the value of a key in this state. If no commit has begun since the state was current,
// get reads the value from Pebble itself and caches it. Otherwise it reads the value from the
// snapshot.
func (p *point) get(key []byte) ([]byte, bool, error) {
	if p.gen.filter.lacked(p.filter, key) {
		return nil, false, nil
	}
	f, known, snap := p.recall(key)
	if known {
		return owned(f.value, f.exists)
	}
	if snap == nil {
		value, ok, err := get(p.gen.db, key)
		if p.learned(key, value, ok, err) {
			if err != nil {
				return nil, false, err
			}
			return owned(value, ok)
		}
		snap = p.source()
	}
	return get(snap, key)
}

// learned caches a fact that was read from Pebble itself, if the fact belongs to this state. It
// returns whether it does.
func (p *point) learned(key, value []byte, exists bool, err error) bool {
	s := &p.gen.points
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.snap != nil {
		return false
	}
	if err == nil {
		s.recent.put(string(key), fact{value: value, exists: exists, since: p.commit})
	}
	return true
}

// iterator returns an iterator of this state. Later commits do not change it.
func (p *point) iterator(opts *pebble.IterOptions) (*pebble.Iterator, error) {
	if p.source() == nil {
		it, err := p.gen.db.NewIter(opts)
		if err != nil || p.source() == nil {
			return it, err
		}
		if err := it.Close(); err != nil {
			return nil, err
		}
	}
	return p.source().NewIter(opts)
}
