package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/peer/dag"
	block "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
	"golang.org/x/sync/semaphore"
)

// bytesOf are n bytes, the same for a seed.
func bytesOf(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b) // never fails
	return b
}

// store stands in for the block store of a node.
type store struct {
	mu         sync.Mutex
	references map[string]map[cid.Cid]block.Block
	sealed     map[string][2]uint64 // bytes, blocks
	hidden     map[string]bool
	judge      func(reference string) bool // as it is sealed; nil: nothing is hidden
	looks      int                         // calls of Hide
	hook       func(ctx context.Context, op, reference string) error
	puts       int // blocks that were given to Put and PutAndSeal
}

func newStore() *store {
	return &store{references: map[string]map[cid.Cid]block.Block{}, sealed: map[string][2]uint64{}, hidden: map[string]bool{}}
}

// before has fn called before every operation.
func (s *store) before(fn func(ctx context.Context, op, reference string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = fn
}

func (s *store) enter(ctx context.Context, op, reference string) error {
	s.mu.Lock()
	fn := s.hook
	s.mu.Unlock()
	if fn != nil {
		if err := fn(ctx, op, reference); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (s *store) under(reference string) map[cid.Cid]block.Block {
	m := s.references[reference]
	if m == nil {
		m = map[cid.Cid]block.Block{}
		s.references[reference] = m
	}
	return m
}

// own returns a block in memory of its own: that of blocks that were put is used again.
func own(b block.Block) block.Block {
	c, err := block.NewBlockWithCid(bytes.Clone(b.RawData()), b.Cid())
	if err != nil {
		panic(err) // its hash is not looked at
	}
	return c
}

func (s *store) Put(ctx context.Context, reference string, blks []block.Block) error {
	if err := s.enter(ctx, "put", reference); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(reference, blks)
	return nil
}

// take stores blocks; one that other references have is one with theirs.
func (s *store) take(reference string, blks []block.Block) {
	for _, b := range blks {
		good := own(b)
		s.under(reference)[b.Cid()] = good
		for _, of := range s.references {
			if of[b.Cid()] != nil {
				of[b.Cid()] = good
			}
		}
		s.puts++
	}
}

func (s *store) PutAndSeal(ctx context.Context, reference string, blks []block.Block, n, count uint64) (bool, error) {
	hidden := s.private(reference)
	if err := s.enter(ctx, "put and seal", reference); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(reference, blks)
	s.sealed[reference], s.hidden[reference] = [2]uint64{n, count}, hidden
	return hidden, nil
}

// rot makes a stored block another one, with the same name.
func (s *store) rot(c cid.Cid) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, blks := range s.references {
		if b := blks[c]; b != nil && len(b.RawData()) > 0 {
			bad := bytes.Clone(b.RawData())
			bad[len(bad)/2] ^= 1
			blks[c], _ = block.NewBlockWithCid(bad, c)
		}
	}
}

func (s *store) Verify(ctx context.Context, blks []block.Block) (all bool, err error) {
	if err := s.enter(ctx, "verify", ""); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all = true
	for _, b := range blks {
		here := false
		for _, of := range s.references {
			if got := of[b.Cid()]; got != nil {
				here = bytes.Equal(got.RawData(), b.RawData())
			}
		}
		all = all && here
	}
	return all, nil
}

func (s *store) private(reference string) bool { return s.judge != nil && s.judge(reference) }

func (s *store) Reference(ctx context.Context, reference string) (bool, uint64, uint64, bool, error) {
	if err := s.enter(ctx, "reference", reference); err != nil {
		return false, 0, 0, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, sealed := s.sealed[reference]
	_, ok := s.references[reference]
	return sealed, v[0], v[1], ok || sealed, nil
}

func (s *store) References(_ context.Context, prefix string, fn func(string, bool) (bool, error)) error {
	s.mu.Lock()
	all := slices.Sorted(maps.Keys(s.references))
	s.mu.Unlock()
	for _, reference := range all {
		if strings.HasPrefix(reference, prefix) {
			if more, err := fn(reference, false); !more || err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *store) Seal(ctx context.Context, reference string, n, count uint64) (bool, error) {
	hidden := s.private(reference)
	if err := s.enter(ctx, "seal", reference); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed[reference], s.hidden[reference] = [2]uint64{n, count}, hidden
	return hidden, nil
}

func (s *store) Hide(_ context.Context, reference string, hidden bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	if _, sealed := s.sealed[reference]; sealed {
		s.hidden[reference] = hidden
	}
	return nil
}

func (s *store) Drop(ctx context.Context, reference string) error {
	if err := s.enter(ctx, "drop", reference); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.references, reference)
	delete(s.sealed, reference)
	delete(s.hidden, reference)
	return nil
}

func (s *store) Get(_ context.Context, c cid.Cid) (block.Block, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.references {
		if b := m[c]; b != nil {
			return b, nil
		}
	}
	return nil, ipld.ErrNotFound{Cid: c}
}

func (s *store) Adopt(ctx context.Context, reference string, cids []cid.Cid) (missing []cid.Cid, err error) {
	if err := s.enter(ctx, "adopt", reference); err != nil {
		return nil, err
	}
	for _, c := range cids {
		b, err := s.Get(ctx, c)
		if err != nil {
			missing = append(missing, c)
			continue
		}
		s.mu.Lock()
		s.under(reference)[c] = b
		s.mu.Unlock()
	}
	return missing, nil
}

func (s *store) TakeOver(ctx context.Context, reference string, cids []cid.Cid) (bytes uint64, missing []cid.Cid, err error) {
	if missing, err = s.Adopt(ctx, reference, cids); err != nil {
		return 0, nil, err
	}
	for _, c := range cids {
		if b, err := s.Get(ctx, c); err == nil {
			bytes += uint64(len(b.RawData()))
		}
	}
	return bytes, missing, nil
}

// arriving returns the references of puts.
func (s *store) arriving() (references []string) {
	_ = s.References(context.Background(), ReferencePrefix, func(reference string, _ bool) (bool, error) {
		references = append(references, reference)
		return true, nil
	})
	return references
}

// leases counts.
type leases struct {
	mu     sync.Mutex
	roots  map[state.RootKey]int
	owing  int // that have not been told how their roots were sealed
	fenced bool
}

func (g *leases) Begin(ctx context.Context, root state.RootKey) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	g.roots[root]++
	g.owing++
	return nil
}

func (g *leases) Sealed(root state.RootKey, _ bool) { g.Found(root) }

func (g *leases) Found(root state.RootKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.roots[root] == 0 {
		panic("sealed content has no lease")
	}
	g.owing--
}

func (g *leases) End(root state.RootKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.roots[root]--; g.roots[root] == 0 {
		delete(g.roots, root)
	} else if g.roots[root] < 0 {
		panic("a lease ends twice")
	}
}

func (g *leases) Fenced() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fenced = true
}

func (g *leases) count() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, v := range g.roots {
		n += v
	}
	return n
}

// fences is a node's record of its epoch.
type fences struct {
	mu    sync.Mutex
	epoch uint64
	err   error
}

func (f *fences) Epoch(context.Context) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.epoch, f.err
}

