package ingest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/peer/dag"
	block "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
)

// Of forty bodies for which the memory is too small, some are stored, the others are refused with ErrLimited, and
// nothing is left.
func TestMemoryIsBounded(t *testing.T) {
	bubble(t, 1, func(w *world) {
		var ended sync.WaitGroup
		var limited atomic.Int32
		for range 40 {
			ended.Go(func() {
				body := io.LimitReader(newTrickle(2<<20, 100*time.Millisecond, 10_000), 8<<20) // for a minute
				s, err := w.node("a").Store(context.Background(), body, Placement{Nodes: w.all, Copies: 1})
				switch {
				case err == nil:
					s.Done(false)
				case errors.Is(err, state.ErrLimited):
					limited.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		ended.Wait()
		if n := limited.Load(); n == 0 || n == 40 {
			t.Errorf("%d of 40 bodies are refused", n)
		}
		w.wantClean()
	}, func(o *Options) { o.Memory = 16 << 20 })
}

// A body that ends with an error that wraps io.EOF or io.ErrUnexpectedEOF is not stored: only io.EOF itself is its
// end. The framing of S3 says io.ErrUnexpectedEOF of a body that was cut, and a copy of a part that cannot be read
// may say io.EOF.
func TestABodyThatIsCutIsNotStored(t *testing.T) {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF} {
		forSizes(t, func(t *testing.T, data []byte) {
			bubble(t, 2, func(w *world) {
				cut := fmt.Errorf("cut: %w", end)
				s, err := w.node("a").Store(w.Context(), broken{bytes.NewReader(data), cut}, Placement{Nodes: w.all, Copies: 2})
				if err == nil {
					t.Errorf("%d bytes are stored of a body that was cut", s.Size)
					s.Done(false)
				} else if !errors.Is(err, cut) {
					t.Errorf("error %v", err)
				}
				w.wantClean()
			})
		})
	}
}

// flushed is a body whose reader is told when what was read before is handed on.
type flushed struct {
	*rest
	n    int // bytes read
	told func(n int)
}

func (f *flushed) Read(b []byte) (int, error) {
	n, err := f.rest.Read(b)
	f.n += n
	return n, err
}

func (f *flushed) FlushWith(flush func() error) {
	f.rest.FlushWith(func() error {
		f.told(f.n)
		return flush()
	})
}

// A body waits for memory only where a chunk begins, and not behind its last byte. The importer has memory for a
// chunk from its first byte on, and nobody counts that memory before the body has waited for it.
func TestABodyWaitsForMemoryBeforeAChunkBegins(t *testing.T) {
	for _, size := range []int{ChunkSize + 1, 8 << 20, 8<<20 + 5} {
		buffers := new(dag.Buffers)
		o := newBodies(16<<20, buffers)
		m := o.open(t.Context(), func(error) {}, bytes.NewReader(bytesOf(1, size)), 1)
		first, more, err := m.first()
		if err != nil || !more {
			t.Fatal(more, err)
		}
		if !o.rest.room.TryAcquire(o.rest.size - m.held) {
			t.Fatal("others have some of the memory")
		}
		waits := 0
		body := &flushed{rest: &rest{m: m, first: first}, told: func(n int) {
			waits++
			if n%ChunkSize != 0 {
				t.Errorf("%d bytes: it waits with %d of a chunk", size, n%ChunkSize)
			}
			m.release(m.hand(math.MaxInt64)) // as if all of it had been stored
		}}
		_, n, err := buffers.Import(t.Context(), body, DefaultBatch, func([]block.Block, func()) error { return nil })
		if err != nil || n != uint64(size) || waits != (size-1)/ChunkSize {
			t.Errorf("%d bytes: %d are read, with %d waits, %v", size, n, waits, err)
		}
	}
}

// trickle is a body without an end of a client that sends some bytes at once, and then
// a few now and then.
type trickle struct {
	fast  io.Reader
	every time.Duration
	some  int // bytes each time
	over  chan struct{}
	once  sync.Once
}

func newTrickle(fast int, every time.Duration, n int) *trickle {
	return &trickle{fast: bytes.NewReader(bytesOf(9, fast)), every: every, some: n, over: make(chan struct{})}
}

func (k *trickle) Read(b []byte) (int, error) {
	if n, err := k.fast.Read(b); err == nil {
		return n, nil
	}
	select {
	case <-k.over:
		return 0, errors.New("interrupted")
	case <-time.After(k.every):
		return min(k.some, len(b)), nil
	}
}

// Interrupt implements Interrupter.
func (k *trickle) Interrupt() { k.once.Do(func() { close(k.over) }) }

// Twenty puts succeed beside bodies that trickle and hold the memory, of which some are cut with ErrLimited.
func TestTricklingBodiesGiveWayToOthers(t *testing.T) {
	for name, tc := range map[string]struct{ fast, clients int }{
		"in the first chunk": {400 << 10, 24},
		"behind it":          {2<<20 + 400<<10, 8},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(w *world) {
				place := Placement{Nodes: w.all, Copies: 2}
				ctx, cancel := context.WithCancel(w.Context())
				defer cancel()
				var all sync.WaitGroup
				var cut atomic.Int32
				for range tc.clients {
					all.Go(func() {
						body := newTrickle(tc.fast, time.Second, 1)
						defer context.AfterFunc(ctx, body.Interrupt)()
						_, err := w.node("a").Store(ctx, body, place)
						if errors.Is(err, state.ErrLimited) {
							cut.Add(1)
						} else if ctx.Err() == nil {
							t.Error(err)
						}
					})
					synctest.Wait() // it has what it can have
				}
				for i := range 20 {
					data := bytesOf(byte(i), 3<<20)
					s, err := w.node("a").Store(ctx, bytes.NewReader(data), place)
					if err != nil {
						t.Fatalf("put %d: %v", i, err)
					}
					s.Done(true)
				}
				if n := cut.Load(); n == 0 {
					t.Error("nobody was cut")
				}
				cancel()
				all.Wait()
				w.wantClean()
			}, func(o *Options) { o.Memory = 16 << 20 })
		})
	}
}

