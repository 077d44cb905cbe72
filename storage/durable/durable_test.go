package durable

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// WriteFile replaces a file by the new content and mode, and leaves nothing else in the folder. So it does after a
// crash of another writer.
func TestWriteFileReplacesWholeAndLeavesNothingElse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pointer")
	// A leftover of a crashed writer, longer and more open than the new file.
	if err := os.WriteFile(filepath.Join(dir, ".pointer.tmp"), []byte("leftover of a crash"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"first, long content", "second", ""} {
		if err := WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			t.Fatalf("read back %q, %v, want %q", got, err, content)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v, want 0600", info.Mode(), err)
	}
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Fatalf("folder holds %v, want the one file", names)
	}
}

// Narrow removes the rights of group and others alone, and reports whether it has changed any.
func TestNarrowLeavesTheOwnersRightsAlone(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct {
		mode, want fs.FileMode
	}{{0o644, 0o600}, {0o600, 0o600}, {0o755, 0o700}, {0o440, 0o400}, {0o602, 0o600}, {0o755 | fs.ModeSetgid, 0o700 | fs.ModeSetgid}} {
		path := filepath.Join(dir, "f")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, tc.mode); err != nil {
			t.Fatal(err)
		}
		narrowed, err := Narrow(path)
		info, statErr := os.Stat(path)
		if err := errors.Join(err, statErr); err != nil || narrowed != (tc.mode != tc.want) || info.Mode() != tc.want {
			t.Errorf("%v: %v, told %t, %v", tc.mode, info.Mode(), narrowed, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Narrow(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing there: %v", err)
	}
}

// A WriteFile that fails leaves the old content.
func TestWriteFileKeepsOldContentWhenItCannotWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	// A folder in the place of the temporary file stops the write.
	if err := os.MkdirAll(filepath.Join(dir, ".f.tmp", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, []byte("new"), 0o600); err == nil {
		t.Fatal("no error")
	}
	if got, _ := os.ReadFile(path); string(got) != "old" {
		t.Fatalf("content %q, want the old one", got)
	}
}

// MkdirAll and RemoveAll succeed when there is nothing to do, and Rename fails for a folder that is not there.
func TestFolderOperations(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a", "b", "c"), filepath.Join(dir, "d")
	for range 2 {
		if err := MkdirAll(a, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := Rename(a, b); err != nil {
		t.Fatal(err)
	}
	if err := Rename(a, b); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("rename of nothing: %v", err)
	}
	for range 2 {
		if err := RemoveAll(b); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(b); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("still there: %v", err)
	}
}

// Lock refuses a second holder, in this process and in another one, and names the process that holds the lock. It
// succeeds after Close.
func TestLockRefusesSecondHolderAndNamesTheFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "LOCK")
	if os.Getenv("HOLDFAST_LOCK_TEST") != "" {
		path = os.Getenv("HOLDFAST_LOCK_TEST")
		if _, err := Lock(path); !errors.Is(err, ErrLocked) {
			t.Fatalf("in another process: %v, want ErrLocked", err)
		}
		return
	}
	held, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Lock(path)
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Fatalf("second lock: %v, want ErrLocked with our process id", err)
	}
	other := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	other.Env = append(os.Environ(), "HOLDFAST_LOCK_TEST="+path)
	if out, err := other.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Lock(path)
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

// DropCache changes no byte of a file, before and after its bytes are durable.
func TestDropCacheKeepsTheBytes(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	content := strings.Repeat("content ", 4<<10)
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	DropCache(f, 0, 1<<20) // not durable yet: stays
	if err := Datasync(f); err != nil {
		t.Fatal(err)
	}
	DropCache(f, 0, 1<<20)
	if got, err := os.ReadFile(f.Name()); err != nil || string(got) != content {
		t.Fatalf("%d bytes, %v, want those that were written", len(got), err)
	}
}

// Close gives a lock back even if another descriptor of its file is open. A child process may have inherited one for
// a moment.
func TestALockIsGivenBackWhoeverHasItsFileOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "LOCK")
	taken, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := syscall.Dup(int(taken.(held).f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(inherited) }()
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}
