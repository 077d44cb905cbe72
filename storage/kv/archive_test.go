package kv

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/internal/goldentest"
)

func archiveOf(t testing.TB, s *Store) []byte {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "checkpoint")
	if err := s.Checkpoint(dir); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := WriteArchive(&b, dir); err != nil {
		t.Fatal(err)
	}
	size, err := ArchiveSize(dir)
	if err != nil || size != int64(b.Len()) {
		t.Fatalf("announced %d bytes, %v, wrote %d", size, err, b.Len())
	}
	return b.Bytes()
}

// Restore replaces all keys by those of the archive, also after a kill, and an open view keeps the old ones.
func TestRestoreReplacesEverythingAndOpenViewsKeepTheOld(t *testing.T) {
	from, dir := open(t, t.TempDir()), t.TempDir()
	to := open(t, dir)
	put(t, from, true, "a", "1")
	put(t, from, false, "b", "2") // not synced: a checkpoint has it all the same
	put(t, to, true, "old", "x", "a", "0")
	view := to.View()
	if err := to.Restore(bytes.NewReader(archiveOf(t, from))); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, to); got != "a=1 b=2" {
		t.Errorf("restored: %q", got)
	}
	if got := content(t, view); got != "a=0 old=x" {
		t.Errorf("view of before: %q", got)
	}
	view.Close()
	if names, _ := filepath.Glob(filepath.Join(dir, "gen-*")); len(names) != 1 {
		t.Errorf("old data still there: %v", names)
	}
	put(t, to, true, "c", "3")
	if got := stored(t, open(t, copyDir(t, dir))); got != "a=1 b=2 c=3" {
		t.Errorf("after kill: %q", got)
	}
}

// Restore of a damaged, cut or malicious archive fails and changes no key and no file.
func TestBadArchiveChangesNothing(t *testing.T) {
	from := open(t, t.TempDir())
	put(t, from, true, "a", "1")
	good := archiveOf(t, from)
	flip := func(at int) []byte {
		bad := bytes.Clone(good)
		bad[at] ^= 0x10
		return bad
	}
	cases := map[string][]byte{
		"empty": {}, "only a header": good[:8], "end missing": good[:len(good)-endBytes],
		"header": flip(0), "file name": flip(12), "file size": flip(40), "content": flip(len(good) / 2), "end": flip(len(good) - 3),
		"first file twice":   append(bytes.Clone(good[:len(good)-endBytes]), good[8:]...),
		"path out of folder": evilArchive("../evil"), "absolute path": evilArchive("/tmp/evil"), "hidden file": evilArchive(".evil"), "no name": evilArchive(""),
		"whole archive, no store in it": evilArchive("readme"),
	}
	for i := 1; i < 40; i++ {
		n := len(good) * i / 40
		cases[fmt.Sprintf("cut at %d", n)] = good[:n]
	}
	dir := t.TempDir()
	to := open(t, dir)
	put(t, to, true, "old", "x")
	for name, stream := range cases {
		t.Run(name, func(t *testing.T) {
			err := to.Restore(bytes.NewReader(stream))
			if err == nil {
				t.Fatal("no error")
			}
			if !strings.HasPrefix(name, "whole") && !errors.Is(err, ErrBadArchive) {
				t.Errorf("got %v, want ErrBadArchive", err)
			}
			if got := stored(t, to); got != "old=x" {
				t.Errorf("store changed: %q", got)
			}
			if names, _ := filepath.Glob(filepath.Join(dir, "gen-*")); len(names) != 1 {
				t.Errorf("leftovers: %v", names)
			}
		})
	}
}

// Restore refuses an archive with a damaged table with ErrCorrupt, although the archive's checksums fit. A sender
// whose disk is damaged makes such an archive.
func TestRottenTableInsideAGoodArchiveIsRefused(t *testing.T) {
	from := open(t, t.TempDir())
	for i := range 2000 {
		put(t, from, false, fmt.Sprintf("key-%05d", i), strings.Repeat("v", 300))
	}
	g, err := from.acquire()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.db.Flush(), g.release(from.log)); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "checkpoint")
	if err := from.Checkpoint(dir); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	raw, err := os.ReadFile(tables[0])
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/3] ^= 1
	// Replaced, not written in place: the table is a hard link to the sender's.
	if err := errors.Join(os.Remove(tables[0]), os.WriteFile(tables[0], raw, 0o600)); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := WriteArchive(&b, dir); err != nil {
		t.Fatal(err)
	}
	to := open(t, t.TempDir())
	put(t, to, true, "old", "x")
	if err := to.Restore(&b); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
	if got := stored(t, to); got != "old=x" {
		t.Errorf("store changed: %q", got)
	}
}

// evilArchive returns a well-formed archive of one file that names name.
func evilArchive(name string) []byte {
	head := append([]byte{frameFile, 0, byte(len(name))}, name...)
	head = appendCRC(append(head, 0, 0, 0, 0, 0, 0, 0, 2))
	file := append(head, "hi"...)
	file = append(file, appendCRC([]byte("hi"))[2:]...)
	end := appendCRC([]byte{frameEnd, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2})
	return append(append([]byte(archiveMagic), file...), end...)
}

// An archive has the bytes of the golden file, and a link is not archived.
func TestArchiveFormatIsTheGoldenOne(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"000001.sst": "table", "CURRENT": "", "OPTIONS-3": "[Version]\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if err := WriteArchive(&b, dir); err != nil {
		t.Fatal(err)
	}
	goldentest.File(t, filepath.Join("testdata", "archive.golden"), []byte(hex.Dump(b.Bytes())))
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := WriteArchive(&b, dir); err == nil {
		t.Error("a link was archived")
	}
}

func FuzzExtractArchive(f *testing.F) {
	f.Add(evilArchive("000001.sst"))
	f.Add(evilArchive("../x"))
	f.Add([]byte(archiveMagic))
	f.Fuzz(func(t *testing.T, stream []byte) {
		parent := t.TempDir()
		dir := filepath.Join(parent, "out")
		if err := extractArchive(bytes.NewReader(stream), dir); err != nil {
			return
		}
		// What was accepted is written again byte for byte, up to file order.
		size, err := ArchiveSize(dir)
		if err != nil || size > int64(len(stream)) {
			t.Errorf("accepted %d bytes as an archive of %d, %v", len(stream), size, err)
		}
		if names, _ := os.ReadDir(parent); len(names) != 1 {
			t.Errorf("wrote outside: %v", names)
		}
	})
}

// VerifyArchive accepts a good archive, refuses one that is cut off, and leaves no file.
func TestVerifyingAnArchiveWritesNothing(t *testing.T) {
	s := open(t, t.TempDir())
	put(t, s, true, "a", "1")
	archive := archiveOf(t, s)
	t.Chdir(t.TempDir())
	if err := VerifyArchive(bytes.NewReader(archive)); err != nil {
		t.Error(err)
	}
	if err := VerifyArchive(bytes.NewReader(archive[:len(archive)-1])); !errors.Is(err, ErrBadArchive) {
		t.Errorf("cut off: %v", err)
	}
	if left, err := os.ReadDir("."); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
