package dag

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	mh "github.com/multiformats/go-multihash"

	"github.com/holdfast-ipfs/holdfast/peer/peertest"
)

// source is a Source with the ways in which one can fail.
type source struct {
	from   *peertest.Store
	only   func(cid.Cid) bool // which it has, nil for all it has
	after  int                // blocks after which it falls silent, 0 for never
	silent bool               // never says that it lacks something
	broken error              // what every call returns
	spoil  bool               // sends wrong bytes

	mu      sync.Mutex
	given   int
	asked   int
	renewed int
	lost    map[cid.Cid]int // wants that get lost before that many renewals
}

func (s *source) Name() string { return "test source" }

func (s *source) Renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewed++
}

func (s *source) OriginErrors() []string { return []string{"/ip4/192.0.2.1/tcp/1: no answer in time"} }

func (s *source) Blocks(ctx context.Context, cids []cid.Cid, fn func(blocks.Block) error) ([]cid.Cid, error) {
	var missing []cid.Cid
	for i, c := range cids {
		b, ok := s.one(ctx, c)
		if !ok {
			missing = append(missing, c)
			continue
		}
		if err := fn(b); err != nil {
			return append(missing, cids[i:]...), err
		}
	}
	if len(missing) > 0 && s.silent {
		<-ctx.Done()
		return missing, ctx.Err()
	}
	return missing, s.broken
}

func (s *source) one(ctx context.Context, c cid.Cid) (blocks.Block, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.broken != nil || (s.only != nil && !s.only(c)) || (s.after > 0 && s.given >= s.after) || s.renewed < s.lost[c] {
		return nil, false
	}
	b, err := s.from.Get(ctx, c)
	if err != nil {
		return nil, false
	}
	s.given++
	if s.spoil {
		b, _ = blocks.NewBlockWithCid([]byte("not this"), c)
	}
	return b, true
}

type tree struct {
	store       *peertest.Store
	root        cid.Cid
	count, size uint64
}

func newTree(tb testing.TB, codec uint64, width, depth, leaf int) tree {
	tb.Helper()
	s := peertest.NewStore()
	root, count, size, err := s.AddTree(1, codec, width, depth, leaf)
	if err != nil {
		tb.Fatal(err)
	}
	return tree{s, root, count, size}
}

// Fetch stores every block of a dag-pb, dag-cbor or dag-json tree under its reference, in batches. It returns the
// number of bytes and blocks.
func TestFetchTakesAWholeDAG(t *testing.T) {
	for _, codec := range []uint64{cid.DagProtobuf, cid.DagCBOR, cid.DagJSON} {
		t.Run(fmt.Sprintf("codec 0x%x", codec), func(t *testing.T) {
			want := newTree(t, codec, 12, 3, 200)
			here := peertest.NewStore()
			var last Progress
			got, err := Fetch(t.Context(), FetchRequest{
				Root: want.root, Reference: "pin", Store: here.DAGStore(),
				Sources:  []Source{&source{from: want.store}},
				Progress: func(p Progress) { last = p },
			})
			if err != nil {
				t.Fatal(err)
			}
			if got != (Result{want.size, want.count}) || last != (Progress{want.size, want.count, want.count}) {
				t.Fatalf("result %+v, progress %+v, want %d bytes in %d blocks", got, last, want.size, want.count)
			}
			if owned := here.BlocksOf("pin"); uint64(len(owned)) != want.count {
				t.Fatalf("%d blocks owned, want %d", len(owned), want.count)
			}
			if v, err := Verify(t.Context(), here, want.root, Limits{}); err != nil || v != got {
				t.Fatalf("verify %+v, %v", v, err)
			}
			if blocks, batches := here.Puts(); batches*4 > blocks {
				t.Fatalf("%d blocks in %d puts: not batched", blocks, batches)
			}
		})
	}
}

