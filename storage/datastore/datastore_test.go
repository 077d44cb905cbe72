package datastore

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipfs/go-datastore"
)

var key = datastore.NewKey("/a/b")

func newFolder(t *testing.T, opts Options) *Folder {
	t.Helper()
	f := Open(filepath.Join(t.TempDir(), "datastore"), opts)
	t.Cleanup(func() { f.Close() })
	return f
}

// open opens a datastore whose Close is the caller's.
func open(t *testing.T, f *Folder) datastore.Batching {
	t.Helper()
	s, err := f.Open("main")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, s datastore.Batching, value string) {
	t.Helper()
	if err := s.Put(t.Context(), key, []byte(value)); err != nil {
		t.Fatal(err)
	}
}

func shut(t *testing.T, s datastore.Batching) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A datastore has what was put after a restart, in folders of mode 0700, and nothing after its removal.
func TestADatastoreIsThereAfterARestart(t *testing.T) {
	f := newFolder(t, Options{})
	s := open(t, f)
	put(t, s, "kept")
	shut(t, s)
	for _, dir := range []string{f.dir, f.path("main")} {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
	s = open(t, f)
	if v, err := s.Get(t.Context(), key); err != nil || string(v) != "kept" {
		t.Errorf("%q, %v", v, err)
	}
	shut(t, s)
	if err := f.Remove("main"); err != nil {
		t.Fatal(err)
	}
	s = open(t, f)
	defer shut(t, s)
	if has, err := s.Has(t.Context(), key); err != nil || has {
		t.Errorf("it is there after its removal: %v", err)
	}
}

// A datastore that cannot be opened is replaced by an empty one and logged. One without a usable folder is kept in
// memory.
func TestADamagedDatastoreIsMadeAnew(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, f *Folder)
		keeps  bool // the new one lives on
		says   string
	}{
		{"manifest", func(t *testing.T, f *Folder) { overwrite(t, f.path("main"), "MANIFEST-*") }, true, "made anew"},
		{"format of a newer release", func(t *testing.T, f *Folder) {
			markers, err := filepath.Glob(filepath.Join(f.path("main"), "marker.format-version.*"))
			if err != nil || len(markers) != 1 {
				t.Fatal(markers, err)
			}
			if err := os.Rename(markers[0], filepath.Join(f.path("main"), "marker.format-version.000099.999")); err != nil {
				t.Fatal(err)
			}
		}, true, "made anew"},
		{"a file in its place", func(t *testing.T, f *Folder) {
			if err := os.RemoveAll(f.dir); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(f.dir, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, false, "in memory"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log bytes.Buffer
			f := newFolder(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			s := open(t, f)
			put(t, s, "lost")
			shut(t, s)
			tc.damage(t, f)
			s = open(t, f)
			if has, err := s.Has(t.Context(), key); err != nil || has {
				t.Errorf("a new one has the key: %v, %v", has, err)
			}
			put(t, s, "new")
			if v, err := s.Get(t.Context(), key); err != nil || string(v) != "new" {
				t.Errorf("%q, %v", v, err)
			}
			shut(t, s)
			if !strings.Contains(log.String(), tc.says) {
				t.Errorf("the log says %q", log.String())
			}
			s = open(t, f)
			defer shut(t, s)
			if has, err := s.Has(t.Context(), key); err != nil || has != tc.keeps {
				t.Errorf("after a restart it is there: %v, %v", has, err)
			}
		})
	}
}

func overwrite(t *testing.T, dir, pattern string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i := range min(len(b), 4096) {
			b[i] ^= 0xff
		}
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A read of a damaged table fails and does not end the process, and the next start makes the datastore anew.
func TestDamageThatAReadMeetsEndsWithTheNextStart(t *testing.T) {
	var log bytes.Buffer
	f := newFolder(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Fatal: func(message string) { panic(message) }})
	s := open(t, f)
	for i := range 1000 {
		if err := s.Put(t.Context(), datastore.NewKey(fmt.Sprint(i)), bytes.Repeat([]byte("x"), 100)); err != nil {
			t.Fatal(err)
		}
	}
	shut(t, s) // which writes a table
	overwrite(t, f.path("main"), "*.sst")
	s = open(t, f)
	if _, err := s.Get(t.Context(), datastore.NewKey("1")); err == nil || errors.Is(err, datastore.ErrNotFound) {
		t.Errorf("a read of damaged bytes: %v", err)
	}
	shut(t, s)
	if !strings.Contains(log.String(), "is damaged") {
		t.Errorf("the log says %q", log.String())
	}
	s = open(t, f)
	defer shut(t, s)
	if has, err := s.Has(t.Context(), datastore.NewKey("1")); err != nil || has {
		t.Errorf("after a restart: %v, %v", has, err)
	}
}

// While the disk is almost full, a datastore refuses puts with ErrNoRoom and takes deletions.
func TestAnAlmostFullDiskTakesDeletionsOnly(t *testing.T) {
	tight := false
	f := newFolder(t, Options{Tight: func() bool { return tight }})
	s := open(t, f)
	defer shut(t, s)
	put(t, s, "before")
	tight = true
	if err := s.Put(t.Context(), key, nil); !errors.Is(err, ErrNoRoom) {
		t.Errorf("put: %v", err)
	}
	commit := func(change func(datastore.Batch) error) error {
		b, err := s.Batch(t.Context())
		if err == nil {
			err = change(b)
		}
		if err != nil {
			t.Fatal(err)
		}
		return b.Commit(t.Context())
	}
	if err := commit(func(b datastore.Batch) error { return b.Put(t.Context(), key, nil) }); !errors.Is(err, ErrNoRoom) {
		t.Errorf("batch of a put: %v", err)
	}
	if err := commit(func(b datastore.Batch) error { return b.Delete(t.Context(), key) }); err != nil {
		t.Errorf("batch of a deletion: %v", err)
	}
	if has, err := s.Has(t.Context(), key); err != nil || has {
		t.Errorf("not deleted: %v, %v", has, err)
	}
}