func (f *fences) Raise(_ context.Context, epoch uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.epoch = max(f.epoch, epoch)
	}
	return f.err
}

func (f *fences) now() uint64 { e, _ := f.Epoch(context.Background()); return e }

func (f *fences) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// builder is what the node gives ingest to make blocks with.
type builder struct{ *dag.Buffers }

func (builder) Leaf(data, sum []byte) (block.Block, error) { return dag.LeafOf(data, sum) }

// lent is a builder whose memory holds something else once it has been given back, so
// that whoever still reads it is found.
type lent struct{ builder }

func spoil(data []byte) {
	for len(data) > 0 { // at once: byte by byte it was a tenth of what the package takes under -race
		data = data[copy(data, spoilt):]
	}
}

var spoilt = bytesOf(0xa5, 64<<10)

func (m lent) Put(buf *[]byte) {
	spoil(*buf)
	m.Buffers.Put(buf)
}

func (m lent) Import(ctx context.Context, r io.Reader, batch int, put func([]block.Block, func()) error) (cid.Cid, uint64, error) {
	return m.Buffers.Import(ctx, r, batch, func(blks []block.Block, free func()) error {
		return put(blks, func() {
			for _, b := range blks {
				if len(b.RawData()) == ChunkSize {
					spoil(b.RawData())
				}
			}
			free()
		})
	})
}

func (builder) Join(parts []File) (cid.Cid, []block.Block, error) {
	all := make([]dag.Part, len(parts))
	for i, p := range parts {
		all[i] = dag.Part(p)
	}
	return dag.Join(all)
}

type address string

func (address) Network() string  { return "test" }
func (a address) String() string { return string(a) }

// wire is one side of a stream.
type wire struct {
	net.Conn // to write to
	in       net.Conn
	remote   address
	deaf     bool // Close does not say that nothing more is read, as with streams of libp2p: what the other side writes waits
}