// Fetch asks the next source for what a source lacks, and passes over sources that fail or send wrong bytes.
func TestFetchAsksTheNextSourceForTheRest(t *testing.T) {
	want := newTree(t, cid.DagProtobuf, 20, 2, 100)
	half := &source{from: want.store, only: func(c cid.Cid) bool { return c.Hash()[10]%2 == 0 }}
	broken := &source{from: want.store, broken: errors.New("connection refused")}
	spoiled := &source{from: want.store, spoil: true}
	rest := &source{from: want.store}
	here := peertest.NewStore()
	got, err := Fetch(t.Context(), FetchRequest{
		Root: want.root, Reference: "pin", Store: here.DAGStore(),
		Sources: []Source{broken, spoiled, half, rest},
	})
	if err != nil || got.Blocks != want.count {
		t.Fatalf("%+v, %v", got, err)
	}
	if half.given == 0 || rest.given == 0 || uint64(half.given+rest.given) != want.count {
		t.Fatalf("%d and %d blocks of %d", half.given, rest.given, want.count)
	}
	if _, err := Verify(t.Context(), here, want.root, Limits{}); err != nil {
		t.Fatal(err)
	}
}

// Fetch without a source gives its reference all blocks of a DAG that the store has for another reference.
func TestFetchAdoptsWhatIsHere(t *testing.T) {
	want := newTree(t, cid.DagCBOR, 10, 3, 50)
	got, err := Fetch(t.Context(), FetchRequest{Root: want.root, Reference: "second", Store: want.store.DAGStore()})
	if err != nil || got != (Result{want.size, want.count}) {
		t.Fatalf("%+v, %v", got, err)
	}
	if owned := want.store.BlocksOf("second"); uint64(len(owned)) != want.count {
		t.Fatalf("%d blocks owned, want %d", len(owned), want.count)
	}
}

