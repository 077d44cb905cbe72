package kv

import "sync"

// damage remembers that bytes on disk turned out not to be those that were
// written, whoever met them: a reader, or a compaction in the background.
type damage struct {
	once  sync.Once
	found chan struct{} // closed by the first
}

func newDamage() *damage { return &damage{found: make(chan struct{})} }

func (d *damage) note() { d.once.Do(func() { close(d.found) }) }

// isLive tells whether dir is the folder of the live generation.
func (s *Store) isLive(dir string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.live != nil && s.live.dir == dir
}

// Damaged is closed once corrupt data was met. What was read is never wrong
// because of it, but not everything can be read any more.
func (s *Store) Damaged() <-chan struct{} { return s.damage.found }
