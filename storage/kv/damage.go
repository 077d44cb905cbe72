package kv

import "sync"

// damage records whether a read or a background compaction has found bytes on the disk that differ
// from the written bytes.
type damage struct {
	once  sync.Once
	found chan struct{} // the first damage closes it
}

func newDamage() *damage { return &damage{found: make(chan struct{})} }

func (d *damage) note() { d.once.Do(func() { close(d.found) }) }

// isLive returns whether dir is the folder of the live generation.
func (s *Store) isLive(dir string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.live != nil && s.live.dir == dir
}

// Damaged returns a channel that is closed when the store finds corrupt data. Values that
// were read before are correct, but some can no longer be read.
func (s *Store) Damaged() <-chan struct{} { return s.damage.found }
