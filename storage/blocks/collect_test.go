package blocks

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
	"github.com/multiformats/go-multihash"
)

var (
	collectFor = flag.Duration("collect", 3*time.Second, "how long pins come and go while their blocks are collected")
	killRounds = flag.Int("kills", 12, "processes that are killed in the middle of it")
)

const (
	collectEvery      = 100 * time.Millisecond
	collectReferences = 12  // of each worker
	collectBlocks     = 300 // that the references share
)

// sharedBlocks returns what pins of these tests may have.
func sharedBlocks() ([]blocks.Block, error) {
	blks := make([]blocks.Block, collectBlocks)
	for i := range blks {
		data := make([]byte, 50+i*37%4000)
		binary.BigEndian.PutUint64(data, uint64(i))
		c, err := cid.NewPrefixV1(cid.Raw, multihash.SHA2_256).Sum(data)
		if err != nil {
			return nil, err
		}
		if blks[i], err = blocks.NewBlockWithCid(data, c); err != nil {
			return nil, err
		}
	}
	return blks, nil
}

// pinWorker makes, replaces and deletes references whose names nobody else uses, and
// knows what was acknowledged.
type pinWorker struct {
	name  string
	store *Store
	blks  []blocks.Block
	rng   *rand.Rand
	held  map[string][]int // blocks of the references that were sealed
	say   func(format string, args ...any)
	next  int
}

func newPinWorker(name string, s *Store, blks []blocks.Block, seed uint64) *pinWorker {
	return &pinWorker{
		name: name, store: s, blks: blks, rng: rand.New(rand.NewPCG(seed, 1)), held: map[string][]int{},
		say: func(string, ...any) {},
	}
}

// some draws blocks, around one point so that references share most of theirs.
func (w *pinWorker) some() []int {
	from := w.rng.IntN(len(w.blks))
	var which []int
	for i := range 1 + w.rng.IntN(30) {
		if w.rng.IntN(4) > 0 {
			which = append(which, (from+i)%len(w.blks))
		}
	}
	return which
}

// pin does what a fetch does: adopt, put what is missing, seal.
func (w *pinWorker) pin(ctx context.Context, reference string, which []int) error {
	w.say("begin %s", reference)
	var cids []cid.Cid
	for _, i := range which {
		cids = append(cids, w.blks[i].Cid())
	}
	missing, err := w.store.Adopt(ctx, reference, cids)
	if err != nil {
		return err
	}
	var put []blocks.Block
	for _, i := range which {
		if slices.Contains(missing, w.blks[i].Cid()) {
			put = append(put, w.blks[i])
		}
	}
	seal := Sealed{Blocks: uint64(len(which)), Hidden: w.rng.IntN(2) == 0}
	if w.rng.IntN(2) == 0 {
		err = w.store.PutAndSeal(ctx, reference, put, seal)
	} else if err = w.store.Put(ctx, reference, put); err == nil {
		err = w.store.Seal(ctx, reference, seal)
	}
	if err != nil {
		return err
	}
	w.held[reference] = which
	w.say("pinned %s %s", reference, strings.Trim(strings.ReplaceAll(fmt.Sprint(which), " ", ","), "[]"))
	return nil
}

func (w *pinWorker) drop(ctx context.Context, reference string) error {
	w.say("begin %s", reference)
	delete(w.held, reference)
	if _, err := w.store.Drop(ctx, reference); err != nil {
		return err
	}
	w.say("dropped %s", reference)
	return nil
}

// check reads everything of one reference.
func (w *pinWorker) check(ctx context.Context, reference string) error {
	for _, i := range w.held[reference] {
		if _, err := w.store.Get(ctx, w.blks[i].Cid()); err != nil {
			return fmt.Errorf("block %d of %s: %w", i, reference, err)
		}
	}
	return nil
}

