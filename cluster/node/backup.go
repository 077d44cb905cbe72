package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/backup"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/storage/kv"
)

// BackupInfo describes a backup of the replicated state.
type BackupInfo struct {
	ClusterID    string
	Index        uint64 // log index of the state in the backup
	FeatureLevel uint64
	Time         time.Time
	StateHash    string // SHA-256 in hexadecimal
	Release      string // release that wrote the backup
	Bytes        int64  // size of the backup
}

func infoOf(h *backup.Header, size int64) BackupInfo {
	return BackupInfo{
		ClusterID: h.ClusterID, Index: h.Index, FeatureLevel: uint64(h.FeatureLevel), Time: h.Time,
		StateHash: h.StateHash.String(), Release: h.Release, Bytes: size,
	}
}

// CheckBackup reads a backup from r to its end and checks it. The error says if it is none, or if
// it is cut off or damaged.
func CheckBackup(r io.Reader) (BackupInfo, error) {
	h, size, err := backup.Read(r, nil)
	if err != nil {
		return BackupInfo{}, err
	}
	return infoOf(h, size), nil
}

// errBackupRuns is the error for a second backup at the same time.
var errBackupRuns = state.Errorf(state.CodeLimited, "another backup is being read from this node")

// Backup writes a backup of the replicated state to w, with everything that was acknowledged before
// the call. It needs a majority at its beginning, and writes nothing before it has read the whole
// state once. Meanwhile the node serves requests as usual. A node writes one backup at a time.
// Errors: state.ErrUnavailable without a majority; state.ErrLimited for a second backup.
func (n *Node) Backup(ctx context.Context, w io.Writer) (err error) {
	if !n.backingUp.TryLock() {
		return errBackupRuns
	}
	defer n.backingUp.Unlock()
	secret, err := n.accounts.Secret()
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	made, err := n.consensus.CopyState(ctx)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	defer func() { err = errors.Join(err, made.Close()) }()
	h := &backup.Header{Index: made.Index, Time: n.opts.Now().UTC().Truncate(time.Second), Release: n.opts.Version, Node: n.self.ID, Secret: secret}
	c, err := made.View().Cluster()
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	h.ClusterID = c.ID
	if h.FeatureLevel, err = made.View().FeatureLevel(); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if h.ArchiveBytes, err = kv.ArchiveSize(made.Dir); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if h.StateHash, err = made.Hash(ctx); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	err = backup.Write(w, h, func(w io.Writer) error { return kv.WriteArchive(&untilDone{ctx, w}, made.Dir) })
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	n.backedUp.Store(h.Time.Unix())
	n.logger.InfoContext(ctx, "backup of the state was read", "index", h.Index, "hash", h.StateHash)
	return nil
}

// untilDone is a writer that fails when its context ends.
type untilDone struct {
	ctx context.Context // of one call
	w   io.Writer
}

// Write implements io.Writer.
func (u *untilDone) Write(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.w.Write(b)
}
