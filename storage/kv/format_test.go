package kv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

// A store of a newer format is refused with ErrNewer and not changed.
func TestAStoreOfANewerReleaseIsRefusedAndNotDamaged(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(dir, "gen-*", formatMarker+"*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("markers %q, %v", found, err)
	}
	newer := filepath.Join(filepath.Dir(found[0]), fmt.Sprintf("%s999999.%03d", formatMarker, pebble.FormatNewest+1))
	if err := os.Rename(found[0], newer); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, durable.ErrNewer) || errors.Is(err, ErrCorrupt) {
		t.Errorf("%v", err)
	}
	if err := os.Rename(newer, found[0]); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
