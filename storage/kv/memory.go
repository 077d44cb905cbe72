package kv

// MemoryBytes returns the memory in bytes that Pebble holds for memtables and cached blocks; 0 after
// Close. It has at most the size of the block cache for long: Pebble takes the memory of memtables
// from the cache.
func (s *Store) MemoryBytes() uint64 {
	g, err := s.acquire()
	if err != nil {
		return 0
	}
	m := g.db.Metrics()
	if err := g.release(s.log); err != nil {
		s.log.Error("cannot release the store", "err", err)
	}
	return uint64(max(0, m.BlockCache.Size)) + m.MemTable.Size + m.MemTable.ZombieSize
}
