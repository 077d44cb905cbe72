package ingest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/cluster/tracker"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// epochs are the fences of a node in a replicated state.
type epochs struct {
	id    state.NodeID
	state *clustertest.State
	none  *atomic.Bool // nothing can be fenced
}

func (f epochs) Epoch(ctx context.Context) (uint64, error) {
	view, release, err := f.state.View(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	return view.FenceOf(f.id)
}

func (f epochs) Raise(ctx context.Context, epoch uint64) error {
	if f.none.Load() {
		return errors.New("no fence")
	}
	_, err := f.state.Propose(ctx, &state.Fence{Node: f.id, Epoch: epoch})
	return err
}

// nowhere is where a tracker fetches from.
type nowhere struct{}

func (nowhere) Fetch(context.Context, tracker.Job, func(uint64, uint64)) (uint64, uint64, error) {
	return 0, 0, errors.New("there is nobody")
}
func (nowhere) Reason(err error) string { return err.Error() }
func (nowhere) Final(error) bool        { return false }
func (nowhere) Vain(error) bool         { return false }
func (nowhere) Blameless(error) bool    { return false }

// forgetful is node-local metadata that keeps nothing.
type forgetful struct{}

func (forgetful) Get(string) ([]byte, bool) { return nil, false }
func (forgetful) Set(string, []byte)        {}
func (forgetful) Delete(string)             {}
func (forgetful) Keys(func(string))         {}

// seals is a store as a tracker sees it.
type seals struct{ *store }

func (s seals) Seal(ctx context.Context, reference string, n, count uint64) error {
	_, err := s.store.Seal(ctx, reference, n, count)
	return err
}

// tracked is a node with a tracker and the state of a cluster.
type tracked struct {
	*node
	state *clustertest.State
	born  state.Incarnation
	none  atomic.Bool
	done  context.CancelFunc
	ended chan error
}

func alone(t *testing.T, fn func(w *world, n *tracked)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{TB: t, nodes: map[state.NodeID]*node{}, all: []state.NodeID{"a"}}
		n := &tracked{
			node:  &node{w: w, id: "a", store: newStore(), fences: &fences{}},
			state: clustertest.New(t, clustertest.Setup{Nodes: clustertest.Members("a"), Replication: 1, WriteCopies: 1}),
		}
		w.nodes["a"] = n.node
		n.state.Apply(t, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
		n.born = n.state.NewBucket(t, clustertest.Operator, "bucket", false).Born
		n.store.judge = func(reference string) bool { return private(n.state, reference) }
		n.run()
		fn(w, n)
		n.halt()
	})
}

// private tells whether a reference is sealed as hidden: nothing names it, or private
// objects alone.
func private(st *clustertest.State, reference string) bool {
	c, ok := tracker.RootOf(reference)
	if !ok {
		return true
	}
	view, release := st.LocalView()
	defer release()
	root, err := view.Root(state.RootOf(c))
	return err != nil || root.Private()
}

// run starts the node, and its tracker, as a process that has just started.
func (n *tracked) run() { n.runWith(func(*tracker.Options) {}) }

// runWith is run with other options of the tracker.
func (n *tracked) runWith(change func(*tracker.Options)) {
	g := tracker.NewLeases()
	options := tracker.Options{
		Self: n.id, State: n.state, Watch: n.state.Watch, Blocks: seals{n.store}, Fetcher: nowhere{}, NodeMeta: forgetful{},
		Leases: g, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	}
	change(&options)
	tr, err := tracker.New(options)
	if err != nil {
		n.w.Fatal(err)
	}
	n.start(func(o *Options) {
		o.Leases, o.Fences, o.Reference = g, epochs{n.id, n.state, &n.none}, tracker.Reference
	})
	ctx, cancel := context.WithCancel(context.Background())
	n.done, n.ended = cancel, make(chan error, 1)
	go func() { n.ended <- tr.Run(ctx) }()
}

func (n *tracked) halt() {
	n.stop()
	n.done()
	if err := <-n.ended; err != nil {
		n.w.Errorf("Run of the tracker: %v", err)
	}
}

func (n *tracked) store1(data []byte) *Stored {
	n.w.Helper()
	s, err := n.Store(n.w.Context(), bytes.NewReader(data), Placement{Nodes: []state.NodeID{"a"}, Copies: 1})
	if err != nil {
		n.w.Fatal(err)
	}
	return s
}

// name names content by a command.
func (n *tracked) name(s *Stored) error {
	_, err := n.state.Propose(context.Background(), &state.PutObject{
		Account: clustertest.Operator, Bucket: "bucket", Born: n.born, Content: s.Content,
		Object: state.Object{ID: "v1", Key: "key", Root: s.Content.Root, Size: s.Size, Created: 1, ETag: "d41d8cd98f00b204e9800998ecf8427e"},
	})
	return err
}

func (n *tracked) has(s *Stored) bool {
	_, _, _, ok, err := n.store.Reference(context.Background(), tracker.Reference(s.Content.Root))
	if err != nil {
		n.w.Fatal(err)
	}
	return ok
}

func (n *tracked) wantHas(s *Stored, after time.Duration, want bool) {
	n.w.Helper()
	<-time.After(after)
	synctest.Wait()
	if got := n.has(s); got != want {
		n.w.Errorf("after %v: here %t, want %t", after, got, want)
	}
}

