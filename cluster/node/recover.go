package node

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/peer"
)

// Survivor is the data folder of a stopped member, on which Recover can make this member the only
// one of its cluster. OpenSurvivor creates it.
type Survivor struct {
	opts    OfflineOptions
	folder  folder
	replica *replica
	self    state.NodeID
	closers []io.Closer

	ClusterID string
	Name      string       // name of this member
	NodeID    string       // id of this member
	Others    []LostMember // other members according to this member's copy of the state
}

// LostMember is a member that Recover removes.
type LostMember struct{ ID, Name string }

// Recovered is the result of Survivor.Recover.
type Recovered struct {
	ClusterID string
	NodeID    string
	Index     uint64       // log index of the state
	Taken     uint64       // log entries that were applied first
	Removed   []LostMember // former members
}

// OpenSurvivor opens the data folder of a stopped member. The caller must call Close. The error
// says if a node runs on the folder, if the folder is not that of a member, or if its copy of the
// state cannot be trusted.
func OpenSurvivor(opts OfflineOptions) (s *Survivor, err error) {
	s = &Survivor{opts: opts, folder: folder{opts.Data}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
			s = nil
		}
	}()
	known, err := s.folder.seed()
	if err != nil {
		return s, err
	}
	if known == nil {
		return s, fmt.Errorf("%s is not the data folder of a member", opts.Data)
	}
	lock, err := lockFolder(opts.Data)
	if err != nil {
		return s, err
	}
	s.closers = append(s.closers, lock)
	if err := s.folder.checkFormat(); err != nil {
		return s, err
	}
	for _, name := range []string{removedFile, rebuildFile, restoringFile} {
		if _, err := os.Stat(s.folder.file(name)); !errors.Is(err, fs.ErrNotExist) {
			return s, errors.Join(err, fmt.Errorf("%s says that this node has no good copy of the state: recover on another member, or restore a backup", s.folder.file(name)))
		}
	}
	if err := s.folder.needs(IdentityFile, identityAdvice); err != nil {
		return s, err
	}
	key, err := s.folder.identity()
	if err != nil {
		return s, err
	}
	id, err := peer.IDOf(key)
	if err != nil {
		return s, fmt.Errorf("%s: %w", s.folder.file(IdentityFile), err)
	}
	s.self, s.NodeID = state.NodeID(id), id
	if s.replica, err = openStopped(s.folder, opts.Logger); err != nil {
		return s, err
	}
	s.closers = append(s.closers, s.replica)
	return s, s.read()
}

// read sets the exported fields from the state.
func (s *Survivor) read() error {
	view, release := s.replica.view()
	defer release()
	c, err := view.Cluster()
	if err != nil {
		return fmt.Errorf("read the state: %w", err)
	}
	nodes, err := view.Nodes()
	if err != nil {
		return fmt.Errorf("read the members: %w", err)
	}
	s.ClusterID = c.ID
	member := false
	for i := range nodes {
		if nodes[i].ID == s.self {
			member, s.Name = true, nodes[i].Name
			continue
		}
		s.Others = append(s.Others, LostMember{string(nodes[i].ID), nodes[i].Name})
	}
	if !member {
		return fmt.Errorf("node %s is not a member of the cluster according to its state", s.self)
	}
	return nil
}

// Recover makes this member the only one of its cluster, with the state that it has, and with all
// entries of its Raft log: an entry that was not acknowledged may be among them. It removes the
// other members, which can then not connect any more. The blocks stay. The next Open continues the
// cluster with this node. If Recover is interrupted, it must be called again.
func (s *Survivor) Recover() (out Recovered, err error) {
	view, release := s.replica.view()
	own, err := view.Node(s.self)
	release()
	if err != nil {
		return out, fmt.Errorf("recover: %w", err)
	}
	own.Version, own.FeatureLevel = s.opts.Version, state.NewestFeatureLevel
	replaced, err := s.replica.replaceMembers(s.folder, state.ReplaceMembers{
		Node: own, At: state.MillisOf(s.opts.Now()), Action: state.ActionClusterRecover,
	}, s.opts.Logger)
	if err != nil {
		return out, fmt.Errorf("recover: %w", err)
	}
	out = Recovered{ClusterID: s.ClusterID, NodeID: s.NodeID, Index: replaced.Index, Taken: replaced.Taken}
	for i := range replaced.Removed {
		out.Removed = append(out.Removed, LostMember{string(replaced.Removed[i].ID), replaced.Removed[i].Name})
	}
	if err := s.folder.writeSeed(newSeed(s.ClusterID, []state.Node{own})); err != nil {
		return out, fmt.Errorf("recover: %w", err)
	}
	return out, nil
}

// Close closes the folder.
func (s *Survivor) Close() error { return closeAll(&s.closers) }
