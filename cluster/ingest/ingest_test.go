package ingest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/peer/dag"
	block "github.com/ipfs/go-block-format"
	"github.com/multiformats/go-multihash"
)

// All nodes of a placement keep the content and a lease on it until the put is done, and report their present epochs.
func TestContentIsKeptAndLeasedUntilDone(t *testing.T) {
	forSizes(t, func(t *testing.T, data []byte) {
		for _, committed := range []bool{true, false} {
			bubble(t, 3, func(w *world) {
				s, err := w.node("a").Store(w.Context(), bytes.NewReader(data), Placement{Nodes: w.all, Copies: 2})
				if err != nil {
					t.Fatal(err)
				}
				if s.Size != uint64(len(data)) {
					t.Errorf("size %d", s.Size)
				}
				for _, h := range s.Content.Held {
					if want := w.node(h.Node).fences.now(); h.Epoch != want || want == 0 {
						t.Errorf("node %s: epoch %d, want %d", h.Node, h.Epoch, want)
					}
				}
				w.wantLeases(1)
				w.wantTold()
				w.wantKept(s, data, "a", "b", "c")
				s.Done(committed)
				w.wantClean()
				w.wantKept(s, data, "a", "b", "c") // the tracker drops it
			})
		}
	})
}

// Content that is stored a second time has the same root and sizes, and each put has its own lease.
func TestContentThatIsHereIsNotStoredAgain(t *testing.T) {
	forSizes(t, func(t *testing.T, data []byte) {
		bubble(t, 2, func(w *world) {
			place := Placement{Nodes: w.all, Copies: 2}
			first, err := w.node("a").Store(w.Context(), bytes.NewReader(data), place)
			if err != nil {
				t.Fatal(err)
			}
			again, err := w.node("b").Store(w.Context(), bytes.NewReader(data), place)
			if err != nil {
				t.Fatal(err)
			}
			if first.Content.Root != again.Content.Root || first.Content.Bytes != again.Content.Bytes || first.Content.Blocks != again.Content.Blocks {
				t.Errorf("%+v, and then %+v", first.Content, again.Content)
			}
			w.wantLeases(2)
			w.wantTold()
			first.Done(false)
			w.wantLeases(1)
			again.Done(true)
			w.wantClean()
		})
	})
}

// Content that has rotted on all nodes is whole again after it is stored again.
func TestContentThatHasRottedIsStoredAgain(t *testing.T) {
	forSizes(t, func(t *testing.T, data []byte) {
		bubble(t, 2, func(w *world) {
			place := Placement{Nodes: w.all, Copies: 2}
			first, err := w.node("a").Store(w.Context(), bytes.NewReader(data), place)
			if err != nil {
				t.Fatal(err)
			}
			first.Done(true)
			for _, id := range w.all {
				w.node(id).store.rot(first.Content.Root.Cid())
			}
			again, err := w.node("b").Store(w.Context(), bytes.NewReader(data), place)
			if err != nil {
				t.Fatal(err)
			}
			again.Done(true)
			w.wantClean()
			w.wantKept(again, data, w.all...)
		})
	})
}

// The outcome of a put goes to the other node with the next put on the stream, or after tellWithin if there is none.
func TestOutcomesGoWithTheNextPut(t *testing.T) {
	bubble(t, 2, func(w *world) {
		place := Placement{Nodes: w.all, Copies: 2}
		leases := func(a, b int) {
			t.Helper()
			synctest.Wait()
			if gotA, gotB := w.node("a").leases.count(), w.node("b").leases.count(); gotA != a || gotB != b {
				t.Errorf("%d and %d leases, want %d and %d", gotA, gotB, a, b)
			}
		}
		for i := range byte(3) {
			s, err := w.node("a").Store(w.Context(), bytes.NewReader(bytesOf(i, 1000)), place)
			if err != nil {
				t.Fatal(err)
			}
			leases(1, 1) // and not those before
			s.Done(true)
			leases(0, 1)
		}
		<-time.After(tellWithin)
		leases(0, 0)
		if streams := len(w.node("a").pool.idle["b"]); streams != 1 {
			t.Errorf("%d streams", streams)
		}
		w.wantClean()
	})
}

