package hosttest

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestASmallDiskIsFullSoon promises that a file beyond the bytes that were asked for finds no room.
func TestASmallDiskIsFullSoon(t *testing.T) {
	dir := t.TempDir()
	SmallDisk(t, dir, 64<<10)
	if err := os.WriteFile(filepath.Join(dir, "fits"), make([]byte, 16<<10), 0o600); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "large"), make([]byte, 128<<10), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a file that does not fit: %v", err)
	}
}

// TestProcessorTimeGrows promises that work shows.
func TestProcessorTimeGrows(t *testing.T) {
	before, sum := ProcessorTime(t), 0
	for ProcessorTime(t) == before {
		for i := range 1 << 20 {
			sum += i
		}
	}
}
