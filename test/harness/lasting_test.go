package harness

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// TestWhatLastsEndsAfterAllTests: what tests share outlives the one that made it, is ended the last thing first, and an error of then
// fails the run and no test.
func TestWhatLastsEndsAfterAllTests(t *testing.T) {
	var l *lasting
	var dir string
	var ended []string
	t.Run("the first", func(t *testing.T) {
		l = newLasting(t)
		dir = l.TempDir()
		l.Cleanup(func() { ended = append(ended, "cluster") })
		l.Cleanup(func() { ended = append(ended, "browser") })
	})
	if _, err := os.Stat(dir); err != nil || l.Context().Err() != nil || len(ended) > 0 {
		t.Fatalf("after the first test: %v, %v, %q", err, l.Context().Err(), ended)
	}
	l.Cleanup(func() {
		if l.Context().Err() == nil {
			t.Error("the context has not ended before the cleanups")
		}
	})
	if !l.end() || strings.Join(ended, " ") != "browser cluster" {
		t.Errorf("ended are %q", ended)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}

	t.Run("one that ends badly", func(t *testing.T) { l = newLasting(t) })
	var told strings.Builder
	l.told = &told
	l.Cleanup(func() { l.Errorf("node%d runs on", 1) })
	if l.end() || !l.Failed() || !strings.Contains(told.String(), "node1 runs on") {
		t.Errorf("what is told is %q", &told)
	}
}
