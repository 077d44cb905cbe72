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

// ErrRebuild is the error of Run or Open if this node's copy of the replicated state cannot be
// trusted. The next Open moves the copy to another folder and rebuilds the state, from the node's
// own Raft log if that is undamaged, else from the other members.
var ErrRebuild = errors.New("this node's copy of the state has to be made anew")

// Names of a file and a folder in the data folder.
const (
	// rebuildFile lists the folders that the next Open must move to asideDir.
	rebuildFile = "rebuild.json"
	// asideDir contains the damaged folders that were moved there, until the node has rebuilt its
	// state.
	asideDir = "aside"
)

// rebuild is the content of rebuildFile.
type rebuild struct {
	Folders []string `json:"folders"` // stateDir, raftDir or both
	Reason  string   `json:"reason"`  // for people
}

// rebuildFor returns the folders that must be rebuilt after err, and the reason. It returns no
// folders if err does not mean that the copy of the state is damaged.
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

// condemn checks whether err means that the copy of the state is damaged. If so, it records the
// damaged folders, so that the next Open moves them to asideDir, and returns err wrapped in
// ErrRebuild. It returns other errors unchanged, for example those about a damaged index of the
// block store.
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

// isDamaged returns whether the open store of the state has found itself damaged.
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

// setAsideCondemned moves the folders that condemn has recorded to asideDir, and then removes the
// record. If a crash interrupts it, the next call moves the remaining folders.
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

// setAside moves the folders in r to asideDir. If they include the Raft log and this node is the
// only member, no other node has the data. Then setAside moves nothing and returns an error that
// contains the paths of the folders.
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

// moveAside is setAside without the check for other members. It logs each folder at the given
// level.
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

// empty deletes the content of the folder with the name, except lost+found.
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

// hasOthers returns whether the cluster has other members according to membersFile. It does not
// read the state, which may be damaged.
func (n *Node) hasOthers() bool {
	known, err := n.folder.seed()
	return err == nil && known != nil && len(known.Members) > 1
}

// openReplica opens consensus on the open state and Raft log. If one of these folders is damaged,
// openReplica moves it to asideDir and opens all again, at most once for each of the two folders.
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

// openStore opens the ordered store of the state. If it is damaged, openStore moves its folder to
// asideDir and opens a new one.
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

// openLog opens the Raft log. If it is damaged, openLog moves its folder to asideDir and opens a
// new one.
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

// watchDamage returns an error, which stops the node, if a read finds the store of the state
// damaged. It returns nil when ctx ends.
func (n *Node) watchDamage(ctx context.Context) error {
	select {
	case <-n.store.Damaged():
		return fmt.Errorf("%w in %s", kv.ErrCorrupt, n.folder.file(stateDir))
	case <-ctx.Done():
		return nil
	}
}

// runTracker runs the tracker after the node has caught up with the Raft log. Before that the
// state may be empty, and the tracker would delete all content as unwanted.
func (n *Node) runTracker(ctx context.Context) error {
	select {
	case <-n.consensus.CaughtUp():
		return n.tracker.Run(ctx)
	case <-ctx.Done():
		return nil
	}
}

// noteMembers writes the list of members to membersFile if it has changed. If the disk is full,
// the old file remains, noteMembers returns nil, and the next call tries again (ADR 10).
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

// keepSeed writes the members in the state to membersFile, for a start without a state. If this
// node is ready again after a rebuild, keepSeed also deletes asideDir.
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