// Fetch and Verify read the bytes of an identity CID from the CID, follow its links, and count it as no block. A
// fetch of what is here already returns the same.
func TestFetchFollowsIdentityLinks(t *testing.T) {
	from := peertest.NewStore()
	leaf := labelled(t, cid.Raw, []byte("leaf"))
	middle := node(t, cid.DagCBOR, nil, leaf.Cid())
	digest, err := mh.Sum(middle.RawData(), mh.IDENTITY, -1)
	if err != nil {
		t.Fatal(err)
	}
	inlined := cid.NewCidV1(cid.DagCBOR, digest)
	root := node(t, cid.DagProtobuf, nil, inlined, inlined)
	for _, b := range []blocks.Block{leaf, root} {
		if err := from.Blockstore.Put(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	size := func(b blocks.Block) uint64 { return uint64(len(b.RawData())) }
	hello, err := mh.Sum([]byte("hello\n"), mh.IDENTITY, -1)
	if err != nil {
		t.Fatal(err)
	}
	for r, want := range map[cid.Cid]Result{
		root.Cid():                   {size(root) + size(leaf), 2}, // it has the bytes of the one between
		inlined:                      {size(middle) + size(leaf), 1},
		cid.NewCidV1(cid.Raw, hello): {6, 0},
	} {
		here := peertest.NewStore()
		got, err := Fetch(t.Context(), FetchRequest{Root: r, Reference: "pin", Store: here.DAGStore(), Sources: []Source{&source{from: from}}})
		if err != nil || got != want {
			t.Fatalf("%s: %+v, %v, want %+v", r, got, err, want)
		}
		// Whoever has it already says the same of it.
		if got, err := Fetch(t.Context(), FetchRequest{Root: r, Reference: "other", Store: here.DAGStore(), Here: true}); err != nil || got != want {
			t.Errorf("%s, taken over: %+v, %v, want %+v", r, got, err, want)
		}
		if got, err := Verify(t.Context(), here, r, Limits{}); err != nil || got != want {
			t.Errorf("%s, verified: %+v, %v, want %+v", r, got, err, want)
		}
		if want.Blocks == 0 {
			continue
		}
		if has, _ := here.Has(t.Context(), leaf.Cid()); !has {
			t.Fatal("the leaf behind the identity CID is missing")
		}
	}
}

// Fetch makes a block of no bytes itself, for each supported hash, and asks no source for it. Kubo never sends a
// block of no bytes, whoever asks.
func TestBlocksOfNoBytesAreAskedOfNobody(t *testing.T) {
	for _, hash := range []uint64{mh.SHA2_256, mh.SHA2_512, mh.BLAKE2B_MIN + 31, mh.BLAKE3} {
		digest, err := mh.Sum(nil, hash, -1)
		if err != nil {
			t.Fatal(err)
		}
		empty, file := cid.NewCidV1(cid.Raw, digest), labelled(t, cid.Raw, []byte("file"))
		folder := node(t, cid.DagProtobuf, nil, empty, file.Cid(), cid.NewCidV1(cid.DagProtobuf, digest))
		from := peertest.NewStore()
		for _, b := range []blocks.Block{folder, file} {
			if err := from.Blockstore.Put(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		for root, want := range map[cid.Cid]uint64{empty: 1, folder.Cid(): 4} {
			here := peertest.NewStore()
			got, err := Fetch(t.Context(), FetchRequest{
				Root: root, Reference: "pin", Store: here.DAGStore(), Sources: []Source{&source{from: from, silent: true}},
				Limits: Limits{Idle: 5 * time.Second},
			})
			if err != nil || got.Blocks != want {
				t.Errorf("%s: %+v, %v, want %d blocks", root, got, err, want)
			}
			if v, err := Verify(t.Context(), here, root, Limits{}); err != nil || v != got {
				t.Errorf("%s, verified: %+v, %v, want %+v", root, v, err, got)
			}
		}
	}
}

// A fetch that fails returns the error and the reason of its kind, and stores no bad block.
func TestFetchFailsWithAReason(t *testing.T) {
	big := labelled(t, cid.Raw, make([]byte, MaxBlock+1))
	git := labelled(t, cid.GitRaw, []byte("blob 0"))
	junk := labelled(t, cid.DagCBOR, []byte{0xff})
	weak, err := cid.Prefix{Version: 1, Codec: cid.Raw, MhType: mh.MD5, MhLength: -1}.Sum([]byte("x"))
	if err != nil {
		t.Skip("md5 is not registered: ", err)
	}
	good := newTree(t, cid.DagProtobuf, 10, 2, 1000)
	chain := peertest.NewStore()
	deep, err := chain.AddChain(cid.DagCBOR, 300)
	if err != nil {
		t.Fatal(err)
	}
	with := func(child cid.Cid, extra ...blocks.Block) tree {
		s := peertest.NewStore()
		root := node(t, cid.DagProtobuf, nil, child)
		for _, b := range append(extra, root) {
			if err := s.Blockstore.Put(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		return tree{store: s, root: root.Cid()}
	}
	for _, tc := range []struct {
		name   string
		tree   tree
		limits Limits
		adapt  func(*source, *peertest.Store)
		want   error
		reason string
	}{
		{"nobody has it", with(good.root), Limits{}, nil, ErrNotFound, "nobody offered the block " + good.root.String()},
		{
			"nobody answers", with(good.root),
			Limits{Idle: time.Minute},
			func(s *source, _ *peertest.Store) { s.silent, s.only = true, func(cid.Cid) bool { return false } },
			ErrNotFound, "within 1m0s; /ip4/192.0.2.1/tcp/1: no answer in time",
		},
		{
			"provider vanishes", good,
			Limits{Idle: time.Minute},
			func(s *source, _ *peertest.Store) { s.silent, s.after = true, 40 },
			ErrStalled, "vanished after 40 blocks",
		},
		{
			"source fails for ever", good,
			Limits{Idle: time.Minute},
			func(s *source, _ *peertest.Store) { s.broken = errors.New("refused") },
			ErrNotFound, "nobody offered",
		},
		{"over the byte limit", good, Limits{MaxBytes: 50_000}, nil, ErrTooLarge, "more than 48.8 KiB allowed"},
		{"over the block limit", good, Limits{MaxBlocks: 50}, nil, ErrTooLarge, "more than 50 blocks"},
		{"too deep", tree{store: chain, root: deep}, Limits{MaxDepth: 200}, nil, ErrTooLarge, "more than 200 levels deep"},
		{"block too large", with(big.Cid(), big), Limits{}, nil, ErrInvalidBlock, "at most 2097152"},
		{"unsupported codec", with(git.Cid(), git), Limits{}, nil, ErrUnsupportedCodec, "codec 0x78"},
		{"malformed block", with(junk.Cid(), junk), Limits{}, nil, ErrInvalidBlock, "invalid block: " + junk.Cid().String()},
		{"hash that proves nothing", with(weak), Limits{}, nil, ErrInvalidBlock, "insecure hash"},
		{"disk full", good, Limits{}, func(_ *source, here *peertest.Store) { here.Fail(peertest.ErrDiskFull) }, ErrStore, "could not store"},
		{
			"time limit", good,
			Limits{Idle: time.Hour, Total: time.Minute},
			func(s *source, _ *peertest.Store) { s.silent, s.after = true, 40 },
			ErrTimeout, "not complete within 1m0s, after 40 blocks",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := &source{from: tc.tree.store}
				here := peertest.NewStore()
				if tc.adapt != nil {
					tc.adapt(src, here)
				}
				_, err := Fetch(t.Context(), FetchRequest{
					Root: tc.tree.root, Reference: "pin", Store: here.DAGStore(), Sources: []Source{src}, Limits: tc.limits,
				})
				if !errors.Is(err, tc.want) || !strings.Contains(Reason(err), tc.reason) {
					t.Fatalf("error %v\nreason %q\nwant   %v, %q", err, Reason(err), tc.want, tc.reason)
				}
				for _, c := range here.BlocksOf("pin") {
					if b, err := here.Get(t.Context(), c); err != nil || checkHash(c, b) != nil {
						t.Fatalf("a bad block was stored: %v", c)
					}
				}
			})
		})
	}
}

// Fetch renews its sources while nothing arrives, and then gets the blocks whose requests a source has lost. It takes
// at most twice DefaultIdle. This is what bitswap does when it stalls: a want is lost until a new session asks.
func TestFetchRenewsTheSourcesWhenNothingComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := newTree(t, cid.DagProtobuf, 30, 2, 10)
		src := &source{from: want.store, silent: true, lost: make(map[cid.Cid]int)}
		n := 0
		err := Walk(t.Context(), want.store, want.root, Limits{}, func(b blocks.Block) error {
			if n++; n%100 == 7 {
				src.lost[b.Cid()] = 1 + n/400
			}
			return nil
		})
		if err != nil || len(src.lost) < 9 {
			t.Fatal(len(src.lost), err)
		}
		start := time.Now()
		here := peertest.NewStore()
		got, err := Fetch(t.Context(), FetchRequest{Root: want.root, Reference: "pin", Store: here.DAGStore(), Sources: []Source{src}})
		if err != nil || got.Blocks != want.count {
			t.Fatalf("%+v, %v", got, err)
		}
		if took := time.Since(start); src.renewed < 3 || took > 2*DefaultIdle {
			t.Fatalf("%d renewals in %s", src.renewed, took)
		}
	})
}

