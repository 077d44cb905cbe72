package upkeep

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/cluster/tracker"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
	mh "github.com/multiformats/go-multihash"
)

// self is the node that is checked.
const self state.NodeID = "a"

// cidAt returns the CID of the n-th root, and key its key.
func cidAt(n int) cid.Cid {
	sum, err := mh.Sum(fmt.Appendf(nil, "root %d", n), mh.SHA2_256, -1)
	if err != nil {
		panic(err)
	}
	return cid.NewCidV1(cid.Raw, sum)
}

func key(n int) state.RootKey { return state.RootOf(cidAt(n)) }

// world is a node with its state and a block store in memory.
type world struct {
	*clustertest.State
	t testing.TB

	stateFound, blocksFound state.Fsck
	fail                    error

	mu     sync.Mutex
	copies map[string]Copy
	keeps  map[state.RootKey]tracker.Why
	looks  int // calls of Copy
	looked func(n int)
}

func newWorld(t testing.TB) *world {
	st := clustertest.New(t, clustertest.Setup{Nodes: clustertest.Members(self, "b", "c"), WriteCopies: 1})
	return &world{
		State: st, t: t, stateFound: state.Fsck{Rows: 20}, blocksFound: state.Fsck{Rows: 30},
		copies: map[string]Copy{}, keeps: map[state.RootKey]tracker.Why{},
	}
}

func (w *world) Fsck(context.Context, int) (uint64, state.Fsck, error) {
	return 7, w.stateFound, w.fail
}

func (w *world) Keeps(_ context.Context, _ state.View, k state.RootKey) (tracker.Why, error) {
	return w.keeps[k], w.fail
}

// store is the block store of a world.
type store struct{ *world }

func (s store) Check(context.Context, int) (state.Fsck, error) { return s.blocksFound, s.fail }

func (s store) Copy(_ context.Context, reference string) (Copy, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.looks++; s.looked != nil {
		s.looked(s.looks)
	}
	return s.copies[reference], nil
}

func (s store) References(_ context.Context, prefix string, fn func(string, uint64) (bool, error)) error {
	s.mu.Lock()
	var all []string
	for reference := range s.copies {
		all = append(all, reference)
	}
	s.mu.Unlock()
	for _, reference := range all {
		if !strings.HasPrefix(reference, prefix) {
			continue
		}
		if more, err := fn(reference, 1); !more || err != nil {
			return err
		}
	}
	return nil
}

// pin creates a pin of the n-th root on this node, of which the state records a phase here.
func (w *world) pin(n int, phase state.Phase) {
	w.t.Helper()
	w.Apply(w.t, &state.CreatePin{
		Pin:   state.Pin{ID: state.RequestID(fmt.Sprint("p", n)), Account: clustertest.Operator, CID: cidAt(n).String(), Created: 1},
		Nodes: []state.NodeID{self, "b"},
	})
	view, release := w.LocalView()
	root, err := view.Root(key(n))
	release()
	if err != nil {
		w.t.Fatal(err)
	}
	w.Apply(w.t, &state.ReportCopies{Node: self, Items: []state.CopyReport{{Root: key(n), Born: root.Born, Phase: phase, Size: 1, Blocks: 1}}})
}

func (w *world) put(n int, c Copy) { w.copies[tracker.Reference(key(n))] = c }

