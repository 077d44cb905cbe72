package node

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/hosttest"
)

// A damaged folder that is a mount point is emptied instead of moved, and its lost+found stays.
func TestACondemnedFolderThatIsAMountIsEmptied(t *testing.T) {
	n := &Node{folder: folder{t.TempDir()}, logger: slog.New(slog.DiscardHandler)}
	at := n.folder.file(stateDir)
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	hosttest.SmallDisk(t, at, 1<<20)
	for _, name := range []string{"gen-000001", "lost+found"} {
		if err := os.MkdirAll(filepath.Join(at, name, "below"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.setAside(rebuild{Folders: []string{stateDir}, Reason: "damaged"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(at, "gen-000001")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the damaged state is still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(at, "lost+found")); err != nil {
		t.Error(err)
	}
}

// A node that sets a damaged folder aside logs one line of level error, and one that was removed from its cluster
// logs one of level info.
func TestFoldersThatAreLeftBehindAreNoError(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(*Node) error
		want  string
	}{
		"damaged": {func(n *Node) error { return n.setAside(rebuild{Folders: []string{stateDir}, Reason: "damaged"}) }, "level=ERROR"},
		"removed": {func(n *Node) error {
			n.opts.Config.Cluster.Join = []string{members.Ticket{Secret: make([]byte, 32), Addrs: []string{"/ip4/127.0.0.1/tcp/1"}}.String()}
			if err := os.WriteFile(n.folder.file(removedFile), nil, 0o600); err != nil {
				return err
			}
			return n.leaveBehind(t.Context())
		}, "level=INFO"},
	} {
		var log strings.Builder
		n := &Node{folder: folder{t.TempDir()}, logger: slog.New(slog.NewTextHandler(&log, nil))}
		if err := os.Mkdir(n.folder.file(stateDir), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := c.leave(n); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := os.Stat(n.folder.file(stateDir)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the state is still there: %v", name, err)
		}
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, c.want) || !strings.Contains(got, "moved a folder aside") {
			t.Errorf("%s: %q is said, want one line with %s", name, got, c.want)
		}
	}
}

// A node on a full disk keeps the members that it wrote before, says once that the disk is full, and writes the new
// ones when there is room.
func TestAFullDiskKeepsTheMembersThatWereNoted(t *testing.T) {
	var log strings.Builder
	n := &Node{folder: folder{t.TempDir()}, logger: slog.New(slog.NewTextHandler(&log, nil))}
	hosttest.SmallDisk(t, n.folder.path, 64<<10)
	one := newSeed("cluster", []state.Node{{ID: "a", ClusterAddrs: []string{"/a"}}})
	two := newSeed("cluster", []state.Node{{ID: "a", ClusterAddrs: []string{"/a"}}, {ID: "b", ClusterAddrs: []string{"/b"}}})
	noted := func(want *seed) {
		t.Helper()
		if got, err := n.folder.seed(); err != nil || !got.equal(want) {
			t.Errorf("noted %+v, %v; want %+v", got, err, want)
		}
	}
	if err := n.noteMembers(one); err != nil {
		t.Fatal(err)
	}
	filler := n.folder.file("filler")
	if err := os.WriteFile(filler, make([]byte, 64<<10), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	for range 3 {
		if err := n.noteMembers(two); err != nil {
			t.Fatal(err)
		}
		noted(one)
	}
	if told := strings.Count(log.String(), "the disk is full"); told != 1 {
		t.Errorf("told %d times", told)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := n.noteMembers(two); err != nil {
		t.Fatal(err)
	}
	noted(two)
}