// newWires returns both sides of a stream, as a and b see it.
func newWires(a, b *node) (here, there *wire) {
	toB, fromA := net.Pipe()
	toA, fromB := net.Pipe()
	return &wire{toB, fromB, address(b.id), a.deaf}, &wire{toA, fromA, address(a.id), b.deaf}
}

func (w *wire) RemoteAddr() net.Addr              { return w.remote }
func (w *wire) Read(b []byte) (int, error)        { return w.in.Read(b) }
func (w *wire) SetReadDeadline(t time.Time) error { return w.in.SetReadDeadline(t) }
func (w *wire) SetDeadline(t time.Time) error {
	return errors.Join(w.in.SetDeadline(t), w.Conn.SetDeadline(t))
}

// Close implements net.Conn.
func (w *wire) Close() error {
	if !w.deaf {
		w.cut()
		return nil
	}
	return errors.Join(w.in.SetReadDeadline(time.Unix(1, 0)), w.Conn.Close())
}

// cut ends both directions.
func (w *wire) cut() {
	_ = w.in.Close()
	_ = w.Conn.Close()
}

type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *listener) Addr() net.Addr { return address("test") }

// node is one member.
type node struct {
	*Ingest
	w      *world
	id     state.NodeID
	store  *store
	leases *leases
	fences *fences
	stop   func() // ends the node as a crash does, once
	leave  func() // ends it in order
	deaf   bool   // see wire

	mu       sync.Mutex
	listener *listener
	wires    []*wire
	dials    int
}

// Dial implements Network.
func (n *node) Dial(_ context.Context, to, proto string) (net.Conn, error) {
	n.mu.Lock()
	n.dials++
	n.mu.Unlock()
	other := n.w.nodes[state.NodeID(to)]
	if other == nil || proto != Protocol {
		return nil, errors.New("nobody there")
	}
	other.mu.Lock()
	l := other.listener
	other.mu.Unlock()
	if l == nil {
		return nil, errors.New("connection refused")
	}
	here, there := newWires(n, other)
	for _, end := range []struct {
		of *node
		c  *wire
	}{{n, here}, {other, there}} {
		end.of.mu.Lock()
		end.of.wires = append(end.of.wires, end.c)
		end.of.mu.Unlock()
	}
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		return nil, errors.New("connection refused")
	}
}

// Listen implements Network.
func (n *node) Listen(string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listener = &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
	return n.listener, nil
}

// cut breaks all streams of a node.
func (n *node) cut() {
	n.mu.Lock()
	wires := n.wires
	n.wires = nil
	n.mu.Unlock()
	for _, c := range wires {
		c.cut()
	}
}

// source is another node's store, as somewhere to fetch from.
type source struct{ n *node }

func (s source) Name() string { return string(s.n.id) }

func (s source) Blocks(ctx context.Context, cids []cid.Cid, fn func(block.Block) error) (missing []cid.Cid, err error) {
	for _, c := range cids {
		b, err := s.n.store.Get(ctx, c)
		if err != nil {
			missing = append(missing, c)
		} else if err := fn(b); err != nil {
			return missing, err
		}
	}
	return missing, nil
}

// Fetch implements Fetcher.
func (n *node) Fetch(ctx context.Context, root cid.Cid, reference string, members []state.NodeID) (uint64, uint64, error) {
	var sources []dag.Source
	for _, id := range members {
		if other := n.w.nodes[id]; other != nil && id != n.id {
			sources = append(sources, source{other})
		}
	}
	got, err := dag.Fetch(ctx, dag.FetchRequest{Root: root, Reference: reference, Store: n.store, Sources: sources})
	return got.Bytes, got.Blocks, err
}

// world is a cluster in a synctest bubble, which also finds goroutines that are left.
type world struct {
	testing.TB
	nodes map[state.NodeID]*node
	all   []state.NodeID
}

// bubble runs fn with a cluster of n nodes, a, b, c and so on.
func bubble(t *testing.T, n int, fn func(w *world), tune ...func(*Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{TB: t, nodes: map[state.NodeID]*node{}}
		for k := range n {
			id := state.NodeID(rune('a' + k))
			w.all = append(w.all, id)
			w.nodes[id] = &node{w: w, id: id, store: newStore(), fences: &fences{epoch: uint64(10 * k)}}
		}
		for _, id := range w.all {
			w.nodes[id].start(tune...)
		}
		fn(w)
		for _, id := range w.all {
			w.nodes[id].stop()
		}
	})
}