// distant is a member at the end of a slow line.
type distant struct {
	from  *peertest.Store
	takes time.Duration // until what is asked for has come
}

func (d distant) Name() string { return "a member" }

func (d distant) Blocks(ctx context.Context, cids []cid.Cid, fn func(blocks.Block) error) ([]cid.Cid, error) {
	select {
	case <-time.After(d.takes):
		return (&source{from: d.from}).Blocks(ctx, cids, fn)
	case <-ctx.Done():
		return cids, ctx.Err()
	}
}

// Fetch receives blocks that a member needs DefaultIdle/2 to send, although it renews its other sources meanwhile.
func TestWhatIsOnItsWayIsNotCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := newTree(t, cid.DagProtobuf, 10, 2, 10)
		got, err := Fetch(t.Context(), FetchRequest{
			Root: want.root, Reference: "pin", Store: peertest.NewStore().DAGStore(),
			Sources: []Source{distant{want.store, DefaultIdle / 2}, &source{from: peertest.NewStore(), silent: true}},
		})
		if err != nil || got.Blocks != want.count {
			t.Fatalf("%+v of %d blocks, %v", got, want.count, err)
		}
	})
}

// Fetch ends with the error of its context while a source does not answer.
func TestFetchEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := newTree(t, cid.DagProtobuf, 10, 2, 10)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := Fetch(ctx, FetchRequest{
			Root: want.root, Reference: "pin", Store: peertest.NewStore().DAGStore(),
			Sources: []Source{&source{from: want.store, silent: true, after: 20}},
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	})
}

