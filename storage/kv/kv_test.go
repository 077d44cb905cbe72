package kv

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

func open(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir, Options{Fatal: func(m string) { panic(m) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func put(t testing.TB, s *Store, sync bool, pairs ...string) {
	t.Helper()
	tx := s.Begin()
	defer tx.Discard()
	for i := 0; i < len(pairs); i += 2 {
		if err := tx.Set([]byte(pairs[i]), []byte(pairs[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(sync); err != nil {
		t.Fatal(err)
	}
}

type scanner interface {
	Scan(lower, upper []byte, reverse bool, fn func(key, value []byte) (bool, error)) error
}

func content(t testing.TB, s scanner) string {
	t.Helper()
	var b strings.Builder
	if err := s.Scan(nil, nil, false, func(k, v []byte) (bool, error) {
		fmt.Fprintf(&b, "%s=%s ", k, v)
		return true, nil
	}); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}

func stored(t testing.TB, s *Store) string {
	t.Helper()
	v := s.View()
	defer v.Close()
	return content(t, v)
}

// A transaction sees its own writes, and others see them only after Commit. An older view shows none of them, and a
// discarded transaction leaves none.
func TestTransactionSeesItsWritesAndOthersOnlyAfterCommit(t *testing.T) {
	s := open(t, t.TempDir())
	put(t, s, true, "a", "1", "b", "2")
	before := s.View()
	defer before.Close()

	tx := s.Begin()
	for _, err := range []error{tx.Set([]byte("c"), []byte("3")), tx.Delete([]byte("a")), tx.Delete([]byte("none"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := content(t, tx); got != "b=2 c=3" {
		t.Errorf("inside: %q", got)
	}
	if _, ok, err := tx.Get([]byte("a")); ok || err != nil {
		t.Errorf("deleted key inside: %v, %v", ok, err)
	}
	if got := stored(t, s); got != "a=1 b=2" {
		t.Errorf("outside: %q", got)
	}
	if err := tx.Commit(false); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, s); got != "b=2 c=3" {
		t.Errorf("after commit: %q", got)
	}
	if got := content(t, before); got != "a=1 b=2" {
		t.Errorf("older view: %q", got)
	}
	if err := tx.Set([]byte("x"), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("set after commit: %v", err)
	}
	tx = s.Begin()
	if err := tx.Set([]byte("gone"), nil); err != nil {
		t.Fatal(err)
	}
	tx.Discard()
	if value, ok, err := s.Get([]byte("b")); string(value) != "2" || !ok || err != nil {
		t.Errorf("get: %q %v %v", value, ok, err)
	}
	if _, ok, _ := s.Get([]byte("gone")); ok {
		t.Error("discarded write is there")
	}
}

// Scan visits the keys from lower to before upper in either direction, and stops when its function says so or fails.
func TestScanBoundsAndDirection(t *testing.T) {
	s := open(t, t.TempDir())
	put(t, s, false, "a", "", "b", "", "c", "", "d", "")
	stop := errors.New("stop")
	for _, tc := range []struct {
		name         string
		lower, upper string
		reverse      bool
		limit        int
		fail         error
		want         string
	}{
		{"everything", "", "", false, 9, nil, "abcd"},
		{"upper is exclusive", "b", "d", false, 9, nil, "bc"},
		{"open end", "c", "", false, 9, nil, "cd"},
		{"reverse", "", "", true, 9, nil, "dcba"},
		{"reverse within bounds", "b", "d", true, 9, nil, "cb"},
		{"stops when told", "", "", true, 2, nil, "dc"},
		{"stops at an error", "", "", false, 1, stop, "a"},
		{"empty range", "c", "c", false, 9, nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bound := func(b string) []byte {
				if b == "" {
					return nil
				}
				return []byte(b)
			}
			v, got := s.View(), ""
			defer v.Close()
			err := v.Scan(bound(tc.lower), bound(tc.upper), tc.reverse, func(k, _ []byte) (bool, error) {
				got += string(k)
				return len(got) < tc.limit, tc.fail
			})
			if got != tc.want || !errors.Is(err, tc.fail) {
				t.Errorf("got %q, %v, want %q, %v", got, err, tc.want, tc.fail)
			}
		})
	}
}

// A closed store returns ErrClosed, an open view outlives Close, and a store that is open cannot be opened again.
func TestClosedStoreAnswersErrClosedAndOpensAgainOnce(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, false, "k", "v")
	if _, err := Open(dir, Options{}); !errors.Is(err, durable.ErrLocked) {
		t.Errorf("second open: %v", err)
	}
	held := s.View()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := content(t, held); got != "k=v" {
		t.Errorf("view open across Close: %q", got)
	}
	held.Close()
	held.Close()
	_, _, viewErr := s.View().Get([]byte("k"))
	_, _, getErr := s.Get([]byte("k"))
	tx := s.Begin()
	for _, err := range []error{
		viewErr, getErr, tx.Set(nil, nil), tx.Commit(true), s.Sync(),
		s.Checkpoint(filepath.Join(t.TempDir(), "c")), s.Restore(bytes.NewReader(nil)),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
	}
	tx.Discard()
	if got := stored(t, open(t, dir)); got != "k=v" {
		t.Errorf("reopened: %q", got)
	}
}

func copyDir(t testing.TB, from string) string {
	t.Helper()
	const attempts = 1000
	to := filepath.Join(t.TempDir(), "copy")
	var err error
	// Pebble removes old files in the background: then the copy is of two
	// moments and is made again.
	for range attempts {
		before, _ := filepath.Glob(filepath.Join(from, "*", "*"))
		err = os.CopyFS(to, os.DirFS(from))
		after, _ := filepath.Glob(filepath.Join(from, "*", "*"))
		if err == nil && slices.Equal(before, after) {
			return to
		}
		if rerr := os.RemoveAll(to); rerr != nil {
			t.Fatal(rerr)
		}
	}
	t.Fatal("folder does not stand still: ", err)
	return ""
}

// A store has after a kill what was committed with sync or before a Sync.
func TestKilledStoreKeepsWhatWasSynced(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, false, "a", "1")
	put(t, s, true, "b", "2")
	put(t, s, false, "c", "3")
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, open(t, copyDir(t, dir))); got != "a=1 b=2 c=3" {
		t.Errorf("after kill: %q", got)
	}
}

// Open refuses a store with ErrCorrupt if a bit early in the log of a newly made store is flipped. This flip used to
// drop every later record without an error; this is what reopening at creation is for. Pebble finds a flip from the
// log's next 32 KiB block on: damage within the last block looks like a torn end, and the store comes back as of an
// earlier commit.
func TestFlippedBitInTheLogIsFound(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for i := range 600 {
		put(t, s, true, fmt.Sprintf("key-%03d", i), strings.Repeat("v", 100))
	}
	killed := copyDir(t, dir)
	logs, err := filepath.Glob(filepath.Join(killed, "gen-*", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	newest := slices.Max(logs)
	raw, err := os.ReadFile(newest)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(raw, []byte("key-005"))
	if at < 0 {
		t.Fatal("record not found")
	}
	raw[at] ^= 1
	if err := os.WriteFile(newest, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	damaged, err := Open(killed, Options{})
	if !errors.Is(err, ErrCorrupt) {
		if err == nil {
			t.Errorf("opened, with %d of the bytes", len(stored(t, damaged)))
			_ = damaged.Close()
		}
		t.Errorf("got %v, want ErrCorrupt", err)
	}
}

// Open uses the data that the pointer file names, or the only data there are, and removes leftovers. It fails if
// neither decides.
func TestPointerDecidesWhichDataLives(t *testing.T) {
	prepare := func(t *testing.T) string {
		dir := t.TempDir()
		s, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, true, "k", "v")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for _, tc := range []struct {
		name   string
		damage func(dir string) error
		want   error
	}{
		{"crash before the first pointer", func(dir string) error { return os.Remove(filepath.Join(dir, "live")) }, nil},
		{"leftovers of restores", func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "gen-000002"), 0o700), os.Mkdir(filepath.Join(dir, "gen-000003.tmp"), 0o700))
		}, nil},
		{"garbled pointer", func(dir string) error { return os.WriteFile(filepath.Join(dir, "live"), []byte("../x"), 0o600) }, ErrCorrupt},
		{"no pointer and two candidates", func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "gen-000002"), 0o700), os.Remove(filepath.Join(dir, "live")))
		}, ErrCorrupt},
		{"folder named by the pointer is gone", func(dir string) error { return os.RemoveAll(filepath.Join(dir, "gen-000001")) }, os.ErrNotExist},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := prepare(t)
			if err := tc.damage(dir); err != nil {
				t.Fatal(err)
			}
			s, err := Open(dir, Options{})
			if tc.want != nil {
				if err == nil {
					t.Fatal("opened", stored(t, s), s.Close())
				}
				if !errors.Is(err, tc.want) {
					t.Errorf("%v, want %v", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if got := stored(t, s); got != "k=v" {
				t.Errorf("got %q", got)
			}
			if names, _ := filepath.Glob(filepath.Join(dir, "gen-*")); len(names) != 1 {
				t.Errorf("leftovers: %v", names)
			}
		})
	}
}

func BenchmarkCommit(b *testing.B) {
	for _, tc := range []struct {
		name string
		sync bool
	}{{"nosync", false}, {"sync", true}} {
		b.Run(tc.name, func(b *testing.B) {
			s := open(b, b.TempDir())
			value := make([]byte, 200)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				tx := s.Begin()
				for j := range 10 {
					key := fmt.Appendf(nil, "pin/%08d/%d", i, j)
					if _, _, err := tx.Get(key); err != nil {
						b.Fatal(err)
					}
					if err := tx.Set(key, value); err != nil {
						b.Fatal(err)
					}
				}
				if err := tx.Commit(tc.sync); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Other users cannot read the folder of a store, of its checkpoint, or of a restored store. Open closes the folder
// that an older release has left open.
func TestOthersCannotReadAStore(t *testing.T) {
	dir := t.TempDir()
	narrow := func(path string) {
		t.Helper()
		found, err := filepath.Glob(path)
		if err != nil || len(found) != 1 {
			t.Fatalf("%v, %v", found, err)
		}
		if info, err := os.Stat(found[0]); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", found[0], info.Mode(), err)
		}
	}
	s := open(t, dir)
	put(t, s, true, "a", "1")
	narrow(filepath.Join(dir, "gen-*"))
	checkpoint := filepath.Join(t.TempDir(), "copy")
	if err := s.Checkpoint(checkpoint); err != nil {
		t.Fatal(err)
	}
	narrow(checkpoint)
	if err := s.Restore(bytes.NewReader(archiveOf(t, s))); err != nil {
		t.Fatal(err)
	}
	narrow(filepath.Join(dir, "gen-*"))
	again := copyDir(t, dir)
	found, err := filepath.Glob(filepath.Join(again, "gen-*"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	if err := os.Chmod(found[0], 0o755); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, open(t, again)); got != "a=1" {
		t.Errorf("opened again: %q", got)
	}
	narrow(found[0])
}

// Memtables leave at least a quarter of the cache to blocks, also when one is full and the next has its memory.
// Otherwise every read of what was written would go to the disk.
func TestMemtablesLeaveACache(t *testing.T) {
	s := open(t, t.TempDir())
	random := rand.NewChaCha8([32]byte{1})
	value := make([]byte, 4<<10) // does not compress
	for i := range 4 * memTableBytes / len(value) {
		if _, err := random.Read(value); err != nil {
			t.Fatal(err)
		}
		put(t, s, false, fmt.Sprintf("%08d", i), string(value))
	}
	v := s.View()
	defer v.Close()
	if err := v.Scan(nil, nil, false, func(_, _ []byte) (bool, error) { return true, nil }); err != nil {
		t.Fatal(err)
	}
	if size := s.live.db.Metrics().BlockCache.Size; size < DefaultCacheBytes/4 {
		t.Errorf("%d bytes of blocks are in a cache of %d", size, DefaultCacheBytes)
	}
}
