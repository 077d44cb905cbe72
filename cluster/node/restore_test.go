package node

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/backup"
	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/storage/kv"
)

func offline(dir string) OfflineOptions {
	return OfflineOptions{Data: dir, Name: "here", Version: "v1", Now: time.Now, Logger: slog.New(slog.DiscardHandler)}
}

// backupOf returns a backup of a cluster of three members with an account, at index 7, after change has changed its
// header.
func backupOf(t *testing.T, change func(*backup.Header)) []byte {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	old := bytes.Repeat([]byte{1}, 32)
	signing, err := accounts.NewSigningKey(old)
	must(err)
	store, err := kv.Open(filepath.Join(t.TempDir(), "state"), kv.Options{})
	must(err)
	defer func() { must(store.Close()) }()
	tx := store.Begin()
	operator := state.Account{ID: "op", Email: operatorEmail, Created: 1}
	for i, cmd := range []state.Command{
		&state.InitCluster{
			Cluster: state.Cluster{ID: "old", Created: 1, Operator: "op", Replication: 3, WriteCopies: 2, SealedSigningKey: signing},
			Node:    state.Node{ID: "n1", FeatureLevel: state.NewestFeatureLevel}, Operator: operator,
		},
		&state.JoinNode{Node: state.Node{ID: "n2", FeatureLevel: state.NewestFeatureLevel}, At: 1},
		&state.JoinNode{Node: state.Node{ID: "n3", FeatureLevel: state.NewestFeatureLevel}, At: 1},
		&state.CreateAccount{Account: state.Account{ID: "a", Email: "ann@example.org", Created: 2}},
	} {
		_, err := state.Apply(tx, uint64(i+4), state.OpID{byte(i + 1)}, cmd, new(state.Effects))
		must(err)
	}
	must(tx.Set([]byte{0}, binary.BigEndian.AppendUint64(nil, 7)))
	must(tx.Commit(true))
	view := store.View()
	defer view.Close()
	h := &backup.Header{ClusterID: "old", Index: 7, FeatureLevel: state.NewestFeatureLevel, Time: time.Now(), Release: "v1", Node: "n1", Secret: old}
	h.StateHash, err = state.NewView(view, 7).Hash(func(int) error { return nil })
	must(err)
	dir := filepath.Join(t.TempDir(), "copy")
	must(store.Checkpoint(dir))
	h.ArchiveBytes, err = kv.ArchiveSize(dir)
	must(err)
	if change != nil {
		change(h)
	}
	var b bytes.Buffer
	must(backup.Write(&b, h, func(w io.Writer) error { return kv.WriteArchive(w, dir) }))
	return b.Bytes()
}

// filesIn returns the paths of everything below a folder.
func filesIn(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		paths = append(paths, path)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return paths
}

// stream is a backup that cannot be read twice.
type stream struct{ io.Reader }

// A backup with a changed byte, cut off or too long is refused, and the folder is as before: missing or with the same
// files. That holds for each byte, and for a stream as well as for a file.
func TestABadBackupChangesNothing(t *testing.T) {
	whole := backupOf(t, nil)
	missing, kept := filepath.Join(t.TempDir(), "new"), t.TempDir()
	if err := os.WriteFile(filepath.Join(kept, "config.toml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := filesIn(t, kept)
	try := func(what string, r io.Reader, dir string) {
		t.Helper()
		_, err := Restore(t.Context(), offline(dir), r)
		if !errors.Is(err, backup.ErrDamaged) && !errors.Is(err, backup.ErrNone) && !errors.Is(err, backup.ErrNewer) {
			t.Fatalf("%s: %v", what, err)
		}
		if _, err := os.Stat(missing); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%s: the folder is there: %v", what, err)
		}
	}
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 0x10
		try(fmt.Sprint("byte ", i), bytes.NewReader(b), missing)
		if i%500 == 0 {
			try(fmt.Sprint("byte ", i, " of a stream"), stream{bytes.NewReader(b)}, missing)
			try(fmt.Sprint("byte ", i, " of a stream, into a folder"), stream{bytes.NewReader(b)}, kept)
			try(fmt.Sprint("cut after ", i), bytes.NewReader(whole[:i]), missing)
		}
	}
	try("a byte too many", bytes.NewReader(append(bytes.Clone(whole), 1)), missing)
	try("another state than announced", bytes.NewReader(backupOf(t, func(h *backup.Header) { h.StateHash[0] ^= 1 })), missing)
	broken := errors.New("broken")
	if _, err := Restore(t.Context(), offline(kept), iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("a reader that fails: %v", err)
	}
	if after := filesIn(t, kept); !slices.Equal(after, before) {
		t.Errorf("the folder has %q, and had %q", after, before)
	}
}

