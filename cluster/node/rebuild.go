package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/storage/durable"
	"github.com/holdfast-ipfs/holdfast/storage/kv"
	"github.com/holdfast-ipfs/holdfast/storage/raftlog"
)

// ErrRebuild is the error of Run or Open if this node's copy of the state cannot be
// trusted. The next Open moves the copy aside and rebuilds the state: from its own log if
// that is complete, else from the other members.
var ErrRebuild = errors.New("this node's copy of the state has to be made anew")

// Names below the data folder.
const (
	// rebuildFile lists the folders that the next Open must move aside.
	rebuildFile = "rebuild.json"
	// asideDir has the folders that were set aside, until the node is complete again.
	asideDir = "aside"
)

// rebuild is the content of rebuildFile.
type rebuild struct {
	Folders []string `json:"folders"` // stateDir, raftDir or both
	Reason  string   `json:"reason"`  // for people
}

// rebuildFor returns the folders to rebuild after an error; none for other errors.
func rebuildFor(err error) rebuild {
	r := rebuild{}
	switch {
	case err == nil, errors.Is(err, durable.ErrNewer): // nothing is damaged
		return r
	case errors.Is(err, consensus.ErrQuarantined), errors.Is(err, consensus.ErrIncomplete):
		// Log and snapshots lead to the same state again, or lead nowhere.
		r.Folders = []string{stateDir, raftDir}
	case errors.Is(err, raftlog.ErrCorrupt):
		r.Folders = []string{raftDir}
	case errors.Is(err, kv.ErrCorrupt):
		r.Folders = []string{stateDir}
	default:
		return r
	}
	r.Reason = err.Error()
	return r
}

// condemn records which folders an error makes unusable, so that the next Open sets them aside,
// and wraps the error in ErrRebuild. It returns other errors unchanged. Among these are errors
// of the block store, whose index is damaged without damage to the state.
func (n *Node) condemn(err error) error {
	r := rebuildFor(err)
	if len(r.Folders) == 0 || errors.Is(err, ErrRebuild) {
		return err
	}
	if slices.Equal(r.Folders, []string{stateDir}) && !n.isDamaged() {
		return err
	}
	f := n.folder
	b, merr := json.MarshalIndent(r, "", "  ")
	if merr == nil {
		merr = durable.WriteFile(f.file(rebuildFile), append(b, '\n'), 0o600)
	}
	if merr != nil {
		return errors.Join(err, fmt.Errorf("note that the state has to be made anew: %w", merr))
	}
	return fmt.Errorf("%w: %w", ErrRebuild, err)
}

// isDamaged returns whether the open store of the state has found damage.
func (n *Node) isDamaged() bool {
	if n.store == nil {
		return false // it was set aside when it could not be opened
	}
	select {
	case <-n.store.Damaged():
		return true
	default:
		return false
	}
}

