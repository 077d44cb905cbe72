package peer

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/holdfast-ipfs/holdfast/peer/dag"
	"github.com/holdfast-ipfs/holdfast/peer/peertest"
)

func addBlocks(tb testing.TB, s *peertest.Store, n, size int) []cid.Cid {
	tb.Helper()
	cids := make([]cid.Cid, n)
	for i := range cids {
		b, err := peertest.Block(cid.Raw, peertest.Bytes(uint64(i), size))
		if err != nil {
			tb.Fatal(err)
		}
		if err := s.Blockstore.Put(tb.Context(), b); err != nil {
			tb.Fatal(err)
		}
		cids[i] = b.Cid()
	}
	return cids
}

// GetBlocks fetches all blocks that a member has, and returns those that the member lacks as missing. The bytes of
// each match its CID.
func TestMembersExchangeBlocks(t *testing.T) {
	peers, _ := newCluster(t, 2)
	cids := addBlocks(t, peers[1].store, 300, 10_000)
	absent, err := peertest.Block(cid.Raw, []byte("absent"))
	if err != nil {
		t.Fatal(err)
	}
	ask := slices.Insert(slices.Clone(cids), 100, absent.Cid())
	got := make(map[cid.Cid]bool)
	missing, err := peers[0].GetBlocks(t.Context(), peers[1].ID(), ask, func(b blocks.Block) error {
		if err := verify(b.Cid(), b.RawData()); err != nil {
			return err
		}
		got[b.Cid()] = true
		return nil
	})
	if err != nil || len(got) != len(cids) || !slices.Equal(missing, []cid.Cid{absent.Cid()}) {
		t.Fatalf("%d of %d blocks, missing %v, %v", len(got), len(cids), missing, err)
	}
}

// GetBlocksHearing calls its hear function once for each block that the member has, before it hands on that block. A
// block that the member lacks causes no call.
func TestABlockIsHeardBeforeItIsThere(t *testing.T) {
	peers, _ := newCluster(t, 2)
	cids := addBlocks(t, peers[1].store, 3, 10_000)
	absent, err := peertest.Block(cid.Raw, []byte("absent"))
	if err != nil {
		t.Fatal(err)
	}
	for _, ask := range [][]cid.Cid{cids, {absent.Cid()}} {
		var heard atomic.Int64
		got := int64(0)
		missing, err := peers[0].GetBlocksHearing(t.Context(), peers[1].ID(), ask, func() { heard.Add(1) }, func(blocks.Block) error {
			if got++; heard.Load() < got {
				t.Errorf("%d blocks came, and %d were heard", got, heard.Load())
			}
			return nil
		})
		if err != nil || got+int64(len(missing)) != int64(len(ask)) || heard.Load() != got {
			t.Errorf("%d blocks of %d, %d heard, missing %v, %v", got, len(ask), heard.Load(), missing, err)
		}
	}
}

// GetBlocks ends with the error of its function, and does not call the function again. It returns the blocks that it
// did not hand on as missing.
func TestGetBlocksEndsWithTheErrorOfItsFunction(t *testing.T) {
	peers, _ := newCluster(t, 2)
	cids := addBlocks(t, peers[1].store, 100, 100)
	full := errors.New("full")
	n := 0
	missing, err := peers[0].GetBlocks(t.Context(), peers[1].ID(), cids, func(blocks.Block) error {
		if n++; n > 10 {
			return full
		}
		return nil
	})
	if !errors.Is(err, full) || n != 11 || len(missing) != 90 {
		t.Fatalf("%d calls, %d missing, %v", n, len(missing), err)
	}
}

// rottenStore answers with bytes that do not match.
type rottenStore struct{ *peertest.Store }

func (rottenStore) Get(_ context.Context, c cid.Cid) (blocks.Block, error) {
	return blocks.NewBlockWithCid([]byte("rotten"), c)
}

// GetBlocks and ReadBlock return ErrBadBlock and no bytes if a member answers with bytes that do not match the CID.
func TestGetBlocksRefusesWrongBytes(t *testing.T) {
	peers, _ := newCluster(t, 2, func(o *Options) { o.Blocks = rottenStore{peertest.NewStore()} })
	b, err := peertest.Block(cid.Raw, []byte("good"))
	if err != nil {
		t.Fatal(err)
	}
	missing, err := peers[0].GetBlocks(t.Context(), peers[1].ID(), []cid.Cid{b.Cid()}, func(blocks.Block) error {
		t.Error("a wrong block was handed on")
		return nil
	})
	if !errors.Is(err, ErrBadBlock) || len(missing) != 1 {
		t.Fatal(missing, err)
	}
	if data, err := peers[0].ReadBlock(t.Context(), peers[1].ID(), b.Cid(), fresh); !errors.Is(err, ErrBadBlock) || data != nil {
		t.Fatal(data, err)
	}
}

