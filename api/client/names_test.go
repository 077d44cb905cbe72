package client

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/client/seal"
)

// someNames returns names that a writer may or may not take: each ASCII character, percent sequences,
// dot segments, empty segments, and the ends of what a name may have.
func someNames() (names []string) {
	for b := range 0x80 {
		names = append(names, "f/a"+string(rune(b))+"b")
	}
	for _, b := range []byte{0x00, 0x01, 0x20, 0x24, 0x25, 0x26, 0x2d, 0x2e, 0x2f, 0x30, 0x5b, 0x5c, 0x5d, 0x7e, 0xff} {
		names = append(names, fmt.Sprintf("f/%%%02x", b), fmt.Sprintf("f/%%%02X/g", b))
	}
	names = append(names,
		"", "/", ".", "..", "...", "f", "f/", "/f", "f//a", "f/.", "f/..", "f/./a", "f/../a", "../f/a", "f/.a", "f/..a", "f/a.", "f/ ", " ", "f /a",
		`\`, `f\a`, `f/..\a`, "f/%2e%2e/a", "f/%252f", "f/%2", "f/%", "f/%%", "f/100%", "f/%2g", "f%2fa", "f/%ff", "f/%c0%af", "f/%u002e",
		"f/ü", "f/u\u0308", "f/日本語", "f/\U0001f600", "f/\u2028", "f/\u202e", "f/\u200d", "f/\ufeff", "f/\ufffd", "f/\ufffe", "f/\uffff", "f/\U0010ffff", "f/\u0085",
		"f/\xff", "f/\xc3", "f/\xc0\xaf", "f/\xed\xa0\x80", "f/\xf4\x90\x80\x80", "f/a\x00", "\x00", "f/C:", "f/con", "f/a:b", "f/~", "f/-a", "f/.holdfast-a.part", "f/__proto__",
		"f/"+strings.Repeat("a", 1020), "f/"+strings.Repeat("a", 1021), "f/"+strings.Repeat("a", 1022), "f/"+strings.Repeat("ü", 510), "f/"+strings.Repeat("ü", 511),
		"f/"+strings.Repeat("\x01", 1021), "f/"+strings.Repeat("&", 1021), "f/"+strings.Repeat("\u2028", 340), "f"+strings.Repeat("/a", 511),
	)
	slices.Sort(names)
	return slices.Compact(names)
}

// TestAWriterTakesNoNameThatARecipientRefuses promises that the recipients of the folder f, of the
// whole bucket and of the file alone list and read each file that a writer took, and that a writer
// refuses each other name before it reads the file or sends a request, with an error that names it.
func TestAWriterTakesNoNameThatARecipientRefuses(t *testing.T) {
	c := newCluster(t, 1)
	v := newVault(t, c, newIdentity(t))
	file := filepath.Join(t.TempDir(), "file")
	fillFolder(t, filepath.Dir(file), map[string]string{"file": "bytes"})
	var taken, refused []string
	for _, name := range someNames() {
		err := v.CheckName(name)
		if err == nil {
			if err := v.UploadFile(t.Context(), name, file, UploadOptions{}); err != nil {
				t.Fatalf("%q: %v", name, err)
			}
			taken = append(taken, name)
			continue
		}
		refused = append(refused, name)
		before := c.number("")
		for _, err := range []error{err, v.UploadFile(t.Context(), name, "/nonexistent", UploadOptions{}), v.Upload(t.Context(), name, unread{t}, UploadOptions{})} {
			if !errors.Is(err, seal.ErrPath) && !errors.Is(err, seal.ErrPathUnreadable) || !strings.Contains(err.Error(), "s3://bucket/"+name+": ") {
				t.Errorf("%q is refused by %v", name, err)
			}
		}
		if after := c.number(""); after != before {
			t.Errorf("%q is refused after %d requests", name, after-before)
		}
	}
	for _, name := range []string{"f/100%", "f/%20", "f/ü", "f/a\nb", "f/" + strings.Repeat("\x01", 1021)} {
		if !slices.Contains(taken, name) {
			t.Errorf("%q is refused", name)
		}
	}
	for _, name := range []string{"f/%2f", "f/%2F/g", "f/%2e", "f/%25", "f/%5C/g", "f/%00", `f\a`, "f//a", "f/../a", "f/\xff", "f/" + strings.Repeat("a", 1022)} {
		if !slices.Contains(refused, name) {
			t.Errorf("%q is taken", name)
		}
	}
	bucket := openLink(t, c, shared(t, v, "", ShareOptions{Permissions: seal.ReadOnly()}), nil)
	folder := openLink(t, c, shared(t, v, "f/", ShareOptions{Permissions: seal.ReadOnly()}), nil)
	if got := namesOf(t, bucket, ""); !slices.Equal(slices.Sorted(slices.Values(got)), taken) {
		t.Errorf("of the whole bucket %d files are listed, of %d", len(got), len(taken))
	}
	for _, name := range taken {
		readers := map[string]*Vault{"bucket": bucket}
		if strings.HasPrefix(name, "f/") {
			readers["folder"] = folder
		}
		if single, err := v.Share(t.Context(), name, ShareOptions{Permissions: seal.ReadOnly()}); err == nil {
			readers["file"] = openLink(t, c, single.URL(), nil)
		} else if !errors.Is(err, ErrFileAndFolder) {
			t.Errorf("%q: %v", name, err)
		}
		for of, reader := range readers {
			if got := downloaded(t, reader, name); got != "bytes" {
				t.Errorf("%q in the share of the %s: %q", name, of, got)
			}
		}
	}
}

// unread is a reader that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("a file is read whose name is refused")
	return 0, os.ErrInvalid
}

// TestAnEncryptedSyncReportsNamesThatARecipientRefuses promises that a sync reports each name that a recipient
// would refuse and copies all other files.
func TestAnEncryptedSyncReportsNamesThatARecipientRefuses(t *testing.T) {
	c := newCluster(t, 1)
	v := newVault(t, c, newIdentity(t))
	dir := t.TempDir()
	fillFolder(t, dir, map[string]string{"a": "1", "50%25.txt": "2", "b%2f/c": "3", `d\e`: "4", "z/y%20": "5"})
	for _, dry := range []bool{true, false} {
		var e events
		r, err := v.Push(t.Context(), dir, "p", e.options(SyncOptions{DryRun: dry, Delete: true}))
		if !errors.Is(err, ErrSync) || r.Copied != 2 || r.Failed != 3 {
			t.Errorf("dry run %t: %+v, %v", dry, r, err)
		}
		failed := map[string]bool{}
		for _, event := range e.list {
			if event.Action == ActionFail {
				failed[event.Path] = errors.Is(event.Err, seal.ErrPathUnreadable)
			}
		}
		if want := map[string]bool{"50%25.txt": true, "b%2f/c": true, `d\e`: true}; !maps.Equal(failed, want) {
			t.Errorf("dry run %t: reports %v", dry, failed)
		}
	}
	if got := namesOf(t, v, ""); !slices.Equal(got, []string{"p/a", "p/z/y%20"}) {
		t.Errorf("stored %q", got)
	}
	before := c.number("")
	if _, err := v.Push(t.Context(), dir, "p%2f", SyncOptions{}); !errors.Is(err, seal.ErrPathUnreadable) || c.number("") != before {
		t.Errorf("a sync to a folder that recipients refuse: %v", err)
	}
}

// TestARefusedNameHidesNoOtherFile promises that the owner lists, reads and removes files whose names
// an earlier release took, and that recipients still get the other files of the folder.
func TestARefusedNameHidesNoOtherFile(t *testing.T) {
	c := newCluster(t, 1)
	v := newVault(t, c, newIdentity(t))
	for _, name := range []string{"f/a", "f/b/c", "f/z"} {
		if err := v.Upload(t.Context(), name, strings.NewReader("bytes of "+name), UploadOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := v.index("/f/b")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := b.List(t.Context())
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	old := entries[0]
	old.Name = "50%25"
	for _, folder := range []string{"/f", "/f/b%2f"} {
		if err := v.record(t.Context(), folder, old); err != nil {
			t.Fatal(err)
		}
	}
	all := []string{"f/50%25", "f/a", "f/b%2f/50%25", "f/b/c", "f/z"}
	if got := namesOf(t, v, ""); !slices.Equal(got, all) {
		t.Errorf("the owner lists %q", got)
	}
	recipient := openLink(t, c, shared(t, v, "f", ShareOptions{Permissions: seal.ReadOnly()}), nil)
	if got := namesOf(t, recipient, "f/"); !slices.Equal(got, []string{"f/50%25", "f/a", "f/b%2f/", "f/b/c", "f/z"}) {
		t.Errorf("a recipient lists %q", got)
	}
	dir := t.TempDir()
	fillFolder(t, dir, map[string]string{"b%2f/only here": "1"})
	var e events
	r, err := recipient.Pull(t.Context(), "f", dir, e.options(SyncOptions{Delete: true}))
	if !errors.Is(err, ErrSync) || r.Copied != 3 || r.Failed != 2 || r.Deleted != 0 {
		t.Errorf("%+v, %v, %v", r, err, e.list)
	}
	want := map[string]string{"a": "bytes of f/a", "b/c": "bytes of f/b/c", "z": "bytes of f/z", "b%2f/only here": "1"}
	if got := readFolder(t, dir); !maps.Equal(got, want) {
		t.Errorf("downloaded %q", got)
	}
	if err := v.Remove(t.Context(), "f/50%25"); err != nil {
		t.Error(err)
	}
	var got bytes.Buffer
	if err := v.Download(t.Context(), "f/50%25", &got, DownloadOptions{}); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}
