package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/node"
	"github.com/holdfast-ipfs/holdfast/config"
)

// Names of the files that make a folder a member's, as docs/ARCHITECTURE.md has them.
const identityFile, membersFile = "identity.key", "members.json"

// refused opens a node that must not start, and returns why it does not.
func refused(t *testing.T, c config.Config) string {
	t.Helper()
	n, err := node.Open(t.Context(), node.Options{Config: c, Version: "test", Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		t.Fatal(errors.Join(errors.New("the node starts"), n.Close()))
	}
	return err.Error()
}

// changeHex changes two digits of the text in a file.
func changeHex(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if text[i] == '0' {
			text[i] = '1'
		} else {
			text[i] = '0'
		}
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestAMemberWithoutItsFilesIsRefusedByName promises that a member without one of its own files, or with another
// secret, does not start, names the file, and says what can be done (A10). It must not start as something else.
func TestAMemberWithoutItsFilesIsRefusedByName(t *testing.T) {
	t.Parallel() // it mostly waits
	const another, backup = "another member", "from a backup"
	nodes := three(t)
	for at, n := range nodes {
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			what, names, advice string
			harm                func(dir string) error
		}{
			{"no secret", node.SecretFile, another, func(dir string) error { return os.Remove(filepath.Join(dir, node.SecretFile)) }},
			{"neither secret nor members", node.SecretFile, another, func(dir string) error {
				return errors.Join(os.Remove(filepath.Join(dir, node.SecretFile)), os.Remove(filepath.Join(dir, membersFile)))
			}},
			{"another secret", node.SecretFile, another, func(dir string) error { changeHex(t, filepath.Join(dir, node.SecretFile)); return nil }},
			{"half a secret", node.SecretFile, another, func(dir string) error { return os.Truncate(filepath.Join(dir, node.SecretFile), 7) }},
			{"no identity", identityFile, backup, func(dir string) error { return os.Remove(filepath.Join(dir, identityFile)) }},
			{"a damaged identity", identityFile, backup, func(dir string) error {
				path := filepath.Join(dir, identityFile)
				key, err := os.ReadFile(path)
				if err == nil {
					key[len(key)-1] ^= 1
					err = os.WriteFile(path, key, 0o600)
				}
				return err
			}},
		} {
			c := n.config
			c.Data = filepath.Join(t.TempDir(), "copy")
			if err := os.CopyFS(c.Data, os.DirFS(n.dir)); err != nil {
				t.Fatal(err)
			}
			if err := tc.harm(c.Data); err != nil {
				t.Fatal(err)
			}
			if why := refused(t, c); !strings.Contains(why, filepath.Join(c.Data, tc.names)) || !strings.Contains(why, tc.advice) {
				t.Errorf("node %d, %s: %s", at+1, tc.what, why)
			}
			if tc.what == "no secret" {
				if _, err := os.Stat(filepath.Join(c.Data, node.SecretFile)); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("node %d: a secret was made up: %v", at+1, err)
				}
			}
		}
	}
}