// Verify visits a node once, by however many paths it is reached. A DAG of n nodes has 2^n paths here.
func TestWalkVisitsSharedNodesOnce(t *testing.T) {
	s := peertest.NewStore()
	var below cid.Cid
	for i := range 60 {
		children := []cid.Cid{below, below}
		if i == 0 {
			children = nil
		}
		b := node(t, cid.DagCBOR, []byte{byte(i)}, children...)
		if err := s.Blockstore.Put(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		below = b.Cid()
	}
	if r, err := Verify(t.Context(), s, below, Limits{}); err != nil || r.Blocks != 60 {
		t.Fatalf("%+v, %v", r, err)
	}
}

// Verify fails with ErrNotFound for a missing block and with ErrInvalidBlock for a block with wrong bytes.
func TestWalkFindsWhatIsMissingOrRotten(t *testing.T) {
	want := newTree(t, cid.DagProtobuf, 10, 2, 10)
	var victim cid.Cid
	if err := Walk(t.Context(), want.store, want.root, Limits{}, func(b blocks.Block) error { victim = b.Cid(); return nil }); err != nil {
		t.Fatal(err)
	}
	rotten, err := blocks.NewBlockWithCid([]byte("rotten"), victim)
	if err != nil {
		t.Fatal(err)
	}
	if err := want.store.DeleteBlock(t.Context(), victim); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(t.Context(), want.store, want.root, Limits{}); !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
	if err := want.store.Blockstore.Put(t.Context(), rotten); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(t.Context(), want.store, want.root, Limits{}); !errors.Is(err, ErrInvalidBlock) {
		t.Fatal(err)
	}
}

// A frontier with room for 20 links visits every node of a DAG and holds no link at the end. It reads nodes again for
// that.
func TestFrontierHoldsFewLinks(t *testing.T) {
	want := newTree(t, cid.DagProtobuf, 8, 4, 5)
	f := newFrontier(Limits{}.withDefaults(), newSeenBytes())
	f.room = 20
	load := func(c cid.Cid) ([]cid.Cid, error) {
		b, err := want.store.Get(t.Context(), c)
		if err != nil {
			return nil, err
		}
		return Links(b)
	}
	if _, err := f.first(want.root); err != nil {
		t.Fatal(err)
	}
	if err := f.admit(want.root); err != nil {
		t.Fatal(err)
	}
	// Expand many before visiting any further, as a fetch does.
	batch := []item{{cid: want.root}}
	visited, reloads, most := uint64(1), 0, 0
	for len(batch) > 0 {
		for _, it := range batch {
			links, err := load(it.cid)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.push(it, links); err != nil {
				t.Fatal(err)
			}
			most = max(most, f.held)
		}
		batch = batch[:0]
		for len(batch) < 5 {
			it, ok, err := f.pop(func(c cid.Cid) ([]cid.Cid, error) { reloads++; return load(c) })
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			batch = append(batch, it)
			visited++
		}
	}
	if visited != want.count || reloads == 0 || most > f.room+8 || f.held != 0 {
		t.Fatalf("%d of %d visited, %d reloads, %d links held at most, %d at the end", visited, want.count, reloads, most, f.held)
	}
}

func BenchmarkFetch(b *testing.B) {
	want := newTree(b, cid.DagProtobuf, 16, 2, 1<<20)
	b.SetBytes(int64(want.size))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Fetch(b.Context(), FetchRequest{
			Root: want.root, Reference: "pin", Store: peertest.NewStore().DAGStore(), Sources: []Source{&source{from: want.store}},
		}); err != nil {
			b.Fatal(err)
		}
	}
}

