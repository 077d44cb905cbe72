package node

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestACondemnedFolderThatIsAMountIsEmptied(t *testing.T) {
	n := &Node{folder: folder{t.TempDir()}, logger: slog.New(slog.DiscardHandler)}
	at := n.folder.file(stateDir)
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("holdfast-node", at, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("nothing can be mounted here, so a folder that cannot be moved is not tested: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(at, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
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
