package durable

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-ipfs/holdfast/internal/hosttest"
	"golang.org/x/sys/unix"
)

// The pages of a mapped file leave the memory of the process, and the mapping still has the bytes of the file.
// Those of another file stay, and so does a change in a private mapping. The folder has a space in its name.
func TestDropMappedKeepsTheBytes(t *testing.T) {
	const size = 1 << 20
	content := bytes.Repeat([]byte("holdfast"), size/8)
	dir := filepath.Join(t.TempDir(), "a folder")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	mapped := func(name string, protection, flags int) (path string, memory []byte) {
		t.Helper()
		path = filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		if memory, err = unix.Mmap(int(f.Fd()), 0, size, protection, flags); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Munmap(memory) })
		if !bytes.Equal(memory, content) { // and every page is read
			t.Fatal("the mapping differs from the file")
		}
		return path, memory
	}
	path, memory := mapped("shared", unix.PROT_READ, unix.MAP_SHARED)
	other, _ := mapped("other", unix.PROT_READ, unix.MAP_SHARED)
	private, changed := mapped("private", unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	changed[0] = 'H'
	for _, p := range []string{path, private} {
		info, err := os.Stat(p)
		if err == nil {
			err = DropMapped(info)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := hosttest.MappedBytes(t, path); got != 0 {
		t.Errorf("%d bytes of the file are resident", got)
	}
	if got := hosttest.MappedBytes(t, other); got != size {
		t.Errorf("%d bytes of the other file are resident", got)
	}
	if !bytes.Equal(memory, content) || changed[0] != 'H' {
		t.Error("a mapping has other bytes")
	}
}
