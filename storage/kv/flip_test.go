package kv

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var flips = flag.Int("flips", 80, "bits to flip, each in a copy of a store")

// A store with a flipped bit in any of its files never returns bytes that were not written. It refuses to open, or
// fails the read. A flip may be harmless, or look like a torn end of the log: then the store is as it was at an
// earlier commit. The store is one that was made moments ago or one that was opened again.
func TestNoFlippedBitIsEverRead(t *testing.T) {
	const rows = 400
	value := func(i int) string { return fmt.Sprintf("%d %s", i, strings.Repeat("v", 300)) }
	fill := func(s *Store, from, to int) {
		for i := from; i < to; i++ {
			put(t, s, true, fmt.Sprintf("key-%05d", i), value(i))
		}
	}
	young := filepath.Join(t.TempDir(), "young")
	s := open(t, young)
	fill(s, 0, rows)
	young = copyDir(t, young)
	old := filepath.Join(t.TempDir(), "old")
	s, err := Open(old, Options{})
	if err != nil {
		t.Fatal(err)
	}
	fill(s, 0, rows/2)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, old)
	fill(s, rows/2, rows)
	old = copyDir(t, old)

	random := rand.New(rand.NewPCG(1, 2))
	counts := map[string]int{}
	for i := range *flips {
		from := young
		if i%2 == 1 {
			from = old
		}
		dir := filepath.Join(t.TempDir(), "harmed")
		if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
		kind, what := flipOne(t, random, dir)
		outcome := readHarmed(t, what, dir, rows, value)
		counts[kind+": "+outcome]++
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	for what, n := range counts {
		t.Logf("%4d %s", n, what)
	}
}

// flipOne flips a bit of a random file and tells its kind.
func flipOne(t *testing.T, random *rand.Rand, dir string) (kind, what string) {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if info, err := e.Info(); err != nil || info.Size() == 0 {
			return err
		}
		files = append(files, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	path := files[random.IntN(len(files))]
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at, bit := random.IntN(len(raw)), random.IntN(8)
	raw[at] ^= 1 << bit
	what = fmt.Sprintf("bit %d of byte %d of %d in %s", bit, at, len(raw), filepath.Base(path))
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	switch name := filepath.Base(path); {
	case strings.HasSuffix(name, ".sst"), strings.HasSuffix(name, ".log"):
		return name[len(name)-3:], what
	case strings.Contains(name, "-"):
		return name[:strings.Index(name, "-")], what
	default:
		return name, what
	}
}

// readHarmed opens and reads a store that may be damaged.
func readHarmed(t *testing.T, what, dir string, rows int, value func(int) string) string {
	t.Helper()
	s, err := Open(dir, Options{Fatal: func(message string) { panic(message) }})
	if err != nil {
		if !strings.Contains(err.Error(), dir) {
			t.Errorf("refused without the name of the folder: %v", err)
		}
		if errors.Is(err, ErrCorrupt) {
			return "refused as corrupt"
		}
		return "refused"
	}
	defer s.Close()
	view := s.View()
	defer view.Close()
	seen := 0
	err = view.Scan(nil, nil, false, func(k, v []byte) (bool, error) {
		if string(k) != fmt.Sprintf("key-%05d", seen) || string(v) != value(seen) {
			t.Fatalf("%s: row %d is %q = %.40q", what, seen, k, v)
		}
		seen++
		return true, nil
	})
	switch {
	case errors.Is(err, ErrCorrupt):
		select {
		case <-s.Damaged():
		default:
			t.Errorf("nobody is told of %v", err)
		}
		return "found by a read"
	case err != nil:
		t.Errorf("read: %v", err)
		return "read failed"
	case seen < rows:
		return "an earlier commit"
	}
	return "harmless"
}
