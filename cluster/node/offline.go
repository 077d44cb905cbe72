package node

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/storage/durable"
	"github.com/holdfast-ipfs/holdfast/storage/kv"
	"github.com/holdfast-ipfs/holdfast/storage/raftlog"
)

// OfflineOptions are the settings and dependencies of Restore and Recover, which work on the data
// folder of a node that does not run. All fields are required.
type OfflineOptions struct {
	Data    string // path of the data folder
	Name    string // name of the node for its record; for Restore
	Version string // version of this release
	Now     func() time.Time
	Logger  *slog.Logger
}

// offlineCache is the size of the cache of the store of the state, in bytes.
const offlineCache = 64 << 20

// replica is the copy of the state in a data folder, without a node that uses it.
type replica struct {
	store     *kv.Store
	log       *raftlog.Log
	snapshots *raftlog.Snapshots
	closers   []io.Closer
}

// openStopped opens or creates the copy of the state in a folder. The caller must call Close.
func openStopped(f folder, logger *slog.Logger) (r *replica, err error) {
	r = new(replica)
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	r.store, err = kv.Open(f.file(stateDir), kv.Options{
		Logger: logger, CacheBytes: offlineCache, Sparse: &kv.Sparse{Is: state.Sparse, After: state.SparseAfter}, Passing: state.Passing,
	})
	if err != nil {
		return r, fmt.Errorf("open state in %s: %w", f.file(stateDir), err)
	}
	r.closers = append(r.closers, r.store)
	if r.log, err = raftlog.Open(f.file(raftDir, "raft.db")); err != nil {
		return r, fmt.Errorf("open raft log: %w", err)
	}
	r.closers = append(r.closers, r.log)
	if r.snapshots, err = raftlog.OpenSnapshots(f.file(raftDir), snapshotsKept, logger); err != nil {
		return r, fmt.Errorf("open snapshots: %w", err)
	}
	return r, nil
}

// Close closes the copy of the state.
func (r *replica) Close() error { return closeAll(&r.closers) }

// closeAll closes what was opened, the last first, and empties the list.
func closeAll(opened *[]io.Closer) error {
	var errs []error
	for _, c := range slices.Backward(*opened) {
		errs = append(errs, c.Close())
	}
	*opened = nil
	return errors.Join(errs...)
}

// view returns a view of the state. The caller must call release.
func (r *replica) view() (v state.View, release func()) {
	snapshot := r.store.View()
	return state.NewView(snapshot, 0), snapshot.Close
}

// replaceMembers is consensus.ReplaceMembers for the copy of the state in the folder f.
func (r *replica) replaceMembers(f folder, change state.ReplaceMembers, logger *slog.Logger) (consensus.Replaced, error) {
	return consensus.ReplaceMembers(consensus.Options{
		ID: change.Node.ID, Store: ordered{r.store}, Log: r.log, Stable: r.log, Snapshots: r.snapshots,
		CheckpointDir: f.file(raftDir, "checkpoints"), Watch: new(state.Watch), Logger: logger, NoSpace: refusedByFullDisk,
	}, change)
}

// lockFolder locks the data folder at path against a running node.
func lockFolder(path string) (io.Closer, error) {
	lock, err := durable.Lock(folder{path}.file(lockFile))
	if errors.Is(err, durable.ErrLocked) {
		return nil, fmt.Errorf("a node runs on %s: stop it first: %w", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("data folder %s: %w", path, err)
	}
	return lock, nil
}
