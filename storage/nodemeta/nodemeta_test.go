package nodemeta

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func open(t testing.TB, path string) *Store {
	t.Helper()
	n, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

func all(n *Store) map[string]string {
	m := map[string]string{}
	n.Keys(func(key string) {
		v, _ := n.Get(key)
		m[key] = string(v)
	})
	return m
}

func want(t testing.TB, n *Store, m map[string]string) {
	t.Helper()
	if got := all(n); !maps.Equal(got, m) || n.Len() != len(m) {
		t.Fatalf("%v, want %v", got, m)
	}
}

// A store of metadata has its entries after a kill and after Close. It takes no empty or too long key and no too long
// value.
func TestMetadataOutlivesItsProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes")
	n := open(t, path)
	n.Set("a", []byte("1"))
	n.Set("b", []byte("2"))
	n.Set("a", []byte("3"))
	n.Delete("b")
	n.Delete("never")
	n.Set("empty", nil)
	n.Set("", []byte("no key"))
	n.Set("large", make([]byte, MaxValueBytes+1))
	n.Set(strings.Repeat("k", MaxKeyBytes+1), nil)
	is := map[string]string{"a": "3", "empty": ""}
	want(t, n, is)
	want(t, open(t, path), is) // as after a kill: n is not closed
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n = open(t, path)
	want(t, n, is)
	n.Set("c", []byte("4"))
	is["c"] = "4"
	want(t, open(t, path), is)
}

// A journal that is cut or damaged at any byte keeps all records before that byte, and takes new ones.
func TestADamagedJournalIsReadAsFarAsItIsReadable(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "notes")
	n := open(t, path)
	ends := []int{len(header)}
	for i := range 5 {
		n.Set(fmt.Sprint(i), bytes.Repeat([]byte{byte(i)}, i))
		ends = append(ends, int(n.size))
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	good := func(at int) (records int) {
		for records+1 < len(ends) && ends[records+1] <= at {
			records++
		}
		return records
	}
	for at := range whole {
		for kind, b := range map[string][]byte{
			"cut":  whole[:at],
			"flip": slices.Concat(whole[:at], []byte{whole[at] ^ 0x10}, whole[at+1:]),
		} {
			p := filepath.Join(dir, fmt.Sprint(kind, at))
			if err := os.WriteFile(p, b, perm); err != nil {
				t.Fatal(err)
			}
			n := open(t, p)
			records := good(at)
			if kind == "flip" && at < len(header) {
				records = 0
			}
			if n.Len() != records {
				t.Fatalf("%s at %d: %d entries, want %d", kind, at, n.Len(), records)
			}
			n.Set("new", nil)
			if again := open(t, p); again.Len() != records+1 {
				t.Fatalf("%s at %d: %d entries after a change, want %d", kind, at, again.Len(), records+1)
			}
		}
	}
}

// 10,000 changes of 100 keys leave a journal of bounded size that has all 100 entries.
func TestTheJournalStaysShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes")
	n := open(t, path)
	value := make([]byte, 1000)
	for i := range 10_000 {
		n.Set(fmt.Sprint(i%100), value)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > slack*n.live+slackBytes+2000 {
		t.Fatalf("%d bytes for %d, %v", info.Size(), n.live, err)
	}
	if got := open(t, path).Len(); got != 100 {
		t.Fatalf("%d entries", got)
	}
}

// After a Sync the changes before it are flushed, also while others change the store and it is rewritten. A kill
// loses none of them.
func TestManyFlushAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes")
	n := open(t, path)
	const writers, each = 8, 60
	var work sync.WaitGroup
	for w := range writers {
		work.Go(func() {
			for i := range each {
				n.Set(fmt.Sprint(w), bytes.Repeat([]byte{byte(i)}, MaxValueBytes))
				n.mu.Lock()
				mine := n.changes
				n.mu.Unlock()
				n.Sync()
				n.mu.Lock()
				if n.flushed < mine {
					t.Errorf("%d changes are flushed, and there were %d", n.flushed, mine)
				}
				n.mu.Unlock()
			}
		})
	}
	work.Wait()
	again := open(t, path) // as after a kill
	for w := range writers {
		if v, ok := again.Get(fmt.Sprint(w)); !ok || len(v) != MaxValueBytes || v[0] != each-1 {
			t.Errorf("key %d has %d bytes", w, len(v))
		}
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n.Set("late", nil)
	n.Sync()
}

// A store of metadata keeps MaxEntries entries, the newest among them, also after a restart.
func TestTheNumberOfEntriesIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes")
	n := open(t, path)
	for i := range MaxEntries + 100 {
		n.Set(fmt.Sprint(i), nil)
	}
	if _, ok := n.Get(fmt.Sprint(MaxEntries + 99)); !ok || n.Len() != MaxEntries {
		t.Fatalf("%d entries, the newest is there: %t", n.Len(), ok)
	}
	if got := open(t, path).Len(); got != MaxEntries {
		t.Fatalf("%d entries after a restart", got)
	}
}

// A store of metadata whose file cannot be written keeps its entries in memory. It writes all of them when it can
// again.
func TestMetadataStaysInMemoryWithoutADisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes")
	n := open(t, path)
	n.Set("a", []byte("1"))
	_ = n.file.Close()
	n.Set("b", []byte("2"))
	if n.file != nil {
		t.Fatal("a write to a closed file was taken for good")
	}
	is := map[string]string{"a": "1", "b": "2"}
	want(t, n, is)
	n.Set("c", []byte("3"))
	is["c"] = "3"
	want(t, open(t, path), is)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n.Set("d", nil)
	n.Delete("a") // late, and harmless
	want(t, open(t, path), is)
}

// A store of metadata whose folder is gone tries to write again only every retryEvery changes. Then it writes all
// entries.
func TestAFolderThatIsGoneIsTriedNowAndThen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "folder")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "notes")
	n := open(t, path)
	_ = n.file.Close()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	n.Set("a", nil) // the write fails
	n.Set("b", nil) // and so does a new file
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range retryEvery {
		n.Set(fmt.Sprint(i), nil)
	}
	if _, err := os.Stat(path); err == nil {
		t.Fatal("tried again at once")
	}
	n.Set("c", nil)
	if got := open(t, path).Len(); got != retryEvery+3 {
		t.Fatalf("%d entries, want %d", got, retryEvery+3)
	}
}

// The journal has the bytes of the golden file.
func TestTheJournalIsTheGoldenOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes")
	n := open(t, path)
	n.Set("key", []byte("value"))
	n.Delete("key")
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	golden, err := os.ReadFile("testdata/notes.golden")
	if err != nil || hex.Dump(got) != string(golden) {
		t.Fatalf("%v; got\n%s", err, hex.Dump(got))
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(header))
	f.Add(appendRecord(appendRecord([]byte(header), "key", []byte("value")), "key", nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := &Store{entries: map[string][]byte{}}
		good := n.read(b)
		if good > len(b) || n.live < 0 {
			t.Fatalf("%d of %d bytes are good, %d live", good, len(b), n.live)
		}
		again := &Store{entries: map[string][]byte{}}
		if again.read(b[:good]) != good || !maps.Equal(all(n), all(again)) {
			t.Fatal("what is good is not read alike")
		}
	})
}