// Fetch gives all bytes of a shared buffer back, whether it succeeds or the store fails.
func TestFetchesGiveASharedBufferBack(t *testing.T) {
	buffer := NewBuffer(0)
	whole := func() bool {
		if !buffer.free.TryAcquire(minBuffer) {
			return false
		}
		buffer.free.Release(minBuffer)
		return true
	}
	from := peertest.NewStore()
	root, _, _, err := from.AddTree(1, cid.DagProtobuf, 8, 3, 64<<10)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		put  error
	}{{"complete", nil}, {"the store fails", errors.New("disk full")}} {
		t.Run(tc.name, func(t *testing.T) {
			here := peertest.NewStore()
			here.Fail(tc.put)
			_, err := Fetch(t.Context(), FetchRequest{
				Root: root, Reference: "o", Store: here.DAGStore(), Sources: []Source{&source{from: from}}, Buffer: buffer,
			})
			if (err != nil) != (tc.put != nil) {
				t.Fatalf("fetch: %v", err)
			}
			if !whole() {
				t.Error("bytes of the buffer are still taken")
			}
		})
	}
}

// hashing is a source that says whether it has compared its blocks with their
// hashes.
type hashing struct {
	source
	is bool
}

func (h *hashing) ChecksHashes() bool { return h.is }

// said is a store that notes the blocks of which it was told that their hash
// was checked.
type said struct {
	Store
	checked, unchecked atomic.Int64
}

func (s *said) Put(ctx context.Context, reference string, blks []blocks.Block) error {
	for _, b := range blks {
		if c, ok := b.(interface{ HashChecked() bool }); ok && c.HashChecked() {
			s.checked.Add(1)
		} else {
			s.unchecked.Add(1)
		}
	}
	return s.Store.Put(ctx, reference, blks)
}

// Fetch compares each block with its hash unless the source has done so. It tells the store that each hash was
// checked. Wrong bytes of a source that does not check fail the fetch.
func TestEveryHashIsCheckedExactlyOnce(t *testing.T) {
	want := newTree(t, cid.DagProtobuf, 12, 2, 20)
	for _, does := range []bool{false, true} {
		here := &said{Store: peertest.NewStore().DAGStore()}
		src := &hashing{source: source{from: want.store}, is: does}
		if _, err := Fetch(t.Context(), FetchRequest{Root: want.root, Reference: "pin", Store: here, Sources: []Source{src}}); err != nil {
			t.Fatal(err)
		}
		if yes, no := here.checked.Load(), here.unchecked.Load(); no != 0 || yes != int64(want.count) {
			t.Errorf("source checks %t: %d blocks are said to be checked and %d not, want %d and 0", does, yes, no, want.count)
		}
	}
	spoilt := &hashing{source: source{from: want.store, spoil: true}}
	_, err := Fetch(t.Context(), FetchRequest{
		Root: want.root, Reference: "pin", Store: peertest.NewStore().DAGStore(), Sources: []Source{spoilt},
		Limits: Limits{Idle: 100 * time.Millisecond},
	})
	if err == nil {
		t.Error("a source that does not check is believed")
	}
}

// Fetch without a source and without the blocks fails with ErrNotFound. Private content is asked of members, and
// there may be none.
func TestFetchWithNobodyToAskEnds(t *testing.T) {
	want := newTree(t, cid.DagProtobuf, 10, 2, 1000)
	synctest.Test(t, func(t *testing.T) {
		_, err := Fetch(t.Context(), FetchRequest{Root: want.root, Reference: "pin", Store: peertest.NewStore().DAGStore(), Limits: Limits{Idle: time.Minute}})
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%v", err)
		}
	})
}