// step returns one change, and a look at what it must not have changed.
func (w *pinWorker) step(ctx context.Context) error {
	var reference string
	for reference = range w.held {
		break
	}
	w.next++
	fresh := fmt.Sprintf("%s/%d", w.name, w.next)
	var err error
	switch n := w.rng.IntN(4); {
	case reference == "" || n == 0 && len(w.held) < collectReferences:
		err = w.pin(ctx, fresh, w.some())
	case n == 1:
		err = w.drop(ctx, reference)
	case n == 2: // the same name again, at once
		if err = w.drop(ctx, reference); err == nil {
			err = w.pin(ctx, reference, w.some())
		}
	default: // replaced: the old one goes when the new one is whole
		which := slices.Clone(w.held[reference])
		if len(which) > 0 {
			which[0] = w.rng.IntN(len(w.blks))
		}
		slices.Sort(which)
		if err = w.pin(ctx, fresh, slices.Compact(which)); err == nil {
			err = w.drop(ctx, reference)
		}
	}
	for reference := range w.held {
		return errors.Join(err, w.check(ctx, reference)) // any of them
	}
	return err
}

// compactOften collects every so often until ctx ends.
func compactOften(ctx context.Context, s *Store, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := s.Compact(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// accounted checks that the store holds what its references refer to, and no more. Of references
// that were cut short blocks may be missing: of a batch that was being written there is a
// beginning, and references come before their blocks.
func accounted(t testing.TB, s *Store, cut map[string]bool) {
	t.Helper()
	want, missing := map[string]int{}, map[string]bool{}
	if err := s.References(context.Background(), "", func(o ReferenceInfo) (bool, error) {
		return true, s.Blocks(context.Background(), o.Reference, func(h multihash.Multihash) (bool, error) {
			n, err := s.GetSize(context.Background(), cid.NewCidV1(cid.Raw, h))
			if ipld.IsNotFound(err) && cut[o.Reference] && !o.Sealed {
				missing[string(h)] = true
				return true, nil
			}
			want[string(h)] = n
			return true, err
		})
	}); err != nil {
		t.Fatal(err)
	}
	bytes := 0
	for _, n := range want {
		bytes += n
	}
	if u := s.Usage(); u.Blocks != uint64(len(want)) || u.LiveBytes != uint64(bytes) || u.Missing != uint64(len(missing)) {
		t.Fatalf("%+v, but the references have %d blocks of %d bytes, and lack %d", u, len(want), bytes, len(missing))
	}
	wantSound(t, s)
}

// wantSound wants Check to find no difference.
func wantSound(t testing.TB, s *Store) {
	t.Helper()
	if found, err := s.Check(context.Background(), 10); err != nil || len(found.Differences)+int(found.More) > 0 {
		t.Fatalf("%+v, %v", found, err)
	}
}

// Every acknowledged block stays readable while references come and go under constant compaction. No block is left
// when all are dropped.
func TestCollectingTakesNothingThatIsHeld(t *testing.T) {
	dir := t.TempDir()
	opts := testOptions()
	opts.SegmentBytes = 64 << 10
	s := openWith(t, dir, opts)
	blks, err := sharedBlocks()
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	defer time.AfterFunc(*collectFor, stop).Stop() // a deadline would fail the limit on copying before its time
	var group sync.WaitGroup
	group.Go(func() {
		if err := compactOften(ctx, s, collectEvery); err != nil {
			t.Errorf("compact: %v", err)
		}
	})
	workers := make([]*pinWorker, 6)
	for i := range workers {
		w := newPinWorker(fmt.Sprint("w", i), s, blks, uint64(i))
		workers[i] = w
		group.Go(func() {
			for ctx.Err() == nil {
				if err := w.step(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	steps := 0
	for _, w := range workers {
		steps += w.next
		for reference := range w.held {
			must(t, w.check(t.Context(), reference))
		}
	}
	accounted(t, s, nil)
	must(t, s.Compact(t.Context()))
	accounted(t, s, nil)
	for _, w := range workers {
		for reference := range w.held {
			mustDrop(t, s, reference)
		}
	}
	must(t, s.Compact(t.Context()))
	u := s.Usage()
	t.Logf("%d changes; in the end %d blocks, %d bytes in them, %d bytes of segments", steps, u.Blocks, u.LiveBytes, u.DiskBytes)
	if u.Blocks != 0 || u.LiveBytes != 0 || u.Segments > 2 {
		t.Fatalf("left over: %+v", u)
	}
}

// childEnv makes the test binary the process that is killed: it holds the
// folder of a store.
const childEnv = "HOLDFAST_TEST_BLOCKS_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := child(dir); err != nil {
			fmt.Println("child", err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// child works on a store, says what it does, and does not end by itself.
func child(dir string) error {
	s, err := Open(dir, killOptions())
	if err != nil {
		return err
	}
	blks, err := sharedBlocks()
	if err != nil {
		return err
	}
	var mu sync.Mutex // of the output
	work, ctx := errgroup.WithContext(context.Background())
	work.Go(func() error { return compactOften(ctx, s, 5*time.Millisecond) })
	for i := range 4 {
		w := newPinWorker(fmt.Sprintf("w%d-%d", i, os.Getpid()), s, blks, uint64(os.Getpid()+i))
		w.say = func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			fmt.Printf(format+"\n", args...)
		}
		work.Go(func() error {
			for {
				if err := w.step(ctx); err != nil {
					return err
				}
			}
		})
	}
	return work.Wait()
}

func killOptions() Options {
	return Options{SegmentBytes: 16 << 10, MinFreeBytes: -1, CompactBytesPerSecond: 1 << 30, Logger: slog.New(slog.DiscardHandler)}
}

// After a kill at any point, every acknowledged reference is whole and every dropped one is gone. The kills hit puts,
// drops and compactions. Nothing else is left.
func TestAKillAnywhereKeepsWhatWasAcknowledged(t *testing.T) {
	t.Parallel() // it mostly waits
	dir := filepath.Join(t.TempDir(), "blocks")
	rng := rand.New(rand.NewPCG(3, 4))
	known := map[string]string{} // reference -> its blocks; "" after a drop
	changes, least := 0, 0
	blks, err := sharedBlocks()
	must(t, err)
	for range *killRounds {
		first := rng.IntN(11)
		least += first
		open := runAndKill(t, dir, first, time.Duration(20+rng.IntN(250))*time.Millisecond, known, &changes)
		s, err := Open(dir, killOptions())
		must(t, err)
		for reference, which := range known {
			o, here, err := s.Reference(t.Context(), reference)
			must(t, err)
			if open[reference] {
				continue // cut short: either
			}
			if here != (which != "gone") {
				t.Fatalf("%s is here: %t, its blocks: %s", reference, here, which)
			}
			if !here {
				continue
			}
			if !o.Sealed {
				t.Fatalf("%s is not sealed any more", reference)
			}
			for text := range strings.SplitSeq(which, ",") {
				if text == "" {
					continue
				}
				i, err := strconv.Atoi(text)
				must(t, err)
				wantHere(t, s, blks[i])
			}
		}
		must(t, s.Compact(t.Context())) // ends the drops that were cut short
		accounted(t, s, open)
		for reference := range open {
			mustDrop(t, s, reference)
			known[reference] = "gone"
		}
		accounted(t, s, nil)
		must(t, s.Close())
	}
	if changes < least {
		t.Fatalf("%d changes were acknowledged, %d were waited for", changes, least)
	}
	t.Logf("%d changes acknowledged in %d processes", changes, *killRounds)
}

// runAndKill runs a child until so many changes are acknowledged, and for a while. It
// takes in what the child says, and returns the references of changes that were not
// acknowledged.
func runAndKill(t *testing.T, dir string, first int, after time.Duration, known map[string]string, changes *int) map[string]bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+dir)
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	open, before := map[string]bool{}, *changes
	var timer *time.Timer
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
			break // a line without its end was not said
		}
		must(t, err)
		if timer == nil && *changes-before >= first {
			timer = time.AfterFunc(after, func() { _ = child.Process.Kill() })
			defer timer.Stop()
		}
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		switch reference := words[1]; words[0] {
		case "begin":
			open[reference] = true
		case "pinned":
			delete(open, reference)
			known[reference] = strings.Join(words[2:], "")
			*changes++
		case "dropped":
			delete(open, reference)
			known[reference] = "gone"
			*changes++
		default:
			t.Logf("child: %s", line)
		}
	}
	if err := child.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the child was not killed but ended: %v", err)
	}
	return open
}