// A node that ends sends the outcomes that wait, so no other node has to wait for a fence.
func TestAnEndTellsOutcomes(t *testing.T) {
	bubble(t, 2, func(w *world) {
		s, err := w.node("a").Store(w.Context(), bytes.NewReader(bytesOf(1, 1000)), Placement{Nodes: w.all, Copies: 2})
		if err != nil {
			t.Fatal(err)
		}
		s.Done(true)
		synctest.Wait()
		w.node("a").leave()
		synctest.Wait()
		b := w.node("b")
		if n := b.leases.count(); n != 0 || len(b.keeper.unknown) != 0 {
			t.Errorf("%d leases, of %d the end is unknown", n, len(b.keeper.unknown))
		}
	})
}

// hashing is a body that is hashed as it is read, if it says so.
type hashing struct {
	io.Reader
	read  bytes.Buffer
	knows bool
	asked int
}

func (h *hashing) Read(b []byte) (int, error) {
	n, err := h.Reader.Read(b)
	h.read.Write(b[:n])
	return n, err
}

// Blake3 implements Hashed.
func (h *hashing) Blake3() []byte {
	if h.asked++; !h.knows {
		return nil
	}
	sum, _ := multihash.Sum(h.read.Bytes(), multihash.BLAKE3, 32)
	return sum[len(sum)-32:]
}

// A body of one chunk that knows its hash is asked for it, and the content is stored under its right root.
func TestABlockIsNotHashedAgain(t *testing.T) {
	forSizes(t, func(t *testing.T, data []byte) {
		bubble(t, 2, func(w *world) {
			for _, knows := range []bool{true, false} {
				body := &hashing{Reader: bytes.NewReader(data), knows: knows}
				s, err := w.node("a").Store(w.Context(), body, Placement{Nodes: w.all, Copies: 2})
				if err != nil {
					t.Fatal(err)
				}
				w.wantKept(s, data, "a", "b")
				s.Done(true)
				if one := len(data) <= ChunkSize; one != (body.asked > 0) {
					t.Errorf("the hash of %d bytes was asked for %d times", len(data), body.asked)
				}
			}
			w.wantClean()
		})
	})
}

