package node

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
	"github.com/holdfast-ipfs/holdfast/storage/kv"
)

// A node refuses a data folder with the mark of a newer release or with a bad mark, and writes the mark into a folder
// without one. The mark covers every file that has none of its own.
func TestAFolderOfANewerReleaseIsRefused(t *testing.T) {
	f := folder{t.TempDir()}
	for range 2 { // without a mark, and with it
		if err := f.checkFormat(); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(f.file(formatFile)); err != nil || string(b) != "holdfast folder 1\n" {
		t.Errorf("%q, %v", b, err)
	}
	for text, newer := range map[string]bool{"holdfast folder 2\n": true, "": false, "rubbish": false} {
		if err := os.WriteFile(f.file(formatFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := f.checkFormat(); err == nil || errors.Is(err, durable.ErrNewer) != newer {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Files that a newer release wrote are not set aside as damaged.
func TestNothingOfANewerReleaseIsCondemned(t *testing.T) {
	err := fmt.Errorf("%w: %w", kv.ErrCorrupt, durable.Newer("state", 2, 1))
	if r := rebuildFor(err); len(r.Folders) > 0 {
		t.Errorf("%+v", r)
	}
}