// setAsideCondemned sets aside the folders that condemn has recorded. After a crash in between,
// the record is still there, and folders that were moved already are skipped.
func (n *Node) setAsideCondemned() error {
	b, err := os.ReadFile(n.folder.file(rebuildFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", rebuildFile, err)
	}
	var r rebuild
	if err := json.Unmarshal(b, &r); err != nil {
		return fmt.Errorf("read %s: %w", n.folder.file(rebuildFile), err)
	}
	if err := n.setAside(r); err != nil {
		return err
	}
	if err := durable.RemoveAll(n.folder.file(rebuildFile)); err != nil {
		return fmt.Errorf("set the state aside: %w", err)
	}
	return nil
}

// setAside moves folders aside, where they stay until the node is complete again. In a cluster
// without other members no other node has the content of the log, so setAside moves nothing and
// returns an error that names the folders.
func (n *Node) setAside(r rebuild) error {
	for _, name := range r.Folders {
		if name != stateDir && name != raftDir {
			return fmt.Errorf("set aside: %q is no folder of the state", name)
		}
		if name == raftDir && !n.hasOthers() {
			return fmt.Errorf("the state of this node is damaged and it is the only member, so nobody else has it; "+
				"restore %s and %s, or start on an empty data folder: %s", n.folder.file(stateDir), n.folder.file(raftDir), r.Reason)
		}
	}
	return n.moveAside(r, slog.LevelError)
}

// moveAside does the same as setAside for a caller that knows that other members have the
// content. It logs each folder at the given level.
func (n *Node) moveAside(r rebuild, level slog.Level) error {
	if err := durable.MkdirAll(n.folder.file(asideDir), 0o700); err != nil {
		return fmt.Errorf("set the state aside: %w", err)
	}
	for _, name := range r.Folders {
		from, to := n.folder.file(name), n.folder.file(asideDir, fmt.Sprintf("%s-%d", name, time.Now().UnixNano()))
		err := durable.Rename(from, to)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if errors.Is(err, syscall.EBUSY) { // a mount cannot be moved
			to, err = "removed", n.folder.empty(name)
		}
		if err != nil {
			return fmt.Errorf("set the state aside: %w", err)
		}
		n.logger.Log(context.Background(), level, "moved a folder aside: this node fetches its content again", "folder", from, "now", to, "reason", r.Reason)
	}
	return nil
}

// empty removes the content of a folder, except the files of the file system itself.
func (f folder) empty(name string) error {
	entries, err := os.ReadDir(f.file(name))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == "lost+found" {
			continue
		}
		if err := durable.RemoveAll(f.file(name, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// hasOthers returns true if this node knows other members by its members file, because the
// state may be damaged.
func (n *Node) hasOthers() bool {
	known, err := n.folder.seed()
	return err == nil && known != nil && len(known.Members) > 1
}

// openReplica opens the replicated state, its log and the parts that run on them. It sets
// damaged folders aside and opens all again, at most once for each folder.
func (n *Node) openReplica(known *seed) error {
	for range 2 {
		err := n.openConsensus(known)
		r := rebuildFor(err)
		if len(r.Folders) == 0 {
			return err
		}
		n.logger.Error("cannot open the copy of the state", "err", err)
		if err := errors.Join(n.log.Close(), n.store.Close()); err != nil {
			n.logger.Error("cannot close the damaged copy of the state", "err", err)
		}
		if err := n.setAside(r); err != nil {
			return errors.Join(err, n.openStore(), n.openLog()) // for Close to find them open
		}
		if err := errors.Join(n.openStore(), n.openLog()); err != nil {
			return err
		}
	}
	return n.openConsensus(known)
}

// openStore opens the ordered store; a damaged one is set aside first.
func (n *Node) openStore() error {
	open := func() (err error) {
		n.store, err = kv.Open(n.folder.file(stateDir), n.storeOptions())
		return err
	}
	err := open()
	if r := rebuildFor(err); len(r.Folders) > 0 {
		if err := n.setAside(r); err != nil {
			return err
		}
		err = open()
	}
	if err != nil {
		return fmt.Errorf("open state in %s: %w", n.folder.file(stateDir), err)
	}
	return nil
}

// openLog opens the Raft log; a damaged one is set aside first.
func (n *Node) openLog() error {
	open := func() (err error) {
		n.log, err = raftlog.Open(n.folder.file(raftDir, "raft.db"))
		return err
	}
	err := n.withRoom(raftDir, open)
	if r := rebuildFor(err); len(r.Folders) > 0 {
		if err := n.setAside(r); err != nil {
			return err
		}
		err = open()
	}
	if err != nil {
		return fmt.Errorf("open raft log: %w", err)
	}
	return nil
}

// watchDamage stops the node when any reader found its store damaged.
func (n *Node) watchDamage(ctx context.Context) error {
	select {
	case <-n.store.Damaged():
		return fmt.Errorf("%w in %s", kv.ErrCorrupt, n.folder.file(stateDir))
	case <-ctx.Done():
		return nil
	}
}

// runTracker waits until the state is loaded, then runs the tracker. An empty state would say
// that no content is wanted.
func (n *Node) runTracker(ctx context.Context) error {
	select {
	case <-n.consensus.CaughtUp():
		return n.tracker.Run(ctx)
	case <-ctx.Done():
		return nil
	}
}

// noteMembers saves the list of members if it has changed. If the disk is full, the old
// list stays and the next call tries again (ADR 10).
func (n *Node) noteMembers(now *seed) error {
	if n.known != nil && n.known.equal(now) {
		return nil
	}
	err := n.folder.writeSeed(now)
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) // of a flush too, unlike durable.IsFull: the file from before stays
	if full && !n.unnoted {
		n.logger.Warn("cannot save the list of members: the disk is full", "file", n.folder.file(membersFile), "err", err)
	}
	n.unnoted = full
	switch {
	case full:
		return nil
	case err != nil:
		return fmt.Errorf("write members: %w", err)
	}
	n.known = now
	return nil
}

// keepSeed writes the members to a file for a start without a state. It also removes the
// folders that were set aside once this node is complete again.
func (n *Node) keepSeed() error {
	view, release := n.consensus.LocalView()
	defer release()
	nodes, err := view.Nodes()
	if err != nil {
		return fmt.Errorf("read nodes: %w", err)
	}
	c, err := view.Cluster()
	if errors.Is(err, state.ErrUnavailable) {
		return nil // the state is not here yet
	}
	if err != nil {
		return fmt.Errorf("read cluster: %w", err)
	}
	if _, caughtUp := n.consensus.FeatureLevel(); !caughtUp {
		return nil
	}
	if err := n.noteMembers(newSeed(c.ID, nodes)); err != nil {
		return err
	}
	if _, err := os.Stat(n.folder.file(asideDir)); err == nil && n.Ready() == nil {
		n.logger.Info("this node is complete again: removing the folders that it moved aside", "folder", n.folder.file(asideDir))
		if err := durable.RemoveAll(n.folder.file(asideDir)); err != nil {
			return fmt.Errorf("remove what was set aside: %w", err)
		}
	}
	return nil
}