// Join makes one content of parts on different nodes, and Take copies a part to the nodes of a placement.
func TestPartsAreJoinedWhereverTheyAre(t *testing.T) {
	bubble(t, 3, func(w *world) {
		var parts []File
		var all []byte
		for i, n := range []int{5 << 20, 0, 1000} {
			data := bytesOf(byte(i), n)
			all = append(all, data...)
			s, err := w.node("a").Store(w.Context(), bytes.NewReader(data), Placement{Nodes: w.all[i : i+1], Copies: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Done(true)
			parts = append(parts, File{s.Content.Root.Cid(), s.Size})
		}
		whole, err := w.node("b").Join(w.Context(), parts, Placement{Nodes: w.all[:2], Spare: w.all[2:], Copies: 2})
		if err != nil {
			t.Fatal(err)
		}
		w.wantKept(whole, all, "a", "b")
		whole.Done(true)
		one, err := w.node("b").Join(w.Context(), parts[:1], Placement{Nodes: w.all, Copies: 3})
		if err != nil {
			t.Fatal(err)
		}
		if one.Content.Root.Cid() != parts[0].Root {
			t.Errorf("one part is joined as %s", one.Content.Root)
		}
		one.Done(true)
		taken, err := w.node("b").Take(w.Context(), parts[2], Placement{Nodes: w.all[1:], Spare: w.all[:1], Copies: 2})
		if err != nil {
			t.Fatal(err)
		}
		w.wantKept(taken, all[5<<20:], "b", "c")
		taken.Done(true)
		_, err = w.node("b").Join(w.Context(), nil, Placement{Nodes: w.all, Copies: 1})
		wantCode(t, err, state.ErrInvalid)
	})
}

// A spare node gets a body that has gone by from a node that kept it, also while that node still stores the end of
// it.
func TestASpareNodeWaitsForWhoHasTheContent(t *testing.T) {
	forSizes(t, func(t *testing.T, data []byte) {
		bubble(t, 3, func(w *world) {
			w.node("b").stop()
			w.node("a").store.before(func(ctx context.Context, op, _ string) error {
				if op != "put" {
					return nil
				}
				select {
				case <-time.After(time.Minute):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			s, err := w.node("a").Store(w.Context(), bytes.NewReader(data), Placement{Nodes: w.all[:2], Spare: w.all[2:], Copies: 2})
			if err != nil {
				t.Error(err)
				return
			}
			w.wantKept(s, data, "a", "c")
			s.Done(true)
			w.wantClean()
		})
	})
}

// A spare node keeps the content if a node of the placement is down, is full or cannot seal.
func TestAFailedNodeIsReplaced(t *testing.T) {
	full := func(context.Context, string, string) error { return state.Errorf(state.CodeNoSpace, "full") }
	for name, fail := range map[string]func(n *node){
		"down":    func(n *node) { n.stop() },
		"full":    func(n *node) { n.store.before(full) },
		"no seal": func(n *node) { n.store.before(failing("seal", errors.New("broken"))) },
	} {
		t.Run(name, func(t *testing.T) {
			forSizes(t, func(t *testing.T, data []byte) {
				bubble(t, 3, func(w *world) {
					fail(w.node("b"))
					s, err := w.node("a").Store(w.Context(), bytes.NewReader(data), Placement{Nodes: w.all[:2], Spare: w.all[2:], Copies: 2})
					if err != nil {
						t.Fatal(err)
					}
					w.wantKept(s, data, "a", "c")
					s.Done(true)
					w.node("b").store.before(nil)
					w.wantLeases(0)
				})
			})
		})
	}
}

// A node that has refused a put and reads nothing more does not delay the put.
func TestANodeThatRefusesHoldsNobodyUp(t *testing.T) {
	bubble(t, 3, func(w *world) {
		w.node("b").deaf = true
		w.node("b").store.before(failing("put", state.Errorf(state.CodeNoSpace, "full")))
		began := time.Now()
		s, err := w.node("a").Store(w.Context(), bytes.NewReader(bytesOf(1, 4*DefaultBatch)), Placement{Nodes: w.all, Copies: 2})
		if err != nil {
			t.Fatal(err)
		}
		if held := time.Since(began); held >= moveTimeout {
			t.Errorf("a node that refused held the others up for %v", held)
		}
		s.Done(true)
	})
}

// failing fails the operations that have op in their name.
func failing(op string, err error) func(context.Context, string, string) error {
	return func(_ context.Context, is, reference string) error {
		if strings.Contains(is, op) {
			return err
		}
		return nil
	}
}

// A put with too few copies fails with ErrNoSpace if a node is full, else with ErrUnavailable, and leaves nothing.
func TestTooFewCopiesAreAnError(t *testing.T) {
	full := failing("put", state.Errorf(state.CodeNoSpace, "full"))
	for _, tc := range []struct {
		name string
		fail func(w *world)
		want *state.Error
	}{
		{"others are down", func(w *world) { w.node("b").stop() }, state.ErrUnavailable},
		{"others are full", func(w *world) { w.node("b").store.before(full) }, state.ErrNoSpace},
		{"this one is full", func(w *world) { w.node("a").store.before(full) }, state.ErrNoSpace},
		{"all are full", func(w *world) { w.node("a").store.before(full); w.node("b").store.before(full) }, state.ErrNoSpace},
	} {
		t.Run(tc.name, func(t *testing.T) {
			forSizes(t, func(t *testing.T, data []byte) {
				bubble(t, 2, func(w *world) {
					tc.fail(w)
					_, err := w.node("a").Store(w.Context(), bytes.NewReader(data), Placement{Nodes: w.all, Copies: 2})
					wantCode(t, err, tc.want)
					for _, id := range w.all {
						w.node(id).store.before(nil)
					}
					w.wantClean()
				})
			})
		})
	}
}

// Store rejects a bad placement, and one with too few known nodes, and leaves nothing.
func TestPlacementsAreChecked(t *testing.T) {
	bubble(t, 2, func(w *world) {
		for name, tc := range map[string]struct {
			place Placement
			want  *state.Error
		}{
			"nowhere":      {Placement{Copies: 1}, state.ErrInvalid},
			"no copy":      {Placement{Nodes: w.all}, state.ErrInvalid},
			"twice":        {Placement{Nodes: w.all, Spare: w.all[:1], Copies: 1}, state.ErrInvalid},
			"no name":      {Placement{Nodes: []state.NodeID{""}, Copies: 1}, state.ErrInvalid},
			"a long name":  {Placement{Nodes: []state.NodeID{state.NodeID(strings.Repeat("x", maxNode+1))}, Copies: 1}, state.ErrInvalid},
			"too few":      {Placement{Nodes: w.all, Copies: 3}, state.ErrUnavailable},
			"only nobodys": {Placement{Nodes: []state.NodeID{"x"}, Copies: 1}, state.ErrUnavailable},
		} {
			_, err := w.node("a").Store(w.Context(), strings.NewReader("x"), tc.place)
			if !errors.Is(err, tc.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		w.wantClean()
	})
}

// broken is a body that ends in an error.
type broken struct {
	io.Reader
	err error
}

func (b broken) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = b.err
	}
	return n, err
}

// A body that breaks ends the put with its error and leaves no blocks and no leases.
func TestABrokenBodyLeavesNothing(t *testing.T) {
	errBody := errors.New("the client has gone")
	forSizes(t, func(t *testing.T, data []byte) {
		bubble(t, 3, func(w *world) {
			_, err := w.node("a").Store(w.Context(), broken{bytes.NewReader(data), errBody}, Placement{Nodes: w.all, Copies: 2})
			if !errors.Is(err, errBody) {
				t.Errorf("error %v", err)
			}
			w.wantClean()
		})
	})
}

// ticks calls fn after each Read.
type ticks struct {
	io.Reader
	fn func(n int)
	n  int
}

func (k *ticks) Read(p []byte) (int, error) {
	n, err := k.Reader.Read(p[:min(len(p), 256<<10)])
	k.n += n
	k.fn(k.n)
	return n, err
}

// A put whose context ends at any step of the body or of a node's store fails or is whole, and leaves nothing.
func TestTheEndOfItsContextEndsAStore(t *testing.T) {
	data := bytesOf(1, 5<<20)
	for _, size := range []int{1000, len(data)} {
		for at := 0; at <= size; at += max(1, size/8) {
			bubble(t, 3, func(w *world) {
				ctx, cancel := context.WithCancel(w.Context())
				defer cancel()
				body := &ticks{Reader: bytes.NewReader(data[:size]), fn: func(n int) {
					if n >= at {
						cancel()
					}
				}}
				if _, err := w.node("a").Store(ctx, body, Placement{Nodes: w.all, Copies: 3}); !errors.Is(err, context.Canceled) {
					t.Errorf("%d of %d: %v", at, size, err)
				}
				w.wantClean()
			})
		}
		for _, id := range []state.NodeID{"a", "b"} {
			for step := range 12 {
				bubble(t, 3, func(w *world) {
					ctx, cancel := context.WithCancel(w.Context())
					defer cancel()
					var ops atomic.Int32
					w.node(id).store.before(func(context.Context, string, string) error {
						if ops.Add(1) == int32(step+1) {
							cancel()
						}
						return nil
					})
					s, err := w.node("a").Store(ctx, bytes.NewReader(data[:size]), Placement{Nodes: w.all, Copies: 3})
					switch {
					case err == nil:
						s.Done(false) // there are fewer steps, or that was the last of them
						if len(s.Content.Held) < 3 {
							t.Errorf("held by %v", s.Content.Held)
						}
					case !errors.Is(err, context.Canceled):
						t.Errorf("node %s, step %d: %v", id, step, err)
					}
					<-time.After(2 * fenceEvery) // its stream may break just when it says that it keeps it
					w.wantClean()
				})
			}
		}
	}
}

// A put reads at most eight batches of a body ahead of a node that does not take any.
func TestASlowNodeSlowsTheBody(t *testing.T) {
	bubble(t, 2, func(w *world) {
		gate := make(chan struct{})
		w.node("b").store.before(func(ctx context.Context, op, _ string) error {
			if op == "put" {
				select {
				case <-gate:
				case <-ctx.Done():
				}
			}
			return nil
		})
		var read atomic.Int64
		data := bytesOf(1, 64<<20)
		body := &ticks{Reader: bytes.NewReader(data), fn: func(n int) { read.Store(int64(n)) }}
		done := make(chan error, 1)
		var s *Stored
		go func() {
			var err error
			s, err = w.node("a").Store(context.Background(), body, Placement{Nodes: w.all, Copies: 2})
			done <- err
		}()
		synctest.Wait()
		// Three batches here, as many there, and what is being cut.
		if n := read.Load(); n > 8*DefaultBatch {
			t.Errorf("%d bytes are read while a node does not take any", n)
		}
		close(gate)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		w.wantKept(s, data, "a", "b")
		s.Done(true)
		w.wantClean()
	})
}

// hang returns the disk of a node hang until works is closed.
func (w *world) hang(node state.NodeID) (works chan struct{}) {
	works = make(chan struct{})
	w.node(node).store.before(func(ctx context.Context, op, reference string) error {
		select {
		case <-works:
		case <-ctx.Done():
		}
		return nil
	})
	return works
}

// A put ends without a node that hangs if enough others keep the content.
func TestANodeThatHangsIsLeft(t *testing.T) {
	forSizes(t, func(t *testing.T, data []byte) {
		bubble(t, 3, func(w *world) {
			works := w.hang("b")
			// It says that it works on it, so it may take long; ctx is the bound.
			ctx, cancel := context.WithTimeout(w.Context(), time.Hour)
			defer cancel()
			s, err := w.node("a").Store(ctx, bytes.NewReader(data), Placement{Nodes: w.all, Copies: 2})
			if err != nil {
				t.Fatal(err)
			}
			w.wantKept(s, data, "a", "c")
			s.Done(false)
			close(works)
			w.wantClean()
		})
	})
}

// A lease whose outcome is unknown ends with a fence, and not before.
func TestLeasesWithoutAnOutcomeEndWithAFence(t *testing.T) {
	forSizes(t, func(t *testing.T, data []byte) {
		for name, lose := range map[string]func(w *world, s *Stored){
			"the streams break":   func(w *world, _ *Stored) { w.node("a").cut() },
			"the pusher stops":    func(w *world, _ *Stored) { w.node("a").stop() },
			"nobody knows":        func(_ *world, s *Stored) { s.Unknown() },
			"after a second loss": func(w *world, s *Stored) { s.Unknown(); w.node("a").cut() },
		} {
			t.Run(name, func(t *testing.T) {
				bubble(t, 3, func(w *world) {
					s, err := w.node("a").Store(w.Context(), bytes.NewReader(data), Placement{Nodes: w.all, Copies: 3})
					if err != nil {
						t.Fatal(err)
					}
					lose(w, s)
					synctest.Wait()
					b := w.node("b")
					told := s.Content.Held[0].Epoch
					for _, h := range s.Content.Held {
						if h.Node == "b" {
							told = h.Epoch
						}
					}
					if b.leases.count() != 1 || b.fences.now() != told {
						t.Errorf("%d leases, epoch %d, told %d", b.leases.count(), b.fences.now(), told)
					}
					b.fences.fail(errors.New("no majority"))
					<-time.After(10 * fenceEvery)
					synctest.Wait()
					if b.leases.count() != 1 {
						t.Error("a lease ends without a fence")
					}
					b.fences.fail(nil)
					<-time.After(2 * maxRetry)
					synctest.Wait()
					if b.leases.count() != 0 || b.fences.now() != told+1 {
						t.Errorf("%d leases, epoch %d, told %d", b.leases.count(), b.fences.now(), told)
					}
					s.Unknown() // it may be told, too late
				})
			})
		}
	})
}

// A node proposes at most three fences for 100 puts with an unknown outcome in 100 s.
func TestFencesAreRare(t *testing.T) {
	bubble(t, 2, func(w *world) {
		before := w.node("b").fences.now()
		for i := range 100 {
			s, err := w.node("a").Store(w.Context(), bytes.NewReader(bytesOf(byte(i), 100)), Placement{Nodes: w.all, Copies: 2})
			if err != nil {
				t.Fatal(err)
			}
			s.Unknown()
			<-time.After(time.Second)
		}
		<-time.After(2 * fenceEvery)
		if n := w.node("b").fences.now() - before; n < 1 || n > 3 {
			t.Errorf("%d fences for 100 s of unknown ends", n)
		}
		w.wantClean()
	})
}

// Renew returns the holders with their present epochs, without nodes that are down, and fails if too few are left.
func TestRenewTellsThePresentEpochs(t *testing.T) {
	bubble(t, 3, func(w *world) {
		s, err := w.node("a").Store(w.Context(), strings.NewReader("kept"), Placement{Nodes: w.all, Copies: 2})
		if err != nil {
			t.Fatal(err)
		}
		lost, err := w.node("a").Store(w.Context(), strings.NewReader("lost"), Placement{Nodes: w.all, Copies: 2})
		if err != nil {
			t.Fatal(err)
		}
		lost.Unknown()
		<-time.After(2 * fenceEvery)
		w.wantLeases(1)
		for _, h := range s.Content.Held {
			if h.Epoch == w.node(h.Node).fences.now() {
				t.Fatal("there was no fence")
			}
		}
		if err := s.Renew(w.Context()); err != nil {
			t.Fatal(err)
		}
		if len(s.Content.Held) != 3 {
			t.Errorf("held by %v", s.Content.Held)
		}
		for _, h := range s.Content.Held {
			if h.Epoch != w.node(h.Node).fences.now() {
				t.Errorf("%v is not of the present epoch", h)
			}
		}
		w.node("b").stop()
		if err := s.Renew(w.Context()); err != nil || len(s.Content.Held) != 2 {
			t.Errorf("held by %v: %v", s.Content.Held, err)
		}
		w.node("c").stop()
		wantCode(t, s.Renew(w.Context()), state.ErrUnavailable)
		s.Done(false)
		synctest.Wait()
		if g := w.node("a").leases.count(); g != 0 {
			t.Errorf("%d leases", g)
		}
	})
}

// A node drops the blocks of a put whose sender dies before its end, without a fence.
func TestAPusherThatDiesBeforeTheEndLeavesNothing(t *testing.T) {
	for name, die := range map[string]func(n *node){
		"its streams break": func(n *node) { n.cut() },
		"it stops":          func(n *node) { n.stop() }, // and does not wait for the body
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				before := w.node("b").fences.now()
				hang := make(chan struct{})
				body := io.MultiReader(bytes.NewReader(bytesOf(1, 8<<20)), waits(hang))
				done := make(chan error, 1)
				go func() {
					_, err := w.node("a").Store(context.Background(), body, Placement{Nodes: w.all, Copies: 2})
					done <- err
				}()
				synctest.Wait()
				if len(w.node("b").store.arriving()) != 1 {
					t.Error("nothing has arrived")
				}
				die(w.node("a"))
				synctest.Wait()
				if left := w.node("b").store.arriving(); len(left) > 0 {
					t.Errorf("%v is left", left)
				}
				close(hang)
				wantCode(t, <-done, state.ErrUnavailable)
				<-time.After(10 * fenceEvery)
				w.wantClean()
				if w.node("b").fences.now() != before {
					t.Error("there was a fence for what nobody was told")
				}
			})
		})
	}
}

// waits is a body that goes on when the channel is closed.
type waits chan struct{}

func (c waits) Read([]byte) (int, error) {
	<-c
	return 0, io.EOF
}

// A node without an epoch keeps nothing, and serves a waiting put once it has one.
func TestWithoutAnEpochNothingIsKept(t *testing.T) {
	bubble(t, 2, func(w *world) {
		b := w.node("b")
		b.stop()
		b.fences.fail(errors.New("the cluster is too old"))
		b.start()
		_, err := w.node("a").Store(w.Context(), strings.NewReader("x"), Placement{Nodes: w.all, Copies: 2})
		wantCode(t, err, state.ErrUnavailable)
		w.wantClean()
		// Who waits is served once there is one.
		go func() {
			<-time.After(time.Second)
			b.fences.fail(nil)
		}()
		s, err := w.node("a").Store(w.Context(), strings.NewReader("x"), Placement{Nodes: w.all, Copies: 2})
		if err != nil {
			t.Fatal(err)
		}
		s.Done(true)
		w.wantClean()
	})
}

// raw returns a stream to a node, for frames that no pusher sends.
func raw(t *testing.T, w *world, to state.NodeID, frames ...[]byte) (kind byte, body []byte) {
	t.Helper()
	conn, err := w.node("a").Dial(w.Context(), string(to), Protocol)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	go func() { _, _ = conn.Write(bytes.Join(frames, nil)) }()
	answer, err := io.ReadAll(conn)
	if err != nil || len(answer) < headBytes {
		return 0, nil
	}
	return answer[0], answer[headBytes:]
}

// A node refuses a put with a wrong hash or missing blocks, closes the stream after frames out of order, and keeps
// nothing.
func TestBadPutsAreRefused(t *testing.T) {
	leaf, err := dag.Leaf([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	frameOf := func(b block.Block) []byte { return append(appendBlockHead(nil, b), b.RawData()...) }
	wrong := frameOf(leaf)
	wrong[len(wrong)-1] ^= 1
	begin := appendBegin(nil, newID())
	later := append([]byte(nil), begin...)
	later[headBytes]++
	for name, tc := range map[string]struct {
		frames [][]byte
		code   state.Code // 0: the stream ends without a word
	}{
		"wrong hash":         {[][]byte{begin, wrong}, state.CodeInvalid},
		"incomplete":         {[][]byte{begin, appendEnd(nil, end{root: leaf.Cid()})}, state.CodeUnavailable},
		"a later version":    {[][]byte{later}, 0},
		"a block at first":   {[][]byte{frameOf(leaf)}, 0},
		"renew before end":   {[][]byte{begin, appendBare(nil, kindRenew)}, 0},
		"begin twice":        {[][]byte{begin, begin}, 0},
		"an unknown kind":    {[][]byte{begin, {200, 0, 0, 0, 0}}, 0},
		"an unknown outcome": {[][]byte{begin, appendDone(nil, 9)}, 0},
		"a long block":       {[][]byte{begin, {kindBlock, 0x7f, 0, 0, 0}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(w *world) {
				kind, body := raw(t, w, "b", tc.frames...)
				if tc.code == 0 {
					if kind != 0 {
						t.Errorf("answer of kind %d: %q", kind, body)
					}
				} else if kind != kindRefused || state.Code(binary.BigEndian.Uint16(body)) != tc.code {
					t.Errorf("answer of kind %d: %q", kind, body)
				}
				w.wantClean()
			})
		})
	}
}
