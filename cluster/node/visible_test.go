package node

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/nettest"
	"github.com/holdfast-ipfs/holdfast/peer/dag"
	block "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
)

// shows serves a member that shows the blocks in shown, until the test ends.
func shows(t *testing.T, shown ...cid.Cid) *nettest.Pipes {
	t.Helper()
	pipes := nettest.NewPipes()
	v := &visibility{shows: func(_ context.Context, c cid.Cid) (bool, error) {
		for _, s := range shown {
			if s.Equals(c) {
				return true, nil
			}
		}
		return false, nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	var served sync.WaitGroup
	served.Go(func() {
		if err := v.serve(ctx, pipes); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); served.Wait() })
	return pipes
}

// asks returns a visibility whose other members are these.
func asks(members map[state.NodeID]*nettest.Pipes) *visibility {
	return &visibility{
		finding: make(chan struct{}, 1),
		others: func() (ids []state.NodeID) {
			for id := range members {
				ids = append(ids, id)
			}
			return ids
		},
		dial: func(ctx context.Context, id, _ string) (net.Conn, error) {
			if p := members[state.NodeID(id)]; p != nil {
				return p.Dial(ctx)
			}
			return nil, errors.New("it cannot be reached")
		},
	}
}

// A block is found on the member that shows it. If nobody does, the error says whether all members have answered, and it
// comes within visibleTimeout.
func TestAMemberThatShowsABlockIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := block.NewBlock([]byte("x")).Cid()
		silent := nettest.NewPipes()
		var held sync.WaitGroup
		held.Go(func() {
			for {
				conn, err := silent.Accept()
				if err != nil {
					return
				}
				held.Go(func() { _, _ = io.Copy(io.Discard, conn) })
			}
		})
		for _, tc := range []struct {
			name    string
			members map[state.NodeID]*nettest.Pipes
			want    state.NodeID
			err     error
		}{
			{"alone", nil, "", state.ErrNotFound},
			{"one of two", map[state.NodeID]*nettest.Pipes{"a": shows(t), "b": shows(t, c)}, "b", nil},
			{"one, and another is silent", map[state.NodeID]*nettest.Pipes{"a": silent, "b": shows(t, c), "d": nil}, "b", nil},
			{"nobody", map[state.NodeID]*nettest.Pipes{"a": shows(t), "b": shows(t)}, "", state.ErrNotFound},
			{"nobody, and one is silent", map[state.NodeID]*nettest.Pipes{"a": shows(t), "b": silent}, "", state.ErrUnavailable},
			{"nobody, and one cannot be reached", map[state.NodeID]*nettest.Pipes{"a": shows(t), "b": nil}, "", state.ErrUnavailable},
		} {
			began := time.Now()
			got, err := asks(tc.members).Find(t.Context(), c)
			if got != tc.want || !errors.Is(err, tc.err) || time.Since(began) > visibleTimeout {
				t.Errorf("%s: %q, %v after %s, want %q, %v", tc.name, got, err, time.Since(began), tc.want, tc.err)
			}
		}
		busy := asks(map[state.NodeID]*nettest.Pipes{"b": shows(t, c)})
		busy.finding <- struct{}{}
		if _, err := busy.Find(t.Context(), c); !errors.Is(err, state.ErrUnavailable) {
			t.Errorf("above the bound: %v", err)
		}
		_ = silent.Close()
		held.Wait()
	})
}

// A node closes the stream of a malformed question about a block, and of one that its store cannot answer, without an
// answer.
func TestQuestionsAboutBlocksThatAreBadGetNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := block.NewBlock([]byte("x")).Cid().String() + "\n"
		for text, fails := range map[string]bool{"\n": false, "x\n": false, strings.Repeat("b", maxProgress+1): false, good: true} {
			v := &visibility{shows: func(context.Context, cid.Cid) (bool, error) {
				if !fails {
					t.Errorf("%.20q: it looked", text)
				}
				return true, errors.New("the disk is gone")
			}}
			getsNoAnswer(t, text, func(far net.Conn) { v.answer(t.Context(), far) })
		}
	})
}

// shownStore is the blocks of one node, with those that it shows.
type shownStore struct {
	blocks map[cid.Cid]block.Block
	shown  map[cid.Cid]bool
}

func (s shownStore) Get(_ context.Context, c cid.Cid) (block.Block, error) {
	if b := s.blocks[c]; b != nil {
		return b, nil
	}
	return nil, ipld.ErrNotFound{Cid: c}
}

func (s shownStore) Visible(_ context.Context, c cid.Cid) (bool, error) { return s.shown[c], nil }

// Blocks that are checked one by one are read from this node or from a member that shows them. A block that a member has
// and does not show is not found, although the member would send it.
func TestOnlyBlocksThatAreShownAreRead(t *testing.T) {
	mine, theirs, hidden, damaged := block.NewBlock([]byte("mine")), block.NewBlock([]byte("theirs")), block.NewBlock([]byte("hidden")), block.NewBlock([]byte("damaged"))
	here := shownStore{map[cid.Cid]block.Block{mine.Cid(): mine, hidden.Cid(): hidden}, map[cid.Cid]bool{mine.Cid(): true, damaged.Cid(): true}}
	there := shownStore{map[cid.Cid]block.Block{theirs.Cid(): theirs, hidden.Cid(): hidden, damaged.Cid(): damaged}, nil}
	v := &visibleBlocks{
		here: here, find: asks(map[state.NodeID]*nettest.Pipes{"b": shows(t, theirs.Cid(), damaged.Cid())}),
		read: func(ctx context.Context, member string, c cid.Cid, lend func(int) []byte) ([]byte, error) {
			b, err := there.Get(ctx, c)
			if err != nil || member != "b" {
				return nil, errors.Join(err, errors.New(member))
			}
			return append(lend(len(b.RawData()))[:0], b.RawData()...), nil
		},
	}
	for _, b := range []block.Block{mine, theirs, damaged, theirs} {
		got, err := v.Get(t.Context(), b.Cid())
		if err != nil || string(got.RawData()) != string(b.RawData()) {
			t.Errorf("%s: %v, %v", b.RawData(), got, err)
		}
	}
	if _, err := v.Get(t.Context(), hidden.Cid()); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("hidden: %v", err)
	}
	d := publicDAG{new(dag.Buffers), v}
	if _, _, err := d.File(t.Context(), hidden.Cid()); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("the file: %v", err)
	}
}

// A block of a complete DAG that cannot be read is unavailable, and not unknown.
func TestABlockOfAKnownDAGIsNeverUnknown(t *testing.T) {
	gone := block.NewBlock([]byte("gone")).Cid()
	d := publicDAG{new(dag.Buffers), wholeDAG{&reader{
		here: none{}, order: []state.NodeID{"a"}, now: time.Now, down: func(state.NodeID) bool { return false },
		ask: func(_ context.Context, _ state.NodeID, c cid.Cid, _ func(int) []byte) ([]byte, error) {
			return nil, ipld.ErrNotFound{Cid: c}
		},
	}}}
	if _, err := d.Block(t.Context(), gone); !errors.Is(err, state.ErrUnavailable) || ipld.IsNotFound(err) {
		t.Errorf("block: %v", err)
	}
	if _, _, err := d.File(t.Context(), gone); !errors.Is(err, state.ErrUnavailable) || ipld.IsNotFound(err) {
		t.Errorf("file: %v", err)
	}
}
