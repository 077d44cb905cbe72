package consensus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Copy is a copy of the state in a folder of its own, as of one log entry. The caller must call
// Close, which removes the folder.
type Copy struct {
	Dir   string // folder that Store.Checkpoint has written
	Index uint64 // index of the newest entry in the copy
	view  state.View
	close func() error
	hash  func(context.Context, state.View) (state.Hash, error)
}

// View returns a view of the state in the copy. It is valid until Close.
func (c *Copy) View() state.View { return c.view }

// Hash returns the hash of the state in the copy, as StateHash does.
func (c *Copy) Hash(ctx context.Context) (state.Hash, error) { return c.hash(ctx, c.view) }

// Close removes the copy.
func (c *Copy) Close() error { return c.close() }

// CopyState copies the state, with everything that was acknowledged before the call. Entries are
// not applied while the copy is made, which takes milliseconds: the files of the store are linked.
// The error wraps state.ErrUnavailable if there was no majority within five seconds or before ctx
// ended.
func (n *Node) CopyState(ctx context.Context) (*Copy, error) {
	caught, cancel := context.WithTimeout(ctx, viewTimeout)
	err := n.catchUp(caught)
	cancel()
	if err == nil {
		err = n.refused()
	}
	if err != nil {
		return nil, fmt.Errorf("consensus: copy the state: %w", err)
	}
	dir := filepath.Join(n.fsm.dir, fmt.Sprintf("%scopy-%d", checkpointPrefix, time.Now().UnixNano()))
	snapshot, err := n.fsm.copyTo(dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("consensus: copy the state: %w", err), os.RemoveAll(dir))
	}
	index, err := readApplied(snapshot)
	c := &Copy{Dir: dir, Index: index, view: state.NewView(snapshot, index), hash: n.hashOnce}
	c.close = func() error {
		snapshot.Close()
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("consensus: remove a copy of the state: %w", err)
		}
		return nil
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("consensus: copy the state: %w", err), c.close())
	}
	return c, nil
}

// copyTo writes a checkpoint to dir and returns a view of the same state.
func (f *fsm) copyTo(dir string) (Snapshot, error) {
	tx := f.store.Begin() // nothing is applied until Discard
	defer tx.Discard()
	if err := f.store.Checkpoint(dir); err != nil {
		return nil, err
	}
	return f.store.View(), nil
}
