package dag

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipfs/boxo/ipld/merkledag"
	"github.com/ipfs/boxo/ipld/unixfs"
	unixfsio "github.com/ipfs/boxo/ipld/unixfs/io"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"

	"github.com/holdfast-ipfs/holdfast/peer/peertest"
)

// lending is a store that lends, and that counts who reads at the same time.
type lending struct {
	*peertest.Store
	mu         sync.Mutex
	lent, most int
}

// Read implements Lender. It asks twice, as a store does that reads again.
func (l *lending) Read(ctx context.Context, c cid.Cid, lend func(int) []byte) ([]byte, error) {
	l.mu.Lock()
	l.lent++
	l.most = max(l.most, l.lent)
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.lent--
		l.mu.Unlock()
	}()
	b, err := l.Get(ctx, c)
	if err != nil {
		return nil, err
	}
	clear(lend(7 + len(b.RawData())))
	buf := lend(7 + len(b.RawData())) // with something before and behind
	copy(buf[3:], b.RawData())
	return buf[3 : 3+len(b.RawData())], nil
}

// shaper makes a file of any shape that a UnixFS file may have: leaves of both codecs,
// and with odd nodes that have bytes of their own, and children without any.
type shaper struct {
	tb    testing.TB
	store *peertest.Store
	rng   *rand.Rand
	odd   bool
}

func (m *shaper) keep(b blocks.Block) cid.Cid {
	if err := m.store.Blockstore.Put(m.tb.Context(), b); err != nil {
		m.tb.Fatal(err)
	}
	return b.Cid()
}

func (m *shaper) make(data []byte, depth int) (cid.Cid, uint64) {
	switch {
	case depth == 0 && m.rng.IntN(3) > 0:
		leaf, err := peertest.Block(cid.Raw, data)
		if err != nil {
			m.tb.Fatal(err)
		}
		return m.keep(leaf), uint64(len(data))
	case depth == 0:
		return m.keep(node(m.tb, cid.DagProtobuf, unixfs.FilePBData(data, uint64(len(data))))), uint64(len(data))
	}
	fs := unixfs.NewFSNode(unixfs.TFile)
	own := 0
	if m.odd && m.rng.IntN(4) == 0 {
		own = m.rng.IntN(len(data) + 1)
	}
	fs.SetData(data[:own])
	n := merkledag.NodeWithData(nil)
	rest := data[own:]
	for i, children := 0, 1+m.rng.IntN(5); i < children; i++ {
		size := len(rest)
		if i < children-1 {
			size = m.rng.IntN(len(rest) + 1)
		}
		if size == 0 && !m.odd {
			continue
		}
		if m.odd && m.rng.IntN(8) == 0 && i < children-1 {
			size = 0
		}
		c, bytes := m.make(rest[:size], m.rng.IntN(depth))
		rest = rest[size:]
		if err := n.AddRawLink("", &ipld.Link{Cid: c, Size: bytes}); err != nil {
			m.tb.Fatal(err)
		}
		fs.AddBlockSize(bytes)
	}
	return m.file(n, fs), uint64(len(data))
}

// file keeps a node with what UnixFS says of it.
func (m *shaper) file(n *merkledag.ProtoNode, fs *unixfs.FSNode) cid.Cid {
	raw, err := fs.GetBytes()
	if err != nil {
		m.tb.Fatal(err)
	}
	n.SetData(raw)
	return m.keep(n)
}

// flat makes a file of leaves of a size.
func (m *shaper) flat(data []byte, size int) cid.Cid {
	var leaves []cid.Cid
	for at := 0; at < len(data); at += size {
		leaves = append(leaves, m.keep(node(m.tb, cid.Raw, data[at:at+size])))
	}
	return m.parent(leaves, slices.Repeat([]uint64{uint64(size)}, len(leaves))...)
}

// parent makes a node of children that it says have so many bytes of the file.
func (m *shaper) parent(children []cid.Cid, sizes ...uint64) cid.Cid {
	fs, n := unixfs.NewFSNode(unixfs.TFile), merkledag.NodeWithData(nil)
	for _, c := range children {
		if err := n.AddRawLink("", &ipld.Link{Cid: c}); err != nil {
			m.tb.Fatal(err)
		}
	}
	for _, size := range sizes {
		fs.AddBlockSize(size)
	}
	return m.file(n, fs)
}

