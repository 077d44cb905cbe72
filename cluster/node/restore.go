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
	"github.com/holdfast-ipfs/holdfast/storage/volume"
)

// restoringFile marks a folder into which Restore has written a part of a node. It has the bytes of
// the backup if they come from a stream.
const restoringFile = "restoring"

// mayStay lists what a data folder may contain for Restore: the settings, and the blocks of an
// earlier node.
var mayStay = []string{"config.toml", blocksDir, "lost+found", lockFile, formatFile}

// restoredFiles lists the files that Restore writes, apart from stateDir, raftDir and formatFile.
var restoredFiles = []string{SecretFile, membersFile, IdentityFile}

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
// folder is as before; after a crash no node starts on it, and Restore can be called again. Errors:
// those of backup.Read; an error that names a file if the folder has a state.
func Restore(ctx context.Context, opts OfflineOptions, r io.Reader) (out Restored, err error) {
	f := folder{opts.Data}
	if err := f.mayRestore(); err != nil {
		return out, err
	}
	source, again := r.(io.ReadSeeker)
	if again {
		if out.Backup, err = CheckBackup(&untilEnd{ctx, r}); err != nil {
			return out, err
		}
	}
	before := f.present()
	if err := durable.MkdirAll(opts.Data, 0o700); err != nil {
		return out, fmt.Errorf("data folder: %w", err)
	}
	lock, err := lockFolder(opts.Data)
	if err != nil {
		return out, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.undo(before))
		}
		err = errors.Join(err, lock.Close())
	}()
	if err := f.mayRestore(); err != nil { // again, with the lock
		return out, err
	}
	spool, err := f.spool(&untilEnd{ctx, r}, again)
	if err != nil {
		return out, err
	}
	defer func() { _ = spool.Close() }()
	if !again {
		source = spool
		if out.Backup, err = CheckBackup(source); err != nil {
			return out, err
		}
	}
	if _, err := source.Seek(0, io.SeekStart); err != nil {
		return out, fmt.Errorf("read the backup again: %w", err)
	}
	_, err = os.Stat(f.file(blocksDir))
	out.Blocks = err == nil
	if err := f.clear(before); err != nil { // of an interrupted restore
		return out, err
	}
	if err := f.prepare(opts, &untilEnd{ctx, source}, &out); err != nil {
		return out, err
	}
	return out, durable.RemoveAll(f.file(restoringFile))
}

// untilEnd is a reader that fails when its context ends.
type untilEnd struct {
	ctx context.Context // of one call
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
// blocks. It accepts folders for the state and the Raft log without files, which may be mounts, and
// the files of an interrupted restore.
func (f folder) mayRestore() error {
	entries, err := os.ReadDir(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == restoringFile }) {
		return nil // no node starts on such a folder
	}
	for _, e := range entries {
		if slices.Contains(mayStay, e.Name()) || slices.Contains([]string{stateDir, raftDir}, e.Name()) && f.isBare(e.Name()) {
			continue
		}
		return fmt.Errorf("the data folder is not empty: it has %s; restore into an empty folder, or one with nothing but %s and config.toml", f.file(e.Name()), blocksDir)
	}
	return nil
}

// isBare returns whether the folder with the name has no files, apart from a ballast file on a disk
// of its own.
func (f folder) isBare(name string) bool {
	entries, err := os.ReadDir(f.file(name))
	return err == nil && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() != "lost+found" && e.Name() != volume.BallastFile })
}

// present returns which of the files and folders that Restore creates are there. The data folder
// itself has the name "".
func (f folder) present() map[string]bool {
	there := map[string]bool{}
	for _, name := range []string{"", lockFile, formatFile, stateDir, raftDir} {
		_, err := os.Lstat(f.file(name))
		there[name] = err == nil
	}
	return there
}

// clear removes the parts of a node that Restore writes. Folders that were there before stay.
func (f folder) clear(before map[string]bool) error {
	var errs []error
	for _, name := range []string{stateDir, raftDir} {
		if !before[name] {
			errs = append(errs, durable.RemoveAll(f.file(name)))
		} else if err := f.empty(name); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for _, name := range restoredFiles {
		errs = append(errs, durable.RemoveAll(f.file(name)))
	}
	return errors.Join(errs...)
}

// undo removes what Restore has written before an error. The marker is the last file of a node that
// it removes.
func (f folder) undo(before map[string]bool) error {
	var errs []error
	if _, err := os.Stat(f.file(restoringFile)); !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, f.clear(before))
		if !before[formatFile] {
			errs = append(errs, durable.RemoveAll(f.file(formatFile)))
		}
		errs = append(errs, durable.RemoveAll(f.file(restoringFile)))
	}
	if !before[lockFile] {
		errs = append(errs, durable.RemoveAll(f.file(lockFile)))
	}
	if !before[""] {
		errs = append(errs, os.Remove(f.path))
	}
	return errors.Join(errs...)
}

// spool makes the marker of a restore, and copies the bytes of r into it unless r can be read
// again.
func (f folder) spool(r io.Reader, again bool) (*os.File, error) {
	file, err := os.OpenFile(f.file(restoringFile), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil && !again {
		if _, err = io.Copy(file, r); err == nil {
			_, err = file.Seek(0, io.SeekStart)
		}
	}
	if err == nil {
		err = durable.SyncDir(f.path)
	}
	if err != nil {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
		return nil, fmt.Errorf("keep the backup: %w", err)
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
		f.checkFormat(),
		f.writeSecret(secret),
		f.writeSeed(newSeed(change.Cluster, []state.Node{change.Node})),
		durable.WriteFile(f.file(IdentityFile), key, 0o600),
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