// Many fast bodies that have come half way do not wait for each other: at most half are refused at once, never the
// first, and all others are stored.
func TestBodiesDoNotWaitForEachOther(t *testing.T) {
	bubble(t, 1, func(w *world) {
		const clients = 100 // 257 KiB each is more than there is
		began := time.Now()
		var all sync.WaitGroup
		var mu sync.Mutex
		var refused []int
		half, rest := make(chan struct{}), bytesOf(3, 200<<10)
		for i := range clients {
			all.Go(func() {
				body := io.MultiReader(bytes.NewReader(bytesOf(byte(i), 400<<10)), waitFor(half), bytes.NewReader(rest))
				s, err := w.node("a").Store(w.Context(), body, Placement{Nodes: w.all, Copies: 1})
				switch {
				case err == nil:
					s.Done(false)
				case errors.Is(err, state.ErrLimited):
					mu.Lock()
					defer mu.Unlock()
					refused = append(refused, i)
				default:
					t.Error(err)
				}
			})
			synctest.Wait() // one after the other
		}
		close(half)
		all.Wait()
		if took := time.Since(began); took > time.Second {
			t.Errorf("they wait for %s", took)
		}
		if len(refused) > clients/2 {
			t.Errorf("%d of %d are refused", len(refused), clients)
		}
		if slices.Contains(refused, 0) {
			t.Error("the first one is refused")
		}
		w.wantClean()
	}, func(o *Options) { o.Memory = 16 << 20 })
}

// Large bodies that come at the same pace are all stored, although together they want more memory than there is.
func TestLargeBodiesInStepAreAllStored(t *testing.T) {
	bubble(t, 1, func(w *world) {
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				body := io.LimitReader(newTrickle(i, 10*time.Millisecond, 64<<10), 8<<20)
				s, err := w.node("a").Store(w.Context(), body, Placement{Nodes: w.all, Copies: 1})
				if err != nil {
					t.Error(err)
					return
				}
				s.Done(false)
			})
		}
		all.Wait()
		w.wantClean()
	}, func(o *Options) { o.Memory = 16 << 20 })
}

// waitFor returns a reader without bytes that ends when the channel is closed.
func waitFor(ch <-chan struct{}) io.Reader { return waiting(ch) }

type waiting <-chan struct{}

func (w waiting) Read([]byte) (int, error) { <-w; return 0, io.EOF }

