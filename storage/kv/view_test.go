package kv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/hosttest"
)

// held is a view and what it has to show.
type held struct {
	view  *View
	model map[string]string
}

func (h held) check(t *testing.T, r *rand.Rand) {
	t.Helper()
	for range 3 {
		key := anyKey(r)
		got, ok, err := h.view.Get(key)
		want, there := h.model[string(key)]
		if err != nil || ok != there || string(got) != want {
			t.Fatalf("%s is %q, %t, %v, want %q, %t", key, got, ok, err, want, there)
		}
		clear(got) // it is ours: nobody else may see this
	}
	if r.IntN(4) == 0 {
		if got, want := content(t, h.view), text(h.model); got != want {
			t.Fatalf("the view shows\n%s\nwant\n%s", got, want)
		}
	}
}

// Each view shows what was committed when it was opened, whatever is committed or restored later. The store keeps
// nothing of closed views.
func TestViewsAreThoseOfAMap(t *testing.T) {
	t.Run("plain", func(t *testing.T) { viewsAreThoseOfAMap(t, open(t, t.TempDir())) })
	t.Run("filter", func(t *testing.T) { viewsAreThoseOfAMap(t, openFilter(t)) })
}

// openFilter opens a store with a filter, and closes it when the test ends.
func openFilter(t *testing.T) *Store {
	s := openSparse(t, t.TempDir())
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func viewsAreThoseOfAMap(t *testing.T, s *Store) {
	r := rand.New(rand.NewPCG(3, 3))
	committed := map[string]string{}
	var views []held
	look := func() {
		for range r.IntN(4) {
			views = append(views, held{s.View(), maps.Clone(committed)})
		}
		key := anyKey(r)
		got, ok, err := s.Get(key)
		if want, there := committed[string(key)]; err != nil || ok != there || string(got) != want {
			t.Fatalf("%s is %q, %t, %v, want %q, %t", key, got, ok, err, want, there)
		}
		clear(got)
		for range r.IntN(6) {
			if len(views) == 0 {
				return
			}
			i := r.IntN(len(views))
			views[i].check(t, r)
			if r.IntN(2) == 0 {
				views[i].view.Close()
				views = append(views[:i], views[i+1:]...)
			}
		}
	}
	var tx *Tx
	defer func() { tx.Discard() }() // or closing the store waits for it
	for round := range 1000 {
		look()
		tx = s.Begin()
		if round%5 == 0 {
			s.live.filter.added = s.live.filter.room + 1 // it is rebuilt without deleted keys
		}
		model := maps.Clone(committed)
		for range r.IntN(10) {
			step(t, r, tx, model)
		}
		look()
		if r.IntN(3) == 0 {
			tx.Discard()
			continue
		}
		if err := tx.Commit(false); err != nil {
			t.Fatal(err)
		}
		committed = model
		if round%300 == 299 {
			restoreEmpty(t, s)
			committed = map[string]string{}
		}
	}
	for _, h := range views {
		h.check(t, r)
		h.view.Close()
	}
	if n := s.live.db.Metrics().Snapshots.Count; n != 0 {
		t.Errorf("%d snapshots are left", n)
	}
}

// restoreEmpty replaces everything by the archive of an empty store.
func restoreEmpty(t *testing.T, s *Store) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "checkpoint")
	if err := open(t, t.TempDir()).Checkpoint(dir); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := errors.Join(WriteArchive(&archive, dir), s.Restore(&archive)); err != nil {
		t.Fatal(err)
	}
}

// All views between two commits share one snapshot of Pebble. It exists only from the next commit until the last of
// them is closed.
func TestViewsBetweenTwoCommitsShareOneSnapshot(t *testing.T) {
	s := open(t, t.TempDir())
	count := func(want int) {
		t.Helper()
		if n := s.live.db.Metrics().Snapshots.Count; n != want {
			t.Errorf("%d snapshots, want %d", n, want)
		}
	}
	put(t, s, false, "k", "1")
	first, second := s.View(), s.View()
	for _, v := range []*View{first, second} {
		if got := content(t, v); got != "k=1" {
			t.Error(got)
		}
	}
	count(0)
	put(t, s, false, "k", "2")
	count(1)
	put(t, s, false, "k", "3")
	count(1)
	third := s.View()
	put(t, s, false, "k", "4")
	count(2)
	for v, want := range map[*View]string{first: "1", second: "1", third: "3"} {
		if got, ok, err := v.Get([]byte("k")); string(got) != want || !ok || err != nil {
			t.Errorf("%q, %t, %v, want %q", got, ok, err, want)
		}
	}
	first.Close()
	first.Close()
	count(2)
	second.Close()
	count(1)
	third.Close()
	count(0)
}

