package peer

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ipfs/go-cid"
	"github.com/ipfs/go-datastore"
	mh "github.com/multiformats/go-multihash"
)

// openKeystore opens a keystore that is closed when the test ends.
func openKeystore(tb testing.TB, all Datastores) *keystore {
	tb.Helper()
	k, err := newKeystore(all, openStore(tb, all))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := k.Close(); err != nil {
			tb.Error(err)
		}
	})
	return k
}

// numbered are n roots, of which none is in memory.
func numbered(n int) func(fn func(cid.Cid) bool) error {
	return func(fn func(cid.Cid) bool) error {
		for i := range n {
			if !fn(number(i)) {
				return nil
			}
		}
		return nil
	}
}

func number(i int) cid.Cid {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(i)))
	hash, _ := mh.Encode(sum[:], mh.SHA2_256) // it fails on no digest of this length
	return cid.NewCidV1(cid.Raw, hash)
}

// sizeOf returns how many keys there are, as the keystore counts them and as they are found.
func sizeOf(tb testing.TB, k *keystore) int {
	tb.Helper()
	n, err := k.Size(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	if found, err := k.CountKeysUpTo(tb.Context(), "", 0); err != nil || found != n {
		tb.Fatalf("%d keys are found, %d are counted, %v", found, n, err)
	}
	return n
}

// The keystore finds a hash by every prefix of its key in the DHT, and no other hash.
func TestKeystoreFindsByPrefix(t *testing.T) {
	k := openKeystore(t, newDatastores(t, t.TempDir()))
	var all []mh.Multihash
	for i := range 2000 {
		all = append(all, number(i).Hash())
	}
	if fresh, err := k.Put(t.Context(), append(all, all[0])...); err != nil || len(fresh) != len(all) {
		t.Fatal(len(fresh), err)
	}
	for _, length := range []int{0, 1, 5, keystoreBits, keystoreBits + 3, 200} {
		prefix, want := bitsOf(all[7])[:length], 0
		for _, h := range all {
			if strings.HasPrefix(string(bitsOf(h)), string(prefix)) {
				want++
			}
		}
		got, err := k.Get(t.Context(), prefix)
		has, _ := k.ContainsPrefix(t.Context(), prefix)
		if err != nil || len(got) != want || !has {
			t.Errorf("prefix of %d bits: %d found, %v, %v; want %d", length, len(got), has, err, want)
		}
	}
	if has, err := k.ContainsPrefix(t.Context(), bitsOf(number(2000).Hash())); err != nil || has {
		t.Errorf("a hash that was not put is there: %v, %v", has, err)
	}
	there, err := k.only(t.Context(), []mh.Multihash{all[3], number(2000).Hash(), all[4]})
	if err != nil || len(there) != 2 {
		t.Errorf("%d of two are there, %v", len(there), err)
	}
	if err := k.Delete(t.Context(), all[0], all[0]); err != nil || sizeOf(t, k) != len(all)-1 {
		t.Errorf("%d left, %v", sizeOf(t, k), err)
	}
}

// One scan makes the keys equal to the roots that the node holds, and the next start finds these keys. The scan
// returns the new keys up to its limit, and none if it fills the keystore at the start.
func TestKeystoreBecomesWhatIsHeld(t *testing.T) {
	all := newDatastores(t, t.TempDir())
	meta := openStore(t, all)
	k, err := newKeystore(all, meta)
	if err != nil {
		t.Fatal(err)
	}
	const few, many = keystoreBatch / 2, 3*keystoreBatch + 5
	for _, tc := range []struct {
		name  string
		held  int
		anew  bool
		fresh int
	}{
		{"filled at the start", few, true, 0},
		{"nothing new", few, false, 0},
		{"more are held", many, false, 100}, // of many-few
		{"fewer are held", few, false, 0},
		{"none is held", 0, false, 0},
		{"all again", many, false, 100},
	} {
		fresh, err := k.reconcile(t.Context(), numbered(tc.held), tc.anew, 100)
		if err != nil || len(fresh) != tc.fresh || sizeOf(t, k) != tc.held {
			t.Fatalf("%s: %d keys for %d roots, %d of them new, %v", tc.name, sizeOf(t, k), tc.held, len(fresh), err)
		}
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	if k, err = newKeystore(all, meta); err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if got := sizeOf(t, k); got != many {
		t.Errorf("%d keys after a restart, want %d", got, many)
	}
}

// A scan of roots that fails or is cancelled removes no key, and the next scan that succeeds does.
func TestAScanThatFailsRemovesNoKeys(t *testing.T) {
	k := openKeystore(t, newDatastores(t, t.TempDir()))
	if _, err := k.reconcile(t.Context(), numbered(100), true, 0); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("unreadable")
	for _, anew := range []bool{false, true} {
		_, err := k.reconcile(t.Context(), func(fn func(cid.Cid) bool) error { fn(number(1)); return broken }, anew, 0)
		if !errors.Is(err, broken) || sizeOf(t, k) != 100 {
			t.Errorf("%d of 100 keys are left, %v", sizeOf(t, k), err)
		}
	}
	for _, roots := range []int{1, 0} { // a node without a root stops too
		ctx, cancel := context.WithCancel(t.Context())
		_, err := k.reconcile(ctx, func(fn func(cid.Cid) bool) error { cancel(); return numbered(roots)(fn) }, true, 0)
		if err == nil || sizeOf(t, k) != 100 {
			t.Errorf("%d roots: %d of 100 keys are left at the end, %v", roots, sizeOf(t, k), err)
		}
	}
	if _, err := k.reconcile(t.Context(), numbered(99), false, 0); err != nil || sizeOf(t, k) != 99 {
		t.Errorf("%d of 99 keys after the next scan, %v", sizeOf(t, k), err)
	}
}

// A key that was deleted during a reset stays deleted: neither the scan of the reset nor its buffer puts it back. A
// key that was put during the reset stays, also one that was deleted before that.
func TestWhatIsDeletedDuringAResetStaysDeleted(t *testing.T) {
	k := openKeystore(t, newDatastores(t, t.TempDir()))
	one := func(i int) mh.Multihash { return number(i).Hash() }
	put := func(hashes ...mh.Multihash) {
		if _, err := k.Put(t.Context(), hashes...); err != nil {
			t.Error(err)
		}
	}
	put(one(1), one(2), one(3))
	_, err := k.reconcile(t.Context(), func(fn func(cid.Cid) bool) error {
		put(one(4), one(5)) // which the scan does not see
		if err := k.Delete(t.Context(), one(1), one(3), one(4)); err != nil {
			t.Error(err)
		}
		put(one(3))
		for i := 1; i <= 3 && fn(number(i)); i++ {
		}
		return nil
	}, true, 0)
	if err != nil {
		t.Fatal(err)
	}
	there, err := k.only(t.Context(), []mh.Multihash{one(1), one(2), one(3), one(4), one(5)})
	if err != nil || fmt.Sprint(there) != fmt.Sprint([]mh.Multihash{one(2), one(3), one(5)}) || sizeOf(t, k) != 3 {
		t.Errorf("%d keys, of which %d are right, %v", sizeOf(t, k), len(there), err)
	}
}

// countedDatastores count the datastores that were opened.
type countedDatastores struct {
	Datastores
	opened atomic.Int32
}

func (d *countedDatastores) Open(name string) (datastore.Batching, error) {
	opened, err := d.Datastores.Open(name)
	d.opened.Add(1)
	return opened, err
}

// A reset keeps a key that was put during its scan, because the scan does not begin before the reset.
func TestAScanBeginsAfterItsReset(t *testing.T) {
	all := &countedDatastores{Datastores: newDatastores(t, t.TempDir())}
	k := openKeystore(t, all)
	before := all.opened.Load()
	_, err := k.reconcile(t.Context(), func(func(cid.Cid) bool) error {
		if all.opened.Load() == before {
			t.Error("the scan has begun, and the reset has not")
		}
		_, err := k.Put(t.Context(), number(1).Hash())
		return err
	}, true, 0)
	if err != nil || sizeOf(t, k) != 1 {
		t.Errorf("%d keys, %v", sizeOf(t, k), err)
	}
}

// The next scan removes a key whose deletion failed, even if the number of keys equals the number of roots.
func TestAChangeThatFailedIsMadeGood(t *testing.T) {
	k := openKeystore(t, newDatastores(t, t.TempDir()))
	if _, err := k.reconcile(t.Context(), numbered(10), true, 0); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for k.Delete(ended, number(3).Hash()) == nil { // it may win against its end
		if _, err := k.Put(t.Context(), number(3).Hash()); err != nil {
			t.Fatal(err)
		}
	}
	held := func(fn func(cid.Cid) bool) error { // 3 is gone, and 2 has two codecs
		for _, i := range []int{0, 1, 2, 4, 5, 6, 7, 8, 9} {
			fn(number(i))
		}
		fn(cid.NewCidV1(cid.DagProtobuf, number(2).Hash()))
		return nil
	}
	if _, err := k.reconcile(t.Context(), held, false, 0); err != nil || sizeOf(t, k) != 9 {
		t.Errorf("%d keys for 9 multihashes, %v", sizeOf(t, k), err)
	}
}

// roots is how many roots BenchmarkKeystore has: -args -roots 10000000.
var roots = flag.Int("roots", 100_000, "roots of BenchmarkKeystore")

// BenchmarkKeystore fills a keystore anew and scans it again, and reports what it takes.
func BenchmarkKeystore(b *testing.B) {
	all := newDatastores(b, b.TempDir())
	for _, bm := range []struct {
		name string
		anew bool
	}{{"reset", true}, {"scan", false}} {
		b.Run(bm.name, func(b *testing.B) {
			k := openKeystore(b, all)
			if !bm.anew {
				if _, err := k.reconcile(b.Context(), numbered(*roots), true, 0); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				if _, err := k.reconcile(b.Context(), numbered(*roots), bm.anew, 0); err != nil {
					b.Fatal(err)
				}
			}
			if n, err := k.Size(b.Context()); err != nil || n != *roots {
				b.Fatal(n, err)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(*roots), "ns/root")
			reportMemory(b)
		})
	}
}

// reportMemory reports the heap in use and, on Linux, the memory of the process.
func reportMemory(b *testing.B) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapInuse)/(1<<20), "heap-MiB")
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(status)) {
		var kib float64
		if n, _ := fmt.Sscanf(line, "VmRSS: %f kB", &kib); n == 1 {
			b.ReportMetric(kib/1024, "rss-MiB")
		}
		if n, _ := fmt.Sscanf(line, "VmHWM: %f kB", &kib); n == 1 {
			b.ReportMetric(kib/1024, "peak-MiB")
		}
	}
}
