package raftlog

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

var flips = flag.Int("flips", 120, "bits to flip, each in a copy of a log")

// A flipped bit of the Raft log is found when the log is opened, or changes nothing that is read.
func TestNoFlippedBitOfTheLogIsEverRead(t *testing.T) {
	const entries = 300
	path := filepath.Join(t.TempDir(), "raft.db")
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= entries; i += 3 {
		var some []*raft.Log
		for j := range 3 {
			some = append(some, &raft.Log{Index: uint64(i + j), Term: 2, Type: raft.LogCommand, Data: []byte(strings.Repeat(fmt.Sprint(i+j), 80))})
		}
		if err := l.StoreLogs(some); err != nil {
			t.Fatal(err)
		}
	}
	err = errors.Join(l.DeleteRange(1, 40), l.SetUint64([]byte("CurrentTerm"), 2), l.SetUint64([]byte("LastVoteTerm"), 2),
		l.Set([]byte("LastVoteCand"), []byte("somebody")))
	want := contents(t, l)
	if err = errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Half of the file is room that was never used, and damage to it is none.
	random := rand.New(rand.NewPCG(3, 4))
	counts := map[string]int{}
	harmed := filepath.Join(t.TempDir(), "raft.db")
	for range *flips {
		at, bit := random.IntN(len(whole)), random.IntN(8)
		if len(whole) > 1<<16 {
			at = random.IntN(1 << 16 * 4)
			at = min(at, len(whole)-1)
		}
		raw := append([]byte(nil), whole...)
		raw[at] ^= 1 << bit
		if err := os.WriteFile(harmed, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Open(harmed)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), harmed) {
				t.Errorf("bit %d of byte %d: %v", bit, at, err)
			}
			counts["refused as corrupt"]++
			continue
		}
		if got := contents(t, l); !reflect.DeepEqual(got, want) {
			t.Errorf("bit %d of byte %d: another content was read", bit, at)
		}
		counts["harmless"]++
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Log(counts)
	if counts["refused as corrupt"] < *flips/20 {
		t.Errorf("only %v", counts)
	}
}

// contents returns all that Raft can read.
func contents(t *testing.T, l *Log) map[string]string {
	t.Helper()
	all := map[string]string{}
	first, ferr := l.FirstIndex()
	last, lerr := l.LastIndex()
	if err := errors.Join(ferr, lerr); err != nil {
		t.Fatal(err)
	}
	all["range"] = fmt.Sprint(first, last)
	for i := first; i <= last; i++ {
		var e raft.Log
		if err := l.GetLog(i, &e); err != nil {
			t.Fatalf("entry %d: %v", i, err)
		}
		all[fmt.Sprint(i)] = fmt.Sprint(e.Index, e.Term, e.Type, string(e.Data))
	}
	for _, key := range []string{"CurrentTerm", "LastVoteTerm", "LastVoteCand"} {
		v, err := l.Get([]byte(key))
		if err != nil {
			t.Fatal(err)
		}
		all[key] = string(v)
	}
	return all
}