// A view that is opened during a commit shows what was visible then, and goes on showing it. A value that was read as
// a commit began does not count as the value before it.
func TestViewsWhileACommitIsUnderWay(t *testing.T) {
	s := open(t, t.TempDir())
	put(t, s, false, "k", "1")
	g, key := s.live, []byte("k")
	before := s.View()
	defer before.Close()
	if got, _, err := s.Get(key); string(got) != "1" || err != nil { // remembered from now on
		t.Errorf("%q, %v", got, err)
	}
	_, _, commit := g.points.cached(key)
	g.points.writes(g.db)
	early := s.View()
	defer early.Close()
	if err := g.db.Set(key, []byte("2"), nil); err != nil {
		t.Fatal(err)
	}
	late := s.View()
	defer late.Close()
	for range 2 {
		if got, _, err := s.Get(key); string(got) != "2" || err != nil {
			t.Errorf("%q, %v, want what can be seen of the commit", got, err)
		}
	}
	if before.at.learned(key, []byte("2"), true, nil) || g.points.found(key, []byte("2"), true, commit) {
		t.Error("a value of the commit is taken for one before it")
	}
	g.points.wrote(map[string]*known{"k": {value: []byte("2"), exists: true, written: true}}, false)
	if g.points.found(key, []byte("1"), true, commit) {
		t.Error("a value from before the commit is taken for the newest")
	}
	after := s.View()
	defer after.Close()
	for range 2 { // from the store, then remembered
		if got, _, err := s.Get(key); string(got) != "2" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		for _, look := range []struct {
			view *View
			want string
		}{{before, "1"}, {early, "1"}, {late, "2"}, {after, "2"}} {
			if got, ok, err := look.view.Get(key); string(got) != look.want || !ok || err != nil {
				t.Errorf("%q, %t, %v, want %q", got, ok, err, look.want)
			}
			if got := content(t, look.view); got != "k="+look.want {
				t.Errorf("%q, want %q", got, look.want)
			}
		}
	}
}

// A view that is opened during commits shows exactly one commit, and goes on showing it. That commit is none older
// than the newest that had ended before.
func TestViewsDuringCommitsShowOneOfThem(t *testing.T) {
	t.Run("plain", func(t *testing.T) { viewsDuringCommitsShowOneOfThem(t, open(t, t.TempDir())) })
	t.Run("filter", func(t *testing.T) { viewsDuringCommitsShowOneOfThem(t, openFilter(t)) })
}