// A client that sends 100 KB a second is not cut while others wait for memory, and a slower one is not cut while it
// is alone.
func TestSteadyBodiesAreNotCut(t *testing.T) {
	for name, tc := range map[string]struct {
		bytes, others int // of each second; clients beside it
	}{
		"while others wait": {100_000, 24},
		"slow and alone":    {1000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(w *world) {
				place := Placement{Nodes: w.all, Copies: 1}
				steady := newTrickle(0, 100*time.Millisecond, tc.bytes/10)
				ended := make(chan error, 1)
				go func() {
					_, err := w.node("a").Store(w.Context(), steady, place)
					ended <- err
				}()
				synctest.Wait()
				var all sync.WaitGroup
				var cut atomic.Int32
				for range tc.others {
					all.Go(func() {
						if _, err := w.node("a").Store(w.Context(), newTrickle(400<<10, time.Second, 1), place); errors.Is(err, state.ErrLimited) {
							cut.Add(1)
						}
					})
				}
				<-time.After(memoryPatience)
				select {
				case err := <-ended:
					t.Errorf("the steady client was cut: %v", err)
				default:
				}
				if (cut.Load() > 0) != (tc.others > 0) {
					t.Errorf("%d of %d others were cut", cut.Load(), tc.others)
				}
				w.node("a").bodies.end(t)
				all.Wait()
				<-ended
				w.wantClean()
			}, func(o *Options) { o.Memory = 16 << 20 })
		})
	}
}

// end interrupts all bodies.
func (o *bodies) end(t *testing.T) {
	t.Helper()
	o.mu.Lock()
	all := slices.Collect(maps.Keys(o.read))
	o.mu.Unlock()
	for _, m := range all {
		m.interrupt()
	}
}

// A node stores what it has of a body that trickles, so that other bodies do not wait long for its memory, and the
// body can still end a day later.
func TestTricklingBodiesHoldNoMemoryElsewhere(t *testing.T) {
	const slow = 10 // as many blocks as may wait there
	bubble(t, 2, func(w *world) {
		var conns []net.Conn
		var roots []cid.Cid
		for k := range slow {
			leaf, err := dag.Leaf(bytesOf(byte(100+k), ChunkSize-100))
			if err != nil {
				t.Fatal(err)
			}
			conn, err := w.node("a").Dial(w.Context(), "b", Protocol)
			if err != nil {
				t.Fatal(err)
			}
			frame := append(appendBlockHead(appendBegin(nil, newID()), leaf), leaf.RawData()...)
			if _, err := conn.Write(frame); err != nil {
				t.Fatal(err)
			}
			conns, roots = append(conns, conn), append(roots, leaf.Cid())
		}
		began := time.Now()
		s, err := w.node("a").Store(w.Context(), bytes.NewReader(bytesOf(99, 8<<20)), Placement{Nodes: w.all, Copies: 2})
		if err != nil {
			t.Errorf("a body beside %d that trickle: %v", slow, err)
		} else {
			s.Done(true)
		}
		if took := time.Since(began); took > 2*storeAfter {
			t.Errorf("a body beside %d that trickle takes %v", slow, took)
		}
		<-time.After(24 * time.Hour)
		for k, conn := range conns { // it goes on where it was
			if _, err := conn.Write(appendEnd(nil, end{root: roots[k]})); err != nil {
				t.Fatal(err)
			}
			f, err := readFrame(bufio.NewReader(conn))
			if err != nil || f.kind != kindKept {
				t.Errorf("answer of kind %d: %q, %v", f.kind, f.body, err)
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}
		<-time.After(2 * fenceEvery)
		w.wantClean()
	}, func(o *Options) { o.Memory, o.Arriving = 16<<20, slow<<20 })
}

// Bodies wait for memory for different times, from half of the bound up to the bound.
func TestAWaitForMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last := memoryPatience/2 - 1
		for turn := range uint64(memoryTurns) {
			m := &memory{ctx: t.Context(), turn: turn}
			ctx, end := m.patience()
			until, ok := ctx.Deadline()
			end()
			if wait := time.Until(until); !ok || wait < memoryPatience/2 || wait >= memoryPatience || wait <= last {
				t.Errorf("turn %d waits %v, the one before %v", turn, wait, last)
			} else {
				last = wait
			}
		}
	})
}

// The reader of a body gets the error of the body also within a chunk for which memory has been taken.
func TestABodyThatFailsWithinAChunkSaysWhy(t *testing.T) {
	broken := errors.New("broken")
	body := io.MultiReader(bytes.NewReader(bytesOf(1, ChunkSize+10)), iotest.ErrReader(broken))
	m := newBodies(16<<20, new(dag.Buffers)).open(t.Context(), func(error) {}, body, 1)
	defer m.free()
	first, more, err := m.first()
	if err != nil || !more {
		t.Fatal(more, err)
	}
	r := &rest{m: m, first: first}
	if n, err := io.ReadFull(r, make([]byte, ChunkSize+10)); err != nil {
		t.Fatal(n, err)
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, broken) {
		t.Errorf("%d bytes, %v, want the error of the body", n, err)
	}
}