// ReadBlock reads a block into the memory that its caller lends. It returns "not found" only if the member lacks the
// block.
func TestReadBlockReadsIntoLentMemory(t *testing.T) {
	peers, _ := newCluster(t, 2)
	cids := addBlocks(t, peers[1].store, 2, 10_000)
	memory := make([]byte, 16_384)
	lend := func(bytes int) []byte { return memory[:bytes] }
	for _, c := range cids {
		data, err := peers[0].ReadBlock(t.Context(), peers[1].ID(), c, lend)
		if err != nil || verify(c, data) != nil || &data[0] != &memory[0] {
			t.Fatalf("%d bytes, %v", len(data), err)
		}
	}
	absent, err := peertest.Block(cid.Raw, []byte("absent"))
	if err != nil {
		t.Fatal(err)
	}
	if data, err := peers[0].ReadBlock(t.Context(), peers[1].ID(), absent.Cid(), lend); !ipld.IsNotFound(err) {
		t.Errorf("an absent block: %d bytes, %v", len(data), err)
	}
	if data, err := peers[0].ReadBlock(t.Context(), peers[0].ID(), cids[0], lend); err == nil || ipld.IsNotFound(err) {
		t.Errorf("a member that cannot be asked: %d bytes, %v", len(data), err)
	}
}

// GetBlocks succeeds after the pooled streams of a member were reset, and after the pool has closed its idle streams.
// The pool keeps at most requestsAtOnce idle streams of a member.
func TestPooledStreamsAreReplacedWhenTheyDied(t *testing.T) {
	peers, _ := newCluster(t, 2)
	a, b := peers[0], peers[1]
	cids := addBlocks(t, b.store, 64, 100)
	pull := func() {
		t.Helper()
		n := 0
		if _, err := a.GetBlocks(t.Context(), b.ID(), cids, func(blocks.Block) error { n++; return nil }); err != nil || n != len(cids) {
			t.Fatal(n, err)
		}
	}
	pull()
	a.pool.mu.Lock()
	idle := len(a.pool.members[b.ID()].idle)
	a.pool.mu.Unlock()
	if idle == 0 || idle > requestsAtOnce {
		t.Fatalf("%d idle streams", idle)
	}
	for _, s := range streamsOf(a, b) {
		if err := s.Reset(); err != nil {
			t.Fatal(err)
		}
	}
	pull()
	a.pool.sweep(time.Now().Add(time.Hour))
	until(t, "idle streams to be closed", func() bool { return len(streamsOf(a, b)) == 0 })
	pull()
}

type resetter interface{ Reset() error }

func streamsOf(a, b testPeer) []resetter {
	var out []resetter
	for _, c := range b.cluster.Network().ConnsToPeer(a.id) {
		for _, s := range c.GetStreams() {
			if s.Protocol() == blocksProtocol {
				out = append(out, s)
			}
		}
	}
	return out
}

