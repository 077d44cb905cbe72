package cluster

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
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

// A member that lacks a file which makes it that member, or has another secret,
// does not start as something else: it names the file (A10).
func TestAMemberWithoutItsFilesIsRefusedByName(t *testing.T) {
	nodes := three(t)
	for at, n := range nodes {
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			what, names string
			harm        func(dir string) error
		}{
			{"no secret", node.SecretFile, func(dir string) error { return os.Remove(filepath.Join(dir, node.SecretFile)) }},
			{"neither secret nor members", node.SecretFile, func(dir string) error {
				return errors.Join(os.Remove(filepath.Join(dir, node.SecretFile)), os.Remove(filepath.Join(dir, membersFile)))
			}},
			{"another secret", node.SecretFile, func(dir string) error { changeHex(t, filepath.Join(dir, node.SecretFile)); return nil }},
			{"half a secret", node.SecretFile, func(dir string) error { return os.Truncate(filepath.Join(dir, node.SecretFile), 7) }},
			{"no identity", identityFile, func(dir string) error { return os.Remove(filepath.Join(dir, identityFile)) }},
			{"a damaged identity", identityFile, func(dir string) error {
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
			if why := refused(t, c); !strings.Contains(why, filepath.Join(c.Data, tc.names)) {
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

// What a member knows of its cluster besides the state is written anew from it.
func TestAMemberWithoutItsSeedMakesItFromTheState(t *testing.T) {
	n := start(t, filepath.Join(t.TempDir(), "node1"), "", "")
	before, err := n.Members().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(n.dir, membersFile)); err != nil {
		t.Fatal(err)
	}
	after, err := run(t, n.config).Members().Status(t.Context())
	if err != nil || after.ClusterID != before.ClusterID || after.Node.ID != before.Node.ID {
		t.Errorf("cluster %s of %s, before %s of %s: %v", after.ClusterID, after.Node.ID, before.ClusterID, before.Node.ID, err)
	}
}

// Without a state nobody can tell that the secret is another cluster's: the node
// takes the state in, is not ready, and says why. It makes no keys and tells
// nobody its secret.
func TestAnotherSecretIsNoticedWhenTheStateComes(t *testing.T) {
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
