package raftlog

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/internal/goldentest"
	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openLog(t testing.TB, path string) *Log {
	t.Helper()
	l, err := Open(path)
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func entries(from, to uint64) []*raft.Log {
	var out []*raft.Log
	for i := from; i <= to; i++ {
		e := &raft.Log{Index: i, Term: i / 3, Type: raft.LogCommand, Data: fmt.Appendf(nil, "command number %d", i)}
		if i%2 == 0 {
			e.Extensions, e.Type = []byte("ext"), raft.LogConfiguration
			e.AppendedAt = time.Unix(1_700_000_000, int64(i)).UTC()
		} else {
			e.AppendedAt = time.Time{}.UTC()
		}
		out = append(out, e)
	}
	return out
}

// The Raft log has its entries and values, without the deleted entries, after it was closed and opened again. Errors
// for what is missing are those that Raft compares with.
func TestLogKeepsEntriesAndValuesAcrossReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "raft.db")
	l := openLog(t, path)
	if first, err := l.FirstIndex(); first != 0 || err != nil {
		t.Errorf("empty log begins at %d, %v", first, err)
	}
	want := entries(1, 20)
	must(t, l.StoreLogs(want[:19]))
	must(t, l.StoreLog(want[19]))
	must(t, l.SetUint64([]byte("CurrentTerm"), 7))
	must(t, l.Set([]byte("LastVoteCand"), []byte("node-1")))
	must(t, l.DeleteRange(1, 4))
	must(t, l.Close())
	l = openLog(t, path)
	first, err1 := l.FirstIndex()
	last, err2 := l.LastIndex()
	if first != 5 || last != 20 || err1 != nil || err2 != nil {
		t.Errorf("from %d to %d, %v, %v", first, last, err1, err2)
	}
	for _, e := range want[4:] {
		var got raft.Log
		if err := l.GetLog(e.Index, &got); err != nil || !reflect.DeepEqual(&got, e) {
			t.Errorf("entry %d: %+v, %v, want %+v", e.Index, got, err, e)
		}
	}
	if err := l.GetLog(4, new(raft.Log)); err != raft.ErrLogNotFound { //nolint:errorlint // Raft compares it so
		t.Errorf("deleted entry: %v", err)
	}
	if term, err := l.GetUint64([]byte("CurrentTerm")); term != 7 || err != nil {
		t.Errorf("term %d, %v", term, err)
	}
	if vote, err := l.Get([]byte("LastVoteCand")); string(vote) != "node-1" || err != nil {
		t.Errorf("vote %q, %v", vote, err)
	}
	if _, err := l.GetUint64([]byte("none")); err == nil || err.Error() != "not found" {
		t.Errorf("missing value: %v, Raft wants exactly \"not found\"", err)
	}
}

// A damaged entry or value is refused with ErrCorrupt and its name, at the start and when it is read. Its neighbours
// are read. Raft-boltdb alone gives every one of these back without an error.
func TestRottenEntryIsNamedAndNotReturned(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "raft.db")
	l := openLog(t, path)
	must(t, l.StoreLogs(entries(1, 3)))
	must(t, l.Set([]byte("LastVoteCand"), []byte("node-number-one")))
	must(t, l.Close())
	clean, err := os.ReadFile(path)
	must(t, err)
	for _, tc := range []struct {
		text string
		read func(l *Log) error
		name string
	}{
		{"command number 2", func(l *Log) error { return l.GetLog(2, new(raft.Log)) }, "entry 2"},
		{"node-number-one", func(l *Log) error { _, err := l.Get([]byte("LastVoteCand")); return err }, "LastVoteCand"},
	} {
		rotten, hits := bytes.Clone(clean), 0
		for at := 0; ; {
			i := bytes.Index(rotten[at:], []byte(tc.text))
			if i < 0 {
				break
			}
			rotten[at+i] ^= 0x20
			at, hits = at+i+1, hits+1
		}
		if hits == 0 {
			t.Fatalf("%q is not in the file", tc.text)
		}
		bad := filepath.Join(dir, "bad.db")
		must(t, os.WriteFile(bad, rotten, 0o600))
		if _, err := Open(bad); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), tc.name) {
			t.Errorf("%s: opened: %v", tc.name, err)
		}
		must(t, os.WriteFile(bad, clean, 0o600))
		l := openLog(t, bad)
		f, err := os.OpenFile(bad, os.O_WRONLY, 0)
		must(t, err)
		_, err = f.WriteAt(rotten, 0) // under a node that runs
		must(t, errors.Join(err, f.Close()))
		if err := tc.read(l); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), tc.name) {
			t.Errorf("%s: %v, want ErrCorrupt with the name", tc.name, err)
		}
		if err := l.GetLog(1, new(raft.Log)); err != nil {
			t.Errorf("its neighbour: %v", err)
		}
		must(t, l.Close())
	}
}