// GetBlocks ends with the error of its context while a member that has accepted the request does not answer.
func TestGetBlocksEndsWithItsContext(t *testing.T) {
	hang := &hangingStore{Store: peertest.NewStore(), release: make(chan struct{})}
	peers, _ := newCluster(t, 2, func(o *Options) { o.Blocks = hang })
	defer close(hang.release)
	b, err := peertest.Block(cid.Raw, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	hang.asked = sync.OnceFunc(cancel)
	missing, err := peers[0].GetBlocks(ctx, peers[1].ID(), []cid.Cid{b.Cid()}, func(blocks.Block) error { return nil })
	if !errors.Is(err, context.Canceled) || len(missing) != 1 {
		t.Fatal(missing, err)
	}
}

type hangingStore struct {
	*peertest.Store
	asked   func()
	release chan struct{}
}

func (h *hangingStore) Get(ctx context.Context, c cid.Cid) (blocks.Block, error) {
	h.asked()
	select {
	case <-h.release:
	case <-ctx.Done():
	}
	return h.Store.Get(ctx, c)
}

// The frames of block requests and responses have the bytes that earlier versions wrote. The bytes on the wire are a
// format between versions.
func TestBlockFramesKeepTheirBytes(t *testing.T) {
	b, err := peertest.Block(cid.Raw, []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	frame, err := appendRequest(nil, []cid.Cid{b.Cid(), b.Cid()})
	if err != nil {
		t.Fatal(err)
	}
	id := "2401551220" + "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	if got, want := hex.EncodeToString(frame), "0000004b"+"02"+id+id; got != want {
		t.Errorf("request %s\nwant    %s", got, want)
	}
	var out bytes.Buffer
	if err := writeBlock(&out, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if got, want := hex.EncodeToString(out.Bytes()), "01"+"00000005"+"68656c6c6f"; got != want {
		t.Errorf("response %s, want %s", got, want)
	}
	back, err := readRequest(bytes.NewReader(frame))
	if err != nil || !slices.Equal(back, []cid.Cid{b.Cid(), b.Cid()}) {
		t.Errorf("%v, %v", back, err)
	}
}

func FuzzBlockFrames(f *testing.F) {
	b, err := peertest.Block(cid.Raw, []byte("hello"))
	if err != nil {
		f.Fatal(err)
	}
	frame, err := appendRequest(nil, []cid.Cid{b.Cid()})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(frame)
	f.Add([]byte{0, 0, 0, 1, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{1, 0, 0, 0, 5, 'h', 'e', 'l', 'l', 'o'})
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		cids, err := readRequest(bytes.NewReader(data))
		if err == nil {
			again, err := appendRequest(nil, cids)
			if err != nil {
				t.Fatalf("read but not written: %v", err)
			}
			back, err := readRequest(bytes.NewReader(again))
			if err != nil || !slices.Equal(back, cids) {
				t.Fatalf("%v became %v, %v", cids, back, err)
			}
		} else if len(data) > 0 && !errors.Is(err, errFrame) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("untyped error %v", err)
		}
		status, block, err := readResponse(bytes.NewReader(data), fresh)
		if err == nil && (len(block) > MaxBlock || (status != statusFound && block != nil)) {
			t.Fatalf("status %d with %d bytes", status, len(block))
		}
	})
}

// memberSource is how the tracker uses GetBlocks.
type memberSource struct {
	p  *Peer
	id string
}

func (m memberSource) Name() string { return "member " + m.id }

func (m memberSource) Blocks(ctx context.Context, cids []cid.Cid, fn func(blocks.Block) error) ([]cid.Cid, error) {
	return m.p.GetBlocks(ctx, m.id, cids, fn)
}

// dag.Fetch fetches a whole DAG from a member that GetBlocks asks.
func TestFetchADAGFromAMember(t *testing.T) {
	peers, _ := newCluster(t, 2)
	root, count, _, err := peers[1].store.AddTree(1, cid.DagProtobuf, 20, 3, 300)
	if err != nil {
		t.Fatal(err)
	}
	r, err := dag.Fetch(t.Context(), dag.FetchRequest{
		Root: root, Reference: "pin", Store: peers[0].store.DAGStore(), Sources: []dag.Source{memberSource{peers[0].Peer, peers[1].ID()}},
	})
	if err != nil || r.Blocks != count {
		t.Fatal(r, err)
	}
}

// Two peers of one process count pulled and served blocks each in its own registry.
func TestMetricsCountAndTwoPeersKeepTheirOwn(t *testing.T) {
	registries := []*prometheus.Registry{prometheus.NewRegistry(), prometheus.NewRegistry()}
	next := 0
	peers, _ := newCluster(t, 2, func(o *Options) { o.Registerer = registries[next]; next++ })
	cids := addBlocks(t, peers[1].store, 5, 10)
	if _, err := peers[0].GetBlocks(t.Context(), peers[1].ID(), cids, func(blocks.Block) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"holdfast_peer_blocks_pulled_total", "holdfast_peer_blocks_served_total"} {
		families, err := registries[i].Gather()
		if err != nil {
			t.Fatal(err)
		}
		k := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == name })
		if k < 0 || families[k].Metric[0].Counter.GetValue() != 5 {
			t.Errorf("%s: %v", name, families)
		}
	}
}

func BenchmarkMemberBlocks(b *testing.B) {
	const size, count = 1 << 20, 256
	peers, _ := newCluster(b, 2)
	cids := addBlocks(b, peers[1].store, count, size)
	b.SetBytes(size * count)
	b.ReportAllocs()
	for b.Loop() {
		missing, err := peers[0].GetBlocks(b.Context(), peers[1].ID(), cids, func(blocks.Block) error { return nil })
		if err != nil || len(missing) > 0 {
			b.Fatal(missing, err)
		}
	}
}

func BenchmarkMemberSmallBlock(b *testing.B) {
	peers, _ := newCluster(b, 2)
	cids := addBlocks(b, peers[1].store, 1, 1024)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := peers[0].GetBlocks(b.Context(), peers[1].ID(), cids, func(blocks.Block) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