// A File of any shape that UnixFS allows returns the right bytes after any mix of Seek, Read and WriteTo. It reads at
// most readAhead blocks at once, and none after Close.
func TestAnyFileIsReadAnywhere(t *testing.T) {
	var all Buffers // of all files
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m := &shaper{t, peertest.NewStore(), rng, true}
		data := peertest.Bytes(seed, rng.IntN(40_000))
		root, _ := m.make(data, rng.IntN(5))
		store := &lending{Store: m.store}
		var from Getter = store
		if seed%3 == 0 {
			from = m.store
		}
		f, err := all.Open(t.Context(), from, root)
		if err != nil {
			t.Fatal(err)
		}
		if f.Size() != uint64(len(data)) {
			t.Fatalf("seed %d: %d bytes, want %d", seed, f.Size(), len(data))
		}
		at := 0
		for range 40 {
			switch rng.IntN(4) {
			case 0:
				at = rng.IntN(len(data) + 100)
				if to, err := f.Seek(int64(at), io.SeekStart); err != nil || to != int64(at) {
					t.Fatalf("seed %d: at %d, want %d: %v", seed, to, at, err)
				}
			case 1:
				step := min(rng.IntN(300), max(0, len(data)-at))
				to, err := f.Seek(int64(step), io.SeekCurrent)
				if at += step; err != nil || to != int64(at) {
					t.Fatalf("seed %d: at %d, want %d: %v", seed, to, at, err)
				}
			case 2:
				got := make([]byte, rng.IntN(9_000))
				n, err := io.ReadFull(f, got)
				want := data[min(at, len(data)):min(at+len(got), len(data))]
				if !bytes.Equal(got[:n], want) || n == len(got) && err != nil {
					t.Fatalf("seed %d: %d bytes at %d, want %d: %v", seed, n, at, len(want), err)
				}
				at += n
			case 3:
				var out bytes.Buffer
				if _, err := f.WriteTo(&out); err != nil || !bytes.Equal(out.Bytes(), data[min(at, len(data)):]) {
					t.Fatalf("seed %d: the rest from %d: %d bytes, %v", seed, at, out.Len(), err)
				}
				at = max(at, len(data))
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Read(make([]byte, 1)); err == nil && len(data) > 0 {
			t.Fatalf("seed %d: read after Close", seed)
		}
		if store.most > readAhead || store.lent > 0 {
			t.Fatalf("seed %d: %d blocks read at once, %d are", seed, store.most, store.lent)
		}
	}
}

// A File and the reference reader of UnixFS return the same bytes and size. The reference reader stops at what is
// odd, so the files here are not.
func TestTheReferenceReadsTheSame(t *testing.T) {
	for seed := range uint64(20) {
		m := &shaper{t, peertest.NewStore(), rand.New(rand.NewPCG(seed, 2)), false}
		data := peertest.Bytes(seed, 10_000)
		root, _ := m.make(data, 4)
		f, err := Open(t.Context(), m.store, root)
		if err != nil {
			t.Fatal(err)
		}
		n, err := (reference{m.store}).Get(t.Context(), root)
		if err != nil {
			t.Fatal(err)
		}
		r, err := unixfsio.NewDagReader(t.Context(), n, reference{m.store})
		if err != nil {
			t.Fatal(err)
		}
		want, err := io.ReadAll(r)
		if err != nil || r.Size() != f.Size() {
			t.Fatal(err, r.Size(), f.Size())
		}
		if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, want) || !bytes.Equal(got, data) {
			t.Errorf("seed %d: %d bytes, the reference %d of %d, %v", seed, len(got), len(want), len(data), err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// reference gives nodes to the reference reader.
type reference struct{ from *peertest.Store }

func (r reference) Get(ctx context.Context, c cid.Cid) (ipld.Node, error) {
	b, err := r.from.Get(ctx, c)
	if err != nil {
		return nil, err
	}
	if c.Prefix().Codec == cid.Raw {
		return merkledag.DecodeRawBlock(b)
	}
	return merkledag.DecodeProtobufBlock(b)
}

func (r reference) GetMany(ctx context.Context, cids []cid.Cid) <-chan *ipld.NodeOption {
	out := make(chan *ipld.NodeOption, len(cids))
	defer close(out)
	for _, c := range cids {
		n, err := r.Get(ctx, c)
		out <- &ipld.NodeOption{Node: n, Err: err}
	}
	return out
}

// A read of 1,000 bytes after a Seek reads the root and one leaf.
func TestAShortRangeReadsOneLeaf(t *testing.T) {
	s, root := importBytes(t, peertest.Bytes(1, 6*ChunkSize))
	l := &counting{Store: s}
	f, err := Open(t.Context(), l, root)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Seek(3*ChunkSize+5, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(f, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if n := l.gets.Load(); n != 2 { // with the root
		t.Errorf("read %d blocks", n)
	}
}

// counting counts the blocks that were asked for.
type counting struct {
	*peertest.Store
	gets atomic.Int64
}

func (c *counting) Get(ctx context.Context, k cid.Cid) (blocks.Block, error) {
	c.gets.Add(1)
	return c.Store.Get(ctx, k)
}

// Files read ahead only while there are places, and give places back when they seek away, end or are closed.
func TestReadingAheadIsBounded(t *testing.T) {
	data := peertest.Bytes(5, 20*ChunkSize+99)
	s, root := importBytes(t, data)
	all := NewBuffers(3)
	begin := func() (*File, func(want int64, what string)) {
		t.Helper()
		from := &counting{Store: s}
		f, err := all.Open(t.Context(), from, root)
		if err != nil {
			t.Fatal(err)
		}
		f.window = readAhead
		if _, err := io.ReadFull(f, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		return f, func(want int64, what string) {
			t.Helper()
			f.reads.Wait()
			if n := from.gets.Load() - 1; n != want { // but the root
				t.Errorf("%d leaves for the first bytes of %s, want %d", n, what, want)
			}
		}
	}
	first, asked := begin()
	asked(4, "a file")
	second, asked := begin()
	asked(1, "a file that finds no place")
	for _, at := range []int64{15 * ChunkSize, 0} {
		if _, err := second.Seek(at, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(second); err != nil || !bytes.Equal(got, data[at:]) {
			t.Errorf("%d bytes from %d on: %v", len(got), at, err)
		}
	}
	if _, err := first.Seek(0, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	third, asked := begin()
	asked(4, "a file that has the places of one that went elsewhere")
	if got, err := io.ReadAll(third); err != nil || !bytes.Equal(got, data[10:]) {
		t.Errorf("%d bytes: %v", len(got), err)
	}
	if err := errors.Join(first.Close(), second.Close(), third.Close()); err != nil {
		t.Fatal(err)
	}
	if n := len(all.ahead); n > 0 {
		t.Errorf("%d places are taken, and no file is open", n)
	}
}

// paced is a store whose leaves take a while, and that counts who reads at the same time.
type paced struct {
	lending
	takes time.Duration
}

// Read implements Lender.
func (p *paced) Read(ctx context.Context, c cid.Cid, lend func(int) []byte) ([]byte, error) {
	return p.lending.Read(ctx, c, func(bytes int) []byte {
		timer := time.NewTimer(p.takes / 2) // lend is called twice
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return lend(bytes)
	})
}

// A File reads more blocks ahead the later they arrive, up to readAhead, and none ahead if they are here.
func TestBlocksAreReadAheadAsLateAsTheyCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const leaves, bytes = 400, 10
		m := &shaper{t, peertest.NewStore(), rand.New(rand.NewPCG(1, 1)), false}
		data := peertest.Bytes(3, leaves*bytes)
		from := &paced{lending: lending{Store: m.store}}
		f, err := Open(t.Context(), from, m.flat(data, bytes))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		// read reads leaves, each of which is used for a while, and returns how many were
		// read at the same time for the last of them.
		read := func(count int, takes, used time.Duration) int {
			t.Helper()
			from.takes = takes
			for i := range count {
				if i == count-1 {
					f.reads.Wait()
					from.most = 0
				}
				at := f.at
				got := make([]byte, bytes)
				if _, err := io.ReadFull(f, got); err != nil || string(got) != string(data[at:at+bytes]) {
					t.Fatalf("%q at %d: %v", got, at, err)
				}
				timer := time.NewTimer(used)
				<-timer.C
			}
			f.reads.Wait()
			return from.most
		}
		if n := read(50, lateAfter/2, 0); n != 1 || f.window != 1 {
			t.Errorf("%d leaves that are here are read at the same time, the window is %d", n, f.window)
		}
		if read(20, 100*lateAfter, 0); f.window != readAhead {
			t.Errorf("leaves come late, and the window is %d", f.window)
		}
		if read(5*lessAfter, 10*lateAfter, 6*lateAfter); f.window < 2 || f.window > 5 {
			t.Errorf("leaves that take a little longer than they are used, and the window is %d", f.window)
		}
		if n := read(readAhead*lessAfter, 0, 100*lateAfter); n > 1 || f.window != 1 {
			t.Errorf("%d leaves that are there long before are read at the same time, the window is %d", n, f.window)
		}
	})
}

// A File of several levels takes no place after Close, though it reads inner nodes ahead as well.
func TestPlacesOfInnerNodesAreGivenBack(t *testing.T) {
	for _, leaves := range []int{4, 30, 174} {
		synctest.Test(t, func(t *testing.T) {
			const inner, bytes = 20, 10
			m := &shaper{t, peertest.NewStore(), rand.New(rand.NewPCG(1, 1)), false}
			data := peertest.Bytes(3, inner*leaves*bytes)
			var nodes []cid.Cid
			for at := 0; at < len(data); at += leaves * bytes {
				nodes = append(nodes, m.flat(data[at:at+leaves*bytes], bytes))
			}
			all := NewBuffers(64)
			from := &paced{lending: lending{Store: m.store}, takes: 10 * lateAfter}
			f, err := all.Open(t.Context(), from, m.parent(nodes, slices.Repeat([]uint64{uint64(leaves * bytes)}, inner)...))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(f); err != nil || string(got) != string(data) {
				t.Fatalf("%d bytes of %d: %v", len(got), len(data), err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if n := len(all.ahead); n > 0 {
				t.Errorf("%d leaves below each: %d places are taken, and no file is open", leaves, n)
			}
		})
	}
}

// A file whose blocks are missing or contradict its sizes ends in an error of their kind. The bytes before the bad
// block can be read.
func TestAFileThatIsNotWhatItSaysEndsInAnError(t *testing.T) {
	s := peertest.NewStore()
	m := &shaper{t, s, rand.New(rand.NewPCG(1, 1)), false}
	leaf := m.keep(node(t, cid.Raw, []byte("hello")))
	gone := node(t, cid.Raw, []byte("away!")).Cid()
	inner := m.parent
	for _, tc := range []struct {
		name string
		root cid.Cid
		open bool // it fails when it is opened
		want error
	}{
		{"more than the leaf has", inner([]cid.Cid{leaf, leaf}, 5, 6), false, ErrInvalidBlock},
		{"less than the leaf has", inner([]cid.Cid{leaf, leaf}, 5, 4), false, ErrInvalidBlock},
		{"a child with other sizes", inner([]cid.Cid{leaf, inner([]cid.Cid{leaf}, 5)}, 5, 6), false, ErrInvalidBlock},
		{"too few sizes", inner([]cid.Cid{leaf, leaf}, 5), true, ErrInvalidBlock},
		{"too many sizes", inner([]cid.Cid{leaf}, 5, 5), true, ErrInvalidBlock},
		{"more than can be counted", inner([]cid.Cid{leaf, leaf}, 5, 1<<64-2), true, ErrInvalidBlock},
		{"a directory below", inner([]cid.Cid{leaf, m.keep(node(t, cid.DagProtobuf, unixfs.FolderPBData()))}, 5, 5), false, ErrIsDirectory},
		{"a block that is not there", inner([]cid.Cid{leaf, gone}, 5, 5), false, ipld.ErrNotFound{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, err := Open(t.Context(), &lending{Store: s}, tc.root)
			if tc.open || err != nil {
				if !tc.open || !errors.Is(err, tc.want) {
					t.Errorf("%v, want %v", err, tc.want)
				}
				return
			}
			defer f.Close()
			for range 2 { // it stays so
				got, err := io.ReadAll(f)
				if !errors.Is(err, tc.want) || len(got) > 5 {
					t.Errorf("%q, %v, want %v", got, err, tc.want)
				}
			}
			if _, err := f.Seek(1, io.SeekStart); err != nil {
				t.Fatal(err)
			}
			if got := make([]byte, 4); func() error { _, err := io.ReadFull(f, got); return err }() != nil || string(got) != "ello" {
				t.Errorf("the part before: %q", got)
			}
		})
	}
}

// Read ends with the error of the context of Open while a block does not arrive, and Close succeeds.
func TestReadingEndsWithItsContext(t *testing.T) {
	s, root := importBytes(t, peertest.Bytes(1, 3*ChunkSize))
	ctx, cancel := context.WithCancel(t.Context())
	f, err := Open(ctx, stuck{s}, root)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := f.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// stuck has leaves that never come.
type stuck struct{ *peertest.Store }

func (s stuck) Get(ctx context.Context, c cid.Cid) (blocks.Block, error) {
	if c.Prefix().Codec == cid.Raw {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.Get(ctx, c)
}

// Whatever a node holds, it is read or refused.
func FuzzOpen(f *testing.F) {
	fs := unixfs.NewFSNode(unixfs.TFile)
	fs.SetData([]byte("some"))
	raw, err := fs.GetBytes()
	if err != nil {
		f.Fatal(err)
	}
	n := merkledag.NodeWithData(raw)
	f.Add(n.RawData())
	if err := n.AddRawLink("", &ipld.Link{Cid: n.Cid(), Size: 4}); err != nil {
		f.Fatal(err)
	}
	fs.AddBlockSize(4)
	if raw, err = fs.GetBytes(); err != nil {
		f.Fatal(err)
	}
	n.SetData(raw)
	f.Add(n.RawData())
	f.Fuzz(func(t *testing.T, data []byte) {
		s := peertest.NewStore()
		c, err := cid.V1Builder{Codec: cid.DagProtobuf, MhType: 0x12}.Sum(data)
		if err != nil {
			t.Fatal(err)
		}
		b, err := blocks.NewBlockWithCid(data, c)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Blockstore.Put(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		file, err := Open(t.Context(), s, c)
		if err != nil {
			return
		}
		defer file.Close()
		n, err := io.Copy(io.Discard, file)
		if err == nil && uint64(n) != file.Size() {
			t.Errorf("%d bytes of %d", n, file.Size())
		}
	})
}

// Buffers.Get returns less than twice as many bytes as asked for. Memory for leaves of the usual sizes is used again.
// A caller that bounds its memory counts the bytes that it wants. Grow keeps memory that is large enough.
func TestBuffersHaveTheUsualSizes(t *testing.T) {
	var b Buffers
	for bytes := 1; bytes <= ChunkSize+2*besideLeaf; bytes += 251 {
		if got := len(*b.Get(bytes)); got < bytes || got >= 2*bytes && got != bytes {
			t.Fatalf("%d bytes for %d", got, bytes)
		}
	}
	for _, leaf := range []int{64 << 10, 256 << 10, ChunkSize} {
		for _, bytes := range []int{leaf, leaf + 100, leaf + besideLeaf} {
			pool, size := b.of(bytes)
			if again, _ := b.of(size); pool == nil || again != pool {
				t.Errorf("memory of %d bytes is not used again", bytes)
			}
		}
	}
	small := b.Get(64 << 10)
	if b.Grow(small, 1000) != small {
		t.Error("memory that is large enough is changed for another")
	}
	if got := b.Grow(small, ChunkSize); len(*got) < ChunkSize {
		t.Errorf("grown to %d bytes", len(*got))
	}
}