// A folder with any part of a node is refused and left as it is.
func TestARestoreKeepsItsHandsOffANode(t *testing.T) {
	b := backupOf(t, nil)
	for _, name := range []string{stateDir + "/x", raftDir + "/x", IdentityFile, SecretFile, membersFile, removedFile, nodeMetaFile, "other"} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("x"), 0o600)); err != nil {
			t.Fatal(err)
		}
		before := filesIn(t, dir)
		_, err := Restore(t.Context(), offline(dir), bytes.NewReader(b))
		top, _, _ := strings.Cut(name, "/")
		if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, top)) {
			t.Errorf("%s: %v", name, err)
		}
		if after := filesIn(t, dir); !slices.Equal(after, before) {
			t.Errorf("%s: %q", name, after)
		}
	}
}

// A restored folder has the state of the backup with this node as the only member, secrets and ids of its own, and the
// blocks and settings that were there. Backups from a file and from a stream give the same.
func TestARestoredFolderIsThatOfTheOnlyMember(t *testing.T) {
	b := backupOf(t, nil)
	for name, r := range map[string]io.Reader{"file": bytes.NewReader(b), "stream": stream{bytes.NewReader(b)}} {
		t.Run(name, func(t *testing.T) {
			f := folder{t.TempDir()}
			if err := errors.Join(os.Mkdir(f.file(blocksDir), 0o700), os.MkdirAll(f.file(stateDir, "lost+found"), 0o700), os.Mkdir(f.file(raftDir), 0o700), os.WriteFile(f.file(raftDir, "ballast"), nil, 0o600), os.WriteFile(f.file(blocksDir, "x"), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			out, err := Restore(t.Context(), offline(f.path), r)
			if err != nil {
				t.Fatal(err)
			}
			if out.Backup.Index != 7 || out.Backup.ClusterID != "old" || out.Backup.Bytes != int64(len(b)) || out.ClusterID == "old" || out.Former != 3 || !out.Blocks {
				t.Errorf("%+v", out)
			}
			if _, err := os.Stat(f.file(blocksDir, "x")); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(f.file(restoringFile)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("leftover: %v", err)
			}
			seed, err := f.seed()
			if err != nil || seed.ClusterID != out.ClusterID || len(seed.Members) != 1 || seed.Founder {
				t.Errorf("members %+v, %v", seed, err)
			}
			secret, err := f.secret()
			if err != nil || bytes.Equal(secret, bytes.Repeat([]byte{1}, 32)) {
				t.Errorf("secret: %v", err)
			}
			s, err := OpenSurvivor(offline(f.path)) // it is a member like any other
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			if s.ClusterID != out.ClusterID || s.NodeID != out.NodeID || s.Name != "here" || len(s.Others) > 0 {
				t.Errorf("%+v", s)
			}
			view, release := s.replica.view()
			defer release()
			if a, err := view.AccountByEmail("ann@example.org"); err != nil || a.ID != "a" {
				t.Errorf("the account: %+v, %v", a, err)
			}
		})
	}
}

// No node starts on a folder in which a crash has interrupted a restore, and a second restore completes it.
func TestAnInterruptedRestoreIsRepeated(t *testing.T) {
	f := folder{t.TempDir()}
	b := backupOf(t, nil)
	if _, err := Restore(t.Context(), offline(f.path), bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{f.file(restoringFile), f.file(stateDir, "leftover")} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := Open(t.Context(), Options{Config: config.Config{Data: f.path}, Logger: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Fatalf("%v, %v", n, err)
	}
	out, err := Restore(t.Context(), offline(f.path), stream{bytes.NewReader(b)})
	if err != nil || out.Backup.Index != 7 {
		t.Fatalf("%+v, %v", out, err)
	}
	for _, path := range []string{f.file(restoringFile), f.file(stateDir, "leftover")} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is there: %v", path, err)
		}
	}
}

// Only the folder of a stopped member that is whole can be recovered.
func TestOnlyAStoppedMemberIsRecovered(t *testing.T) {
	restored := func(t *testing.T) folder {
		t.Helper()
		f := folder{t.TempDir()}
		if _, err := Restore(t.Context(), offline(f.path), bytes.NewReader(backupOf(t, nil))); err != nil {
			t.Fatal(err)
		}
		return f
	}
	for name, tc := range map[string]struct {
		harm func(folder) error
		want string
	}{
		"no member":                  {func(f folder) error { return os.Remove(f.file(membersFile)) }, "not the data folder of a member"},
		"a removed node":             {func(f folder) error { return os.WriteFile(f.file(removedFile), nil, 0o600) }, removedFile},
		"a node without a state":     {func(f folder) error { return os.RemoveAll(f.file(stateDir)) }, "no state yet"},
		"a node with a bad state":    {func(f folder) error { return os.WriteFile(f.file(rebuildFile), nil, 0o600) }, rebuildFile},
		"a node with a new identity": {func(f folder) error { return os.Remove(f.file(IdentityFile)) }, "is missing"},
		"a running node": {func(f folder) error {
			lock, err := lockFolder(f.path)
			t.Cleanup(func() { _ = lock.Close() })
			return err
		}, "stop it first"},
	} {
		t.Run(name, func(t *testing.T) {
			f := restored(t)
			if err := tc.harm(f); err != nil {
				t.Fatal(err)
			}
			s, err := OpenSurvivor(offline(f.path))
			if err == nil {
				_ = s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}