func (w *world) check() Report {
	w.t.Helper()
	r, err := NewChecker(self, w, store{w}, w).Check(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// A check reports copies that are missing, incomplete or shown to the wrong peers, and content that nothing wants
// or protects. It reports no other copies.
func TestACheckComparesCopiesWithTheState(t *testing.T) {
	whole := Copy{There: true, Sealed: true, Whole: true}
	hidden, lacking, open := whole, whole, Copy{There: true, Whole: true}
	hidden.Hidden, lacking.Whole = true, false
	for _, tc := range []struct {
		name  string
		phase state.Phase // 0: no pin
		here  Copy
		why   tracker.Why
		want  string // "": no difference
	}{
		{"complete", state.Held, whole, 0, ""},
		{"missing", state.Held, Copy{}, 0, "stored nothing, computed a complete copy, which the state records"},
		{"not sealed", state.Held, open, 0, "stored an incomplete copy, computed a complete copy"},
		{"without some blocks", state.Held, lacking, 0, "stored a copy that lacks blocks, computed a complete copy, which the state records"},
		{"hidden", state.Held, hidden, 0, "stored a complete copy that is hidden from peers that are not members, computed a complete copy that is visible to all peers"},
		{"being fetched", state.Fetching, open, 0, ""},
		{"not begun", state.Fetching, Copy{}, 0, ""},
		{"fetched and not reported", state.Fetching, whole, 0, "computed an incomplete copy: the state records that it is fetching"},
		{"unwanted", 0, whole, 0, "stored a complete copy that is visible to all peers, computed nothing"},
		{"unwanted and incomplete", 0, open, 0, "stored an incomplete copy, computed nothing"},
		{"of an upload", 0, hidden, tracker.ForLease, ""},
		{"read", 0, hidden, tracker.ForReaders, ""},
		{"the last", 0, whole, tracker.AsLast, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				if tc.phase != 0 {
					w.pin(1, tc.phase)
				}
				if tc.here.There {
					w.put(1, tc.here)
				}
				w.keeps[key(1)] = tc.why
				w.copies["put/x"] = whole
				r := w.check()
				if tc.want == "" != (len(r.Differences) == 0) || r.Copies != 1 || r.Rows != 20 || r.Blocks != 30 || r.Index != 7 || r.More > 0 {
					t.Fatalf("%+v", r)
				}
				for _, d := range r.Differences {
					if !strings.HasPrefix(d.String(), "copy on this node "+key(1).String()) || !strings.Contains(d.String(), tc.want) {
						t.Errorf("%s, want %q", d, tc.want)
					}
				}
			})
		})
	}
}

// A check reports a reference that should be that of a root and names none.
func TestACheckReportsReferencesOfNoRoot(t *testing.T) {
	w := newWorld(t)
	w.copies["root/nonsense"] = Copy{There: true}
	if r := w.check(); len(r.Differences) != 1 || r.Differences[0].Key != "root/nonsense" {
		t.Errorf("%+v", r)
	}
}

// A difference that passes while the check runs is not reported. The check waits as long as differences pass, and
// no longer than settleFor after that.
func TestAPassingDifferenceIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const n = 20
		for i := range n {
			w.pin(i, state.Held)
		}
		came := 0
		w.looked = func(looks int) { // one copy arrives in each pass, the last one never
			if looks > n && looks%n == 0 && came < n-1 {
				w.put(came, Copy{There: true, Sealed: true, Whole: true})
				came++
			}
		}
		began := time.Now()
		r := w.check()
		if len(r.Differences) != 1 || r.Copies != n || came != n-1 {
			t.Errorf("%+v, %d arrived", r, came)
		}
		if took := time.Since(began); took < settleFor || took > 2*settleFor+n*settlePoll {
			t.Errorf("it took %s", took)
		}
	})
}

// A check reports what the checks of the state and of the block store have found, and no more than MaxDifferences one by
// one.
func TestACheckIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 80 {
			w.stateFound.Differences = append(w.stateFound.Differences, state.Difference{Key: fmt.Sprint(i)})
			w.blocksFound.Differences = append(w.blocksFound.Differences, state.Difference{Key: fmt.Sprint(i)})
		}
		w.stateFound.More, w.blocksFound.AtLeast = 3, true
		for i := range maxSuspects + 10 {
			w.put(i, Copy{There: true})
		}
		r := w.check()
		if all := uint64(len(r.Differences)) + r.More; len(r.Differences) != MaxDifferences || !r.AtLeast || all != 160+3+maxSuspects+10 {
			t.Errorf("%d differences and %d, %t", len(r.Differences), r.More, r.AtLeast)
		}
	})
}

// A check ends with an error of what it uses, and with its caller. Of two checks, the second one waits.
func TestACheckEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fail = errors.New("the disk is gone")
		c := NewChecker(self, w, store{w}, w)
		if _, err := c.Check(context.Background()); !errors.Is(err, w.fail) {
			t.Error(err)
		}
		w.fail = nil
		w.pin(1, state.Held)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		first := make(chan error, 1)
		go func() {
			_, err := c.Check(ctx)
			first <- err
		}()
		synctest.Wait()
		if _, err := c.Check(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := <-first; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