// A write to a Raft log whose file was removed or replaced fails, and so do all later writes. The open file would still
// accept them, but the next start would not find them, so the process has to end.
func TestALogWhoseFileIsGoneIsBroken(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, path string){
		"removed":        func(t *testing.T, path string) { must(t, os.Remove(path)) },
		"folder removed": func(t *testing.T, path string) { must(t, os.RemoveAll(filepath.Dir(path))) },
		"folder moved":   func(t *testing.T, path string) { must(t, os.Rename(filepath.Dir(path), filepath.Dir(path)+".old")) },
		"replaced": func(t *testing.T, path string) {
			must(t, os.Remove(path))
			must(t, os.WriteFile(path, nil, 0o600))
		},
	} {
		for kind, write := range map[string]func(l *Log) error{
			"append":   func(l *Log) error { return l.StoreLogs(entries(3, 3)) },
			"truncate": func(l *Log) error { return l.DeleteRange(2, 2) },
			"vote":     func(l *Log) error { return l.SetUint64([]byte("CurrentTerm"), 2) },
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "raft", "raft.db")
				l := openLog(t, path)
				must(t, l.StoreLogs(entries(1, 2)))
				lose(t, path)
				if err := write(l); !errors.Is(err, errGone) || errors.Is(err, ErrNoSpace) {
					t.Fatalf("it ends in %v", err)
				}
				select {
				case <-l.Failed():
				default:
					t.Error("Failed is not closed")
				}
				if err := l.StoreLogs(entries(4, 4)); !errors.Is(err, ErrBroken) {
					t.Errorf("the next ends in %v", err)
				}
			})
		}
	}
}

// After a failed write every other write of the Raft log returns ErrBroken, and Failed is closed.
func TestNoWriteAfterAFailedOne(t *testing.T) {
	l := openLog(t, filepath.Join(t.TempDir(), "raft.db"))
	must(t, l.StoreLogs(entries(1, 2)))
	must(t, l.bolt.Close()) // what follows cannot be written
	if err := l.StoreLogs(entries(3, 3)); err == nil || errors.Is(err, ErrBroken) {
		t.Fatalf("first: %v", err)
	}
	select {
	case <-l.Failed():
	default:
		t.Error("Failed is not closed")
	}
	for _, err := range []error{l.StoreLog(entries(4, 4)[0]), l.Set([]byte("k"), nil), l.SetUint64([]byte("k"), 1), l.DeleteRange(1, 1)} {
		if !errors.Is(err, ErrBroken) {
			t.Errorf("later: %v, want ErrBroken", err)
		}
	}
}

// Open refuses a Raft log that is open already with ErrLocked.
func TestLogInUseIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raft.db")
	openLog(t, path)
	if _, err := Open(path); !errors.Is(err, durable.ErrLocked) {
		t.Errorf("second open: %v", err)
	}
}

// Entries, values and descriptions of snapshots have the bytes of the golden file. Decoding finds each flipped bit of
// an entry.
func TestEntryFormatIsTheGoldenOne(t *testing.T) {
	e := entries(2, 2)[0]
	got := "entry\n" + hex.Dump(appendEntry(nil, e)) + "value\n" + hex.Dump(sealValue([]byte("CurrentTerm"), []byte("value")))
	meta := &raft.SnapshotMeta{
		Version: 1, ID: "x", Index: 5, Term: 2, ConfigurationIndex: 3, Size: 99,
		Configuration: raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Nonvoter, ID: "a", Address: "b"}}},
	}
	raw, err := encodeMeta(meta)
	must(t, err)
	got += "meta.json\n" + string(raw) + "\n"
	goldentest.File(t, filepath.Join("testdata", "formats.golden"), []byte(got))
	if back, err := decodeMeta(raw); err != nil || !reflect.DeepEqual(back, meta) {
		t.Errorf("meta %+v, %v", back, err)
	}
	if _, err := decodeMeta(bytes.Replace(raw, []byte(`"index":5`), []byte(`"index":6`), 1)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("changed meta: %v", err)
	}
	frame := appendEntry(nil, e)
	if err := decodeEntry(frame, e.Index+1, new(raft.Log)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("entry in another's place: %v", err)
	}
	for i := range len(frame) * 8 {
		bad := bytes.Clone(frame)
		bad[i/8] ^= 1 << (i % 8)
		if err := decodeEntry(bad, e.Index, new(raft.Log)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("bit %d: %v", i, err)
		}
	}
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add(appendEntry(nil, entries(2, 2)[0]), uint64(2))
	f.Add([]byte{}, uint64(0))
	f.Fuzz(func(t *testing.T, frame []byte, index uint64) {
		var e raft.Log
		if err := decodeEntry(frame, index, &e); err == nil {
			if again := appendEntry(nil, &e); !bytes.Equal(again, frame) {
				t.Errorf("accepted %x, writes it as %x", frame, again)
			}
		}
	})
}

func BenchmarkStoreLogs(b *testing.B) {
	l := openLog(b, filepath.Join(b.TempDir(), "raft.db"))
	batch := entries(1, 64)
	b.ReportAllocs()
	next := uint64(1)
	for b.Loop() {
		for _, e := range batch {
			e.Index, next = next, next+1
		}
		if err := l.StoreLogs(batch); err != nil {
			b.Fatal(err)
		}
	}
}