// A node keeps content between the seal and the command that names it, and drops it within a minute after the object
// is deleted. Between the two nothing in the state wants the root, and audits find it.
func TestLeasedContentIsNotDropped(t *testing.T) {
	forSizes(t, func(t *testing.T, data []byte) {
		alone(t, func(w *world, n *tracked) {
			s := n.store1(data)
			n.wantHas(s, 2*time.Hour, true)
			if err := n.name(s); err != nil {
				t.Fatal(err)
			}
			s.Done(true)
			n.wantHas(s, 2*time.Hour, true)
			_, err := n.state.Propose(context.Background(), &state.DeleteObjects{
				Account: clustertest.Operator, Bucket: "bucket", Born: n.born, Keys: []string{"key"},
			})
			if err != nil {
				t.Fatal(err)
			}
			n.wantHas(s, time.Minute, false)
		})
	})
}

// wantHidden checks what unknown peers see of content, and how often the store was asked.
func (n *tracked) wantHidden(s *Stored, want bool, looks int) {
	n.w.Helper()
	synctest.Wait()
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	reference := tracker.Reference(s.Content.Root)
	if _, sealed := n.store.sealed[reference]; !sealed || n.store.hidden[reference] != want || n.store.looks != looks {
		n.w.Errorf("sealed %t, hidden %t, want %t; %d questions, want %d", sealed, n.store.hidden[reference], want, n.store.looks, looks)
	}
}

// A put needs at most one read of the state by the tracker, whether its event comes before or after the end of its
// lease. A put of content that is here already needs none.
func TestAPutInItsNormalCourseIsLookedAtOnce(t *testing.T) {
	forSizes(t, func(t *testing.T, data []byte) {
		for _, lag := range []time.Duration{0, time.Minute, -500 * time.Millisecond} {
			alone(t, func(w *world, n *tracked) {
				<-time.After(time.Second) // the audit at the start
				s := n.store1(data)
				if lag < 0 { // the end comes first
					s.Done(true)
					<-time.After(-lag)
				}
				if err := n.name(s); err != nil {
					t.Fatal(err)
				}
				if lag >= 0 {
					<-time.After(lag)
					s.Done(true)
				}
				before := n.state.Reads()
				n.wantHidden(s, true, 0)
				<-time.After(5 * time.Second)
				n.wantHidden(s, true, 0)
				if reads := n.state.Reads() - before; reads > 1 {
					t.Errorf("%d reads of the state, want the one of the event at the most", reads)
				}
				again := n.store1(data) // which is here already
				before = n.state.Reads()
				again.Done(true)
				<-time.After(5 * time.Second)
				n.wantHidden(s, true, 0)
				if reads := n.state.Reads() - before; reads > 0 {
					t.Errorf("%d reads of the state after a put of what is here", reads)
				}
			})
		}
	})
}

// Content of a public bucket is visible to unknown peers as soon as the object is named, and hidden when the bucket
// turns private. It was sealed as content that nobody names.
func TestAPutIntoAPublicBucketIsShownAtOnce(t *testing.T) {
	alone(t, func(w *world, n *tracked) {
		<-time.After(time.Second)
		public := &state.SetBucketPublic{Account: clustertest.Operator, Name: "bucket", Born: n.born, Public: true}
		n.state.Apply(t, public)
		s := n.store1([]byte("public"))
		n.wantHidden(s, true, 0)
		if err := n.name(s); err != nil {
			t.Fatal(err)
		}
		n.wantHidden(s, false, 1)
		s.Done(true)
		private := *public
		private.Public = false
		n.state.Apply(t, &private)
		n.wantHidden(s, true, 2)
	})
}

// Content that is named long after its lease has ended is kept like any other.
func TestAnEventLongAfterTheEndIsLookedAt(t *testing.T) {
	alone(t, func(w *world, n *tracked) {
		<-time.After(time.Second)
		n.state.Fail(state.ErrUnavailable) // nothing is dropped meanwhile
		s := n.store1([]byte("late"))
		s.Done(true)
		<-time.After(5 * time.Second)
		n.state.Fail(nil)
		if err := n.name(s); err != nil {
			t.Fatal(err)
		}
		n.wantHidden(s, true, 1)
		n.wantHas(s, time.Minute, true)
	})
}

// A node drops, within a minute, the content of a put that was given up.
func TestWhatWasGivenUpIsDropped(t *testing.T) {
	alone(t, func(w *world, n *tracked) {
		s := n.store1([]byte("given up"))
		s.Done(false)
		n.wantHas(s, time.Minute, false)
	})
}

// A node drops the content of a put with an unknown outcome only after a fence, and the command that comes after the
// fence fails.
func TestAfterAnUnknownEndOnlyAFenceDrops(t *testing.T) {
	alone(t, func(w *world, n *tracked) {
		s := n.store1([]byte("unknown"))
		n.none.Store(true)
		s.Unknown()
		n.wantHas(s, 2*time.Hour, true)
		n.none.Store(false)
		n.wantHas(s, 2*fenceEvery, false)
		if err := n.name(s); !errors.Is(err, state.ErrConflict) {
			t.Errorf("a command that comes after the fence: %v", err)
		}
	})
}

// A node that restarts drops the content of earlier puts only after a fence, and keeps what was named before it.
func TestAfterARestartOnlyAFenceDrops(t *testing.T) {
	alone(t, func(w *world, n *tracked) {
		kept, gone := n.store1([]byte("named")), n.store1([]byte("not named"))
		n.halt()
		n.none.Store(true)
		n.run()
		<-time.After(2 * time.Hour)
		if !n.has(kept) || !n.has(gone) {
			t.Error("it was dropped before a fence")
		}
		if err := n.name(kept); err != nil { // the command was on its way all the time
			w.Fatal(err)
		}
		n.none.Store(false)
		n.wantHas(gone, time.Hour, false)
		n.wantHas(kept, time.Hour, true)
	})
}
