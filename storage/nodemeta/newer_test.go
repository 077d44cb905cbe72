package nodemeta

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

// Open refuses a journal of a newer format with ErrNewer and both formats, and does not change it.
func TestAJournalOfANewerReleaseIsRefusedAndStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes")
	const newer = "holdfast notes 2\nsomething else"
	if err := os.WriteFile(path, []byte(newer), perm); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, slog.New(slog.DiscardHandler)); !errors.Is(err, durable.ErrNewer) || !strings.Contains(err.Error(), path+" has format 2, and this release knows formats up to 1") {
		t.Errorf("%v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != newer {
		t.Errorf("it was changed to %q, %v", b, err)
	}
}
