package hosttest

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A small disk holds a file that fits, and fails with ENOSPC for a file larger than the bytes that were asked for.
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

// ProcessorTime grows with the work of the process. If it did not, the test would not end.
func TestProcessorTimeGrows(t *testing.T) {
	before, sum := ProcessorTime(t), 0
	for ProcessorTime(t) == before {
		for i := range 1 << 20 {
			sum += i
		}
	}
}