// TestWithoutAStateASeedThatCannotBeReadIsRefused promises that a node without a state whose file of members cannot
// be read does not start, and changes neither that file nor its secret. It must not found a cluster of its own:
// without a state nothing else tells which cluster the file meant.
func TestWithoutAStateASeedThatCannotBeReadIsRefused(t *testing.T) {
	t.Parallel() // it mostly waits
	n := start(t, filepath.Join(t.TempDir(), "node1"), "", "")
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	secret, err := os.ReadFile(filepath.Join(n.dir, node.SecretFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"state", "raft"} {
		if err := os.RemoveAll(filepath.Join(n.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range unreadSeeds {
		path := filepath.Join(n.dir, membersFile)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		why := refused(t, n.config)
		for _, part := range []string{path, "backup", "empty data folder"} {
			if !strings.Contains(why, part) {
				t.Errorf("%q: %s does not say %q", text, why, part)
			}
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != text {
			t.Errorf("%q is now %q: %v", text, now, err)
		}
	}
	if now, err := os.ReadFile(filepath.Join(n.dir, node.SecretFile)); err != nil || !bytes.Equal(now, secret) {
		t.Errorf("the secret is another one: %v", err)
	}
}

// TestAnIdentityThatWasPutBackFoundsNothing promises that a node whose identity was put back on a new disk, with the
// secret of the others or without, founds no cluster and asks for --join. With --join the node is back
// (TestAMemberThatLostItsDiskComesBackWithoutAVote). A first start that ended right behind its identity founds all
// the same.
func TestAnIdentityThatWasPutBackFoundsNothing(t *testing.T) {
	t.Parallel() // it mostly waits
	nodes := three(t)
	for _, kept := range [][]string{{identityFile}, {identityFile, node.SecretFile}} {
		c := nodes[1].config
		c.Data = filepath.Join(t.TempDir(), "copy")
		c.Cluster.Join = nil
		if err := os.CopyFS(c.Data, os.DirFS(nodes[1].dir)); err != nil {
			t.Fatal(err)
		}
		if err := removeAllBut(c.Data, kept...); err != nil {
			t.Fatal(err)
		}
		if why := refused(t, c); !strings.Contains(why, filepath.Join(c.Data, identityFile)) || !strings.Contains(why, "--join") {
			t.Errorf("%v: %s", kept, why)
		}
		if _, err := os.Stat(filepath.Join(c.Data, membersFile)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v: a cluster was founded: %v", kept, err)
		}
	}
	n := start(t, filepath.Join(t.TempDir(), "node1"), "", "")
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	if err := removeAllBut(n.dir, identityFile, node.SecretFile); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.dir, "new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := node.Open(t.Context(), node.Options{Config: n.config, Version: "test", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(n.dir, "new")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is still new: %v", err)
	}
}

// unreadSeeds are files of members that tell nothing.
var unreadSeeds = []string{"", "{\"cluster_id\": \"", "{}", "null", "\x00\x00\x00\x00"}

// TestAMemberWithoutItsSeedMakesItFromTheState promises that a member whose file of members is missing or unreadable
// warns, and writes the file anew from its state.
func TestAMemberWithoutItsSeedMakesItFromTheState(t *testing.T) {
	t.Parallel() // it mostly waits
	n := start(t, filepath.Join(t.TempDir(), "node1"), "", "")
	before, err := n.Members().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(n.dir, membersFile)
	type seed struct {
		ClusterID string                `json:"cluster_id"`
		Members   []struct{ ID string } // its port is another one at each start
	}
	read := func() (s seed) {
		t.Helper()
		text, err := os.ReadFile(path)
		if err = errors.Join(err, json.Unmarshal(text, &s)); err != nil {
			t.Error(err)
		}
		return s
	}
	whole := read()
	harms := []func() error{func() error { return os.Remove(path) }}
	for _, text := range unreadSeeds {
		harms = append(harms, func() error { return os.WriteFile(path, []byte(text), 0o600) })
	}
	for i, harm := range harms {
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		n := run(t, n.config, func(o *node.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		after, err := n.Members().Status(t.Context())
		if err != nil || after.ClusterID != before.ClusterID || after.Node.ID != before.Node.ID {
			t.Errorf("harm %d: cluster %s of %s, before %s of %s: %v", i, after.ClusterID, after.Node.ID, before.ClusterID, before.Node.ID, err)
		}
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), path) {
			t.Errorf("harm %d is not told of", i)
		}
		if now := read(); now.ClusterID != whole.ClusterID || !slices.Equal(now.Members, whole.Members) {
			t.Errorf("harm %d: written anew it is %+v, was %+v", i, now, whole)
		}
	}
}

// TestAnotherSecretIsNoticedWhenTheStateComes promises that a node with the secret of another cluster receives the
// state, is not ready, says why, and makes neither a key nor a ticket. Without a state nobody can tell that the
// secret is another one.
func TestAnotherSecretIsNoticedWhenTheStateComes(t *testing.T) {
	t.Parallel() // it mostly waits
	nodes := three(t)
	sick := nodes[2]
	if err := sick.stop(); err != nil {
		t.Fatal(err)
	}
	changeHex(t, filepath.Join(sick.dir, node.SecretFile))
	for _, name := range []string{"state", "raft"} {
		if err := os.RemoveAll(filepath.Join(sick.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	n, err := node.Open(t.Context(), node.Options{Config: sick.config, Version: "test", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	serve(t, n, sick.config)
	await(t, "told that the secret does not fit", func() bool {
		err := n.Ready()
		return err != nil && strings.Contains(err.Error(), filepath.Join(sick.dir, node.SecretFile))
	})
	if _, err := n.Accounts().CreateKey(t.Context(), "operator@localhost", "", nil, 0); err == nil {
		t.Error("a key is made")
	}
	if keys, err := nodes[0].Accounts().Keys(t.Context(), ""); err != nil || len(keys) != 0 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
	if _, err := n.Members().CreateTicket(context.Background(), node.JoinTimeout, func([]byte) {}); err == nil {
		t.Error("a ticket is made")
	}
}

// exposed returns what other users of this machine could read below a folder.
func exposed(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist): // the node goes on beside
			return nil
		case err != nil:
			return err
		case info.Mode().Perm()&0o077 != 0:
			paths = append(paths, path)
		case d.IsDir():
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// TestOthersReadNothingOfANode promises that other users of the machine can read no file of a node, neither in a
// folder that all may enter nor in a copy with modes that permit it. The node removes the rights of a copy, and says
// so.
func TestOthersReadNothingOfANode(t *testing.T) {
	t.Parallel() // it mostly waits
	dir := filepath.Join(t.TempDir(), "node1")
	// A mount point of its own may be there before the node.
	if err := os.MkdirAll(filepath.Join(dir, "state"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, filepath.Join(dir, "state")} {
		if err := os.Chmod(path, 0o755); err != nil { // whatever the umask
			t.Fatal(err)
		}
	}
	n := start(t, dir, "", "")
	if paths := exposed(t, dir); len(paths) > 0 {
		t.Errorf("of a new node: %v", paths)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if d.IsDir() {
			mode = 0o755
		}
		return os.Chmod(path, mode)
	})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	n = run(t, n.config, func(o *node.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	if paths := exposed(t, dir); len(paths) > 0 {
		t.Errorf("of a copy: %v", paths)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{node.SecretFile, identityFile, "state", "raft", "blocks"} {
		if !strings.Contains(log.String(), filepath.Join(dir, name)) {
			t.Errorf("%s is not told of", name)
		}
	}
}

// TestLinkedSecretsKeepTheirModes promises that a node leaves the mode of a secret behind a link as it is, and
// removes the rights of others from a folder behind a link. The secret is somebody else's; the folder is the node's.
func TestLinkedSecretsKeepTheirModes(t *testing.T) {
	t.Parallel() // it mostly waits
	n := start(t, filepath.Join(t.TempDir(), "node1"), "", "")
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	for name, mode := range map[string]fs.FileMode{node.SecretFile: 0o644, "state": 0o755} {
		from, to := filepath.Join(n.dir, name), filepath.Join(elsewhere, name)
		if err := errors.Join(os.Rename(from, to), os.Symlink(to, from), os.Chmod(to, mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(t, n.config).stop(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{node.SecretFile: 0o644, "state": 0o700} {
		if info, err := os.Stat(filepath.Join(elsewhere, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
}