// start runs a node, as a process that has just started.
func (n *node) start(tune ...func(*Options)) {
	n.leases = &leases{roots: map[state.RootKey]int{}}
	buffers := lent{builder{new(dag.Buffers)}}
	o := Options{
		Self: n.id, Blocks: n.store, Fetcher: n, DAGs: buffers, Buffers: buffers, Leases: n.leases, Fences: n.fences, Network: n,
		Reference: func(k state.RootKey) string { return "root/" + k.String() }, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	}
	for _, fn := range tune {
		fn(&o)
	}
	n.Ingest = New(o)
	if err := n.DropLeftovers(context.Background()); err != nil {
		n.w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	stopped := false
	n.stop = func() {
		if stopped {
			return
		}
		n.cut()
		n.leave()
	}
	n.leave = func() {
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			n.w.Errorf("Run of %s: %v", n.id, err)
		}
		n.mu.Lock()
		n.listener = nil
		n.mu.Unlock()
	}
	synctest.Wait()
}

func (w *world) node(id state.NodeID) *node { return w.nodes[id] }

// wantKept checks that nodes keep what was stored, and nobody else does.
func (w *world) wantKept(s *Stored, data []byte, nodes ...state.NodeID) {
	w.Helper()
	for _, id := range w.all {
		n := w.nodes[id]
		reference := "root/" + s.Content.Root.String()
		n.store.mu.Lock()
		size, sealed := n.store.sealed[reference]
		blks := maps.Clone(n.store.references[reference])
		n.store.mu.Unlock()
		if sealed != slices.Contains(nodes, id) {
			w.Errorf("node %s: sealed %t", id, sealed)
			continue
		}
		if !sealed {
			continue
		}
		if size != [2]uint64{s.Content.Bytes, s.Content.Blocks} || uint64(len(blks)) != s.Content.Blocks {
			w.Errorf("node %s: %d blocks, sealed as %v, told %d and %d", id, len(blks), size, s.Content.Bytes, s.Content.Blocks)
		}
		f, err := dag.Open(context.Background(), n.store, s.Content.Root.Cid())
		if err != nil {
			w.Fatal(err)
		}
		got, err := io.ReadAll(f)
		if err := errors.Join(err, f.Close()); err != nil {
			w.Error(err)
		}
		if !bytes.Equal(got, data) {
			w.Errorf("node %s: %d other bytes", id, len(got))
		}
	}
}

// wantClean checks that nothing of any put is left but what is sealed, once
// everything has come to rest.
func (w *world) wantClean() {
	w.Helper()
	<-time.After(2 * cutTimeout)
	synctest.Wait()
	for _, id := range w.all {
		n := w.nodes[id]
		if left := n.store.arriving(); len(left) > 0 {
			w.Errorf("node %s: %v is left", id, left)
		}
		if g := n.leases.count(); g > 0 {
			w.Errorf("node %s: %d leases are left", id, g)
		}
		for name, m := range map[string]struct {
			*semaphore.Weighted
			all int64
		}{"first pieces": {n.bodies.first.room, n.bodies.first.size}, "bodies": {n.bodies.rest.room, n.bodies.rest.size}, "arriving": {n.arriving, n.opts.Arriving}, "late nodes": {n.late, n.opts.Memory / latePart}} {
			if !m.TryAcquire(m.all) {
				w.Errorf("node %s: memory of %s is not given back", id, name)
				continue
			}
			m.Release(m.all)
		}
	}
}

func (w *world) wantLeases(want int) {
	w.Helper()
	<-time.After(2 * tellWithin)
	synctest.Wait()
	for _, id := range w.all {
		if got := w.nodes[id].leases.count(); got != want {
			w.Errorf("node %s: %d leases, want %d", id, got, want)
		}
	}
}

// wantTold checks that all leases know what became of their roots.
func (w *world) wantTold() {
	w.Helper()
	for _, id := range w.all {
		g := w.nodes[id].leases
		g.mu.Lock()
		if g.owing != 0 {
			w.Errorf("node %s: %d leases were not told how their roots were sealed", id, g.owing)
		}
		g.mu.Unlock()
	}
}

func wantCode(t testing.TB, err error, want *state.Error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

// sizes are of bodies that take each way.
var sizes = []int{0, 1000, ChunkSize, ChunkSize + 1, 8<<20 + 7}

func forSizes(t *testing.T, fn func(t *testing.T, data []byte)) {
	for _, n := range sizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) { fn(t, bytesOf(1, n)) })
	}
}