func viewsDuringCommitsShowOneOfThem(t *testing.T, s *Store) {
	const commits, readers, keys = 300, 4, 12
	var done atomic.Uint64
	commit := func(n uint64) {
		tx := s.Begin()
		defer tx.Discard()
		if n%5 == 0 {
			s.live.filter.added = s.live.filter.room + 1 // it is rebuilt without deleted keys
		}
		for i := range keys {
			key := []byte{'b', byte(i)}
			if _, _, err := tx.Get(key); err != nil { // so that it may be remembered
				t.Error(err)
			}
			err := tx.Delete(key)
			if i == 0 || n%uint64(i+1) != 0 {
				err = tx.Set(key, binary.BigEndian.AppendUint64(nil, n))
			}
			if err != nil {
				t.Error(err)
			}
		}
		if err := tx.Commit(false); err != nil {
			t.Error(err)
		}
		done.Store(n)
	}
	commit(1)
	var readersDone sync.WaitGroup
	ended := make(chan struct{})
	for reader := range readers {
		readersDone.Go(func() {
			r := rand.New(rand.NewPCG(4, uint64(reader)))
			for looks := 0; ; looks++ {
				select {
				case <-ended:
					if looks > 0 {
						return
					}
				default:
				}
				if err := lookOnce(s, r, &done, keys); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for n := uint64(2); n <= commits; n++ {
		commit(n)
	}
	close(ended)
	readersDone.Wait()
	if n := s.live.db.Metrics().Snapshots.Count; n != 0 {
		t.Errorf("%d snapshots are left", n)
	}
}

// lookOnce opens a view and reads its keys twice, in any order.
func lookOnce(s *Store, r *rand.Rand, done *atomic.Uint64, keys int) error {
	least := done.Load()
	v := s.View()
	defer v.Close()
	shown := uint64(0) // not known before the first look
	for range 2 {
		value, ok, err := v.Get([]byte{'b', 0})
		if err != nil || !ok {
			return fmt.Errorf("the first key: %t, %w", ok, err)
		}
		n := binary.BigEndian.Uint64(value)
		if n < least || shown > 0 && n != shown {
			return fmt.Errorf("a view of commit %d, %d had ended before, %d was shown", n, least, shown)
		}
		shown = n
		for _, i := range r.Perm(keys)[:keys/2] {
			if i == 0 {
				continue
			}
			value, ok, err := v.Get([]byte{'b', byte(i)})
			if err != nil || ok != (n%uint64(i+1) != 0) || ok && binary.BigEndian.Uint64(value) != n {
				return fmt.Errorf("key %d of commit %d: %x, %t, %w", i, n, value, ok, err)
			}
		}
		rows := 0
		if err := v.Scan(nil, nil, r.IntN(2) == 0, func(_, value []byte) (bool, error) {
			rows++
			if got := binary.BigEndian.Uint64(value); got != n {
				return false, fmt.Errorf("a row of commit %d in a view of %d", got, n)
			}
			return true, nil
		}); err != nil {
			return err
		}
		want := 0
		for i := range keys {
			if i == 0 || n%uint64(i+1) != 0 {
				want++
			}
		}
		if rows != want {
			return fmt.Errorf("%d rows of commit %d, want %d", rows, n, want)
		}
	}
	return nil
}

// BenchmarkView opens a view, reads the records that each request reads, and
// closes it: by one goroutine or eight, alone or while records are committed 200
// times a second.
func BenchmarkView(b *testing.B) {
	for _, commits := range []bool{false, true} {
		for _, goroutines := range []int{1, 8} {
			b.Run(fmt.Sprintf("commits=%t/goroutines=%d", commits, goroutines), func(b *testing.B) {
				s := open(b, b.TempDir())
				for i := range 20_000 {
					put(b, s, false, fmt.Sprintf("record/%06d", i), string(make([]byte, 200)))
				}
				stop := make(chan struct{})
				var writer sync.WaitGroup
				if commits {
					writer.Go(func() { commitAllTheTime(b, s, stop) })
				}
				views(b, s, goroutines)
				close(stop)
				writer.Wait()
			})
		}
	}
}

func views(b *testing.B, s *Store, goroutines int) {
	var left atomic.Int64
	left.Store(int64(b.N))
	var readers sync.WaitGroup
	before := hosttest.ProcessorTime(b)
	b.ReportAllocs()
	b.ResetTimer()
	for g := range goroutines {
		readers.Go(func() {
			for i := g; left.Add(-1) >= 0; i += goroutines {
				v := s.View()
				for _, key := range []string{"applied", "record/000001", "record/000002", "none", fmt.Sprintf("record/%06d", i%20_000)} {
					if _, _, err := v.Get([]byte(key)); err != nil {
						b.Error(err)
					}
				}
				v.Close()
			}
		})
	}
	readers.Wait()
	b.StopTimer()
	b.ReportMetric(float64(hosttest.ProcessorTime(b)-before)/float64(b.N), "cpu-ns/op")
}

func commitAllTheTime(b *testing.B, s *Store, stop <-chan struct{}) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-stop:
			return
		}
		pairs := []string{"applied", fmt.Sprint(n)}
		for i := range 15 {
			pairs = append(pairs, fmt.Sprintf("new/%08d/%d", n, i), "value")
		}
		put(b, s, false, pairs...)
	}
}

// Walk visits the keys that a Scan from each key visits at which its function says to go on. It shows the state of
// its view.
func TestWalkGoesOnWhereItIsTold(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, t.TempDir())
	r := rand.New(rand.NewPCG(7, 9))
	tx := s.Begin()
	for range 2_000 {
		must(tx.Set(binary.BigEndian.AppendUint16(nil, uint16(r.Uint32())), []byte{1}))
	}
	must(tx.Commit(false))
	v := s.View()
	defer v.Close()
	later := s.Begin() // a walk shows the state of its view
	must(later.Set([]byte{0, 0, 0}, nil))
	must(later.Commit(false))
	for range 200 {
		lower, upper := binary.BigEndian.AppendUint16(nil, uint16(r.Uint32())), binary.BigEndian.AppendUint16(nil, uint16(r.Uint32()))
		// Where to go on after the n-th key, and where to end.
		jumps, end := map[int][]byte{}, r.IntN(300)
		for range r.IntN(30) {
			jumps[r.IntN(300)] = binary.BigEndian.AppendUint16(nil, uint16(r.Uint32()))
		}
		after := func(n int, key []byte) []byte {
			if on := jumps[n]; bytes.Compare(on, key) > 0 {
				return on
			}
			return nil
		}
		var got, want [][]byte
		must(v.Walk(lower, upper, func(key, value []byte) (on []byte, more bool, err error) {
			if len(value) != 1 {
				t.Errorf("the value of %x is %x", key, value)
			}
			got = append(got, bytes.Clone(key))
			return after(len(got), key), len(got) < end, nil
		}))
		for from := lower; from != nil && bytes.Compare(from, upper) < 0; {
			var next []byte
			must(v.Scan(from, upper, false, func(key, _ []byte) (bool, error) {
				want = append(want, bytes.Clone(key))
				next = after(len(want), key)
				return next == nil && len(want) < end, nil
			}))
			from = next
			if len(want) >= max(end, 1) {
				break
			}
		}
		if !slices.EqualFunc(got, want, bytes.Equal) {
			t.Fatalf("[%x, %x): %d keys, and %d by scans", lower, upper, len(got), len(want))
		}
	}
	broken := errors.New("broken")
	if err := v.Walk(nil, nil, func(_, _ []byte) ([]byte, bool, error) { return nil, true, broken }); !errors.Is(err, broken) {
		t.Error("its own error:", err)
	}
}
