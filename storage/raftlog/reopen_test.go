package raftlog

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
)

// Open writes a transaction into one of the two meta pages of the file, and leaves the other. A flush of a
// transaction's last page may have failed, and the page may be in memory alone. Open writes a transaction of its own
// into the other of the two, and flushes it, before anything is promised by what was read.
func TestOpenWritesAPageOfItsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raft", "log")
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(3) {
		if err := l.StoreLog(&raft.Log{Index: i + 1, Term: 1, Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if l, err = Open(path); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	first, second := !bytes.Equal(before[:page], after[:page]), !bytes.Equal(before[page:2*page], after[page:2*page])
	if first == second {
		t.Errorf("meta pages changed: %t, %t", first, second)
	}
}
