package raftlog

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/holdfast-ipfs/holdfast/storage/kv"
)

// Four concurrent callers verify one good snapshot, and it is good for all. Raft sends one snapshot to several
// followers, and each asks for it by itself.
func TestASnapshotIsVerifiedForManyAtOnce(t *testing.T) {
	state, dir := openKV(t, t.TempDir()), t.TempDir()
	for i := range 40 {
		tx := state.Begin()
		for j := range 256 {
			must(t, tx.Set(fmt.Appendf(nil, "key%06d-%03d", i, j), make([]byte, 1<<10)))
		}
		must(t, tx.Commit(false))
		tx.Discard()
	}
	must(t, state.Sync())
	snaps := openSnapshots(t, dir, 2)
	sink := create(t, snaps, 10)
	checkpoint := filepath.Join(dir, "c")
	must(t, state.Checkpoint(checkpoint))
	must(t, sink.Adopt(checkpoint))
	must(t, sink.Close())
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 5 {
				if rotten, err := snaps.Verify(sink.ID(), func(kv.Getter) error { return nil }); rotten || err != nil {
					t.Errorf("a good snapshot is rotten %v: %v", rotten, err)
				}
			}
		})
	}
	all.Wait()
}
