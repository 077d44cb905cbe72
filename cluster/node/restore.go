package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"

	"github.com/google/uuid"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/backup"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/peer"
	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

// restoringDir is the folder in the data folder in which Restore prepares a node.
const restoringDir = "restoring"

// mayStay lists what a data folder may contain for Restore: the settings, and the blocks of an
// earlier node.
var mayStay = []string{"config.toml", blocksDir, "lost+found", lockFile, formatFile}

// Restored is the result of Restore.
type Restored struct {
	Backup    BackupInfo
	ClusterID string // id of the new cluster
	NodeID    string
	Former    int  // number of members of the cluster in the backup
	Blocks    bool // the folder has blocks of an earlier node
}

// Restore makes a node of a backup in a data folder without a state: with an identity, a cluster
// secret and a cluster id of its own, and with the state in the backup, of which this node is the
// only member. The next Open starts the cluster with it. The members of the cluster in the backup
// are removed, so neither they nor others who know the old secret can connect. API keys and
// sessions stay valid.
//
// r is read twice from its beginning: the first time to check it, before anything is written. If r
// is no io.ReadSeeker, its bytes are first written to a file in the folder. After an error the
// folder is as before. Errors: those of backup.Read; an error that names a file if the folder has
// a state.
func Restore(ctx context.Context, opts OfflineOptions, r io.Reader) (out Restored, err error) {
	f := folder{opts.Data}
	_, missing := os.Stat(opts.Data)
	if err := f.mayRestore(); err != nil {
		return out, err
	}
	source, again := r.(io.ReadSeeker)
	if again {
		if out.Backup, err = CheckBackup(&untilEnd{ctx, r}); err != nil {
			return out, err
		}
	}
	if err := durable.MkdirAll(opts.Data, 0o700); err != nil {
		return out, fmt.Errorf("data folder: %w", err)
	}
	_, unlocked := os.Stat(f.file(lockFile))
	lock, err := lockFolder(opts.Data)
	if err != nil {
		return out, err
	}
	defer func() {
		err = errors.Join(err, lock.Close())
		if err != nil {
			err = errors.Join(err, f.undo(errors.Is(unlocked, fs.ErrNotExist), errors.Is(missing, fs.ErrNotExist)))
		}
	}()
	if err := f.mayRestore(); err != nil { // again, with the lock
		return out, err
	}
	at := folder{f.file(restoringDir)}
	if err := durable.MkdirAll(at.path, 0o700); err != nil {
		return out, err
	}
	if !again {
		spool, err := spooled(&untilEnd{ctx, r}, at.file("backup"))
		if err != nil {
			return out, err
		}
		defer func() { _ = spool.Close() }()
		source = spool
		if _, err := source.Seek(0, io.SeekStart); err != nil {
			return out, err
		}
		if out.Backup, err = CheckBackup(source); err != nil {
			return out, err
		}
	}
	if _, err := source.Seek(0, io.SeekStart); err != nil {
		return out, fmt.Errorf("read the backup again: %w", err)
	}
	_, err = os.Stat(f.file(blocksDir))
	out.Blocks = err == nil
	if err := at.prepare(opts, &untilEnd{ctx, source}, &out); err != nil {
		return out, err
	}
	return out, f.takeOver(at)
}

// untilEnd is a reader that fails when its context ends.
type untilEnd struct {
	ctx context.Context //nolint:containedctx // of one call
	r   io.Reader
}

// Read implements io.Reader.
func (u *untilEnd) Read(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(b)
}

// mayRestore returns an error that names a file if the data folder has more than the settings and
// blocks.
func (f folder) mayRestore() error {
	entries, err := os.ReadDir(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	for _, e := range entries {
		if !slices.Contains(mayStay, e.Name()) {
			return fmt.Errorf("the data folder is not empty: it has %s; restore into an empty folder, or one with nothing but %s and config.toml", f.file(e.Name()), blocksDir)
		}
	}
	return nil
}

// undo removes what Restore has written before an error.
func (f folder) undo(lock, folder bool) error {
	errs := []error{durable.RemoveAll(f.file(restoringDir))}
	if lock {
		errs = append(errs, durable.RemoveAll(f.file(lockFile)))
	}
	if folder {
		errs = append(errs, os.Remove(f.path))
	}
	return errors.Join(errs...)
}

// spooled writes all bytes of r to a new file at path, and returns the file.
func spooled(r io.Reader, path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(file, r); err != nil {
		return nil, errors.Join(fmt.Errorf("keep the backup: %w", err), file.Close())
	}
	return file, nil
}

// prepare writes the files of the restored node to the folder f.
func (f folder) prepare(opts OfflineOptions, r io.Reader, out *Restored) (err error) {
	key, err := peer.NewKey()
	if err != nil {
		return fmt.Errorf("make identity: %w", err)
	}
	id, err := peer.IDOf(key)
	if err != nil {
		return fmt.Errorf("make identity: %w", err)
	}
	copied, err := openStopped(f, opts.Logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, copied.Close()) }()
	h, _, err := backup.Read(r, func(_ *backup.Header, archive io.Reader) error { return copied.store.Restore(archive) })
	if err != nil {
		return err
	}
	if err := copied.isThat(h); err != nil {
		return err
	}
	secret := newSecret()
	change := state.ReplaceMembers{
		Node: state.Node{
			ID: state.NodeID(id), Name: opts.Name, Version: opts.Version, Joined: state.MillisOf(opts.Now()), FeatureLevel: state.NewestFeatureLevel,
		},
		Cluster: uuid.NewString(), At: state.MillisOf(opts.Now()), Action: state.ActionClusterRestore,
	}
	if change.SealedSecret, err = accounts.SealSecret(secret, h.Secret); err != nil {
		return err
	}
	replaced, err := copied.replaceMembers(f, change, slog.New(slog.DiscardHandler)) // it would warn of the missing log
	if err != nil {
		return err
	}
	out.ClusterID, out.NodeID, out.Former = change.Cluster, id, len(replaced.Removed)
	return errors.Join(
		durable.WriteFile(f.file(IdentityFile), key, 0o600),
		f.writeSecret(secret),
		f.writeSeed(newSeed(change.Cluster, []state.Node{change.Node})),
		f.checkFormat(),
	)
}

// isThat returns an error if the state is not the one that the header of a backup describes.
func (r *replica) isThat(h *backup.Header) error {
	view, release := r.view()
	defer release()
	level, err := view.FeatureLevel()
	if err != nil {
		return fmt.Errorf("read the state in the backup: %w", err)
	}
	if level > state.NewestFeatureLevel {
		return fmt.Errorf("the backup has feature level %d, and this release knows %d: %w", level, state.NewestFeatureLevel, state.ErrTooOld)
	}
	hash, err := view.Hash(func(int) error { return nil })
	if err != nil {
		return fmt.Errorf("read the state in the backup: %w", err)
	}
	if hash != h.StateHash {
		return fmt.Errorf("%w: the hash of its state is %s, and was %s", backup.ErrDamaged, hash, h.StateHash)
	}
	return nil
}

// takeOver moves the prepared files into the data folder f. The list of members is the last: a
// folder without it is no member, unless it has everything else.
func (f folder) takeOver(at folder) error {
	for _, name := range []string{formatFile, IdentityFile, raftDir, SecretFile, stateDir, membersFile} {
		if err := durable.Rename(at.file(name), f.file(name)); err != nil {
			return fmt.Errorf("put the restored node into place: %w", err)
		}
	}
	return durable.RemoveAll(at.path)
}
