package upkeep

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-ipfs/holdfast/cluster/tracker"
)

// node stands in for what a collection uses. It notes the calls in their order.
type node struct {
	calls      []string
	freed      Freed
	references map[string]uint64
	kept       tracker.Collected
	fail       map[string]error
	during     func() // called while the store collects
}

func (n *node) call(name string) error {
	n.calls = append(n.calls, name)
	return n.fail[name]
}

func (n *node) Sweep(context.Context) { _ = n.call("sweep") }

func (n *node) Freed() Freed { return n.freed }

func (n *node) Usage() Usage { return Usage{LiveBytes: 50, DiskBytes: 60} }

func (n *node) References(_ context.Context, prefix string, fn func(string, uint64) (bool, error)) error {
	for name, bytes := range n.references {
		if strings.HasPrefix(name, prefix) {
			if more, err := fn(name, bytes); !more || err != nil {
				return err
			}
		}
	}
	return n.call("list " + prefix)
}

// roots collects the roots of a node.
type roots struct{ *node }

func (r roots) Collect(context.Context) (tracker.Collected, error) {
	r.freed.Blocks, r.freed.Bytes = r.freed.Blocks+3, r.freed.Bytes+300
	return r.kept, r.call("roots")
}

// space collects the garbage of a node.
type space struct{ *node }

func (s space) Collect(context.Context) error {
	if s.during != nil {
		s.during()
	}
	s.freed.Files, s.freed.FileBytes = s.freed.Files+1, s.freed.FileBytes+400
	return s.call("space")
}

func (n *node) collector() *Collector { return NewCollector(space{n}, roots{n}, n, "put/", "lease/") }

// A collection drops imports and content first and frees their space then. It counts what this collection has
// freed, and what has to stay.
func TestACollectionCountsWhatItFreesAndWhatStays(t *testing.T) {
	n := &node{
		freed:      Freed{Blocks: 1000, Bytes: 1000, Files: 1000, FileBytes: 1000},
		references: map[string]uint64{"put/1": 5, "put/2": 6, "lease/1": 7, "root/x": 8},
		kept: tracker.Collected{
			Dropped: 9, Leased: tracker.Kept{Roots: 1, Bytes: 2}, Read: tracker.Kept{Roots: 3, Bytes: 4},
			Last: tracker.Kept{Roots: 5, Bytes: 6}, Waiting: tracker.Kept{Roots: 7, Bytes: 8},
		},
	}
	got, err := n.collector().Collect(t.Context())
	want := Collection{
		Freed: Freed{Blocks: 3, Bytes: 300, Files: 1, FileBytes: 400}, Usage: Usage{LiveBytes: 50, DiskBytes: 60},
		Uploads: Held{2, 11}, Imports: Held{1, 7}, Leased: Held{1, 2}, Read: Held{3, 4}, Last: Held{5, 6}, Waiting: Held{7, 8},
	}
	if err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if !slices.Equal(n.calls, []string{"sweep", "roots", "space", "list put/", "list lease/"}) {
		t.Errorf("%q", n.calls)
	}
}

// A collection ends with the first error of what it uses.
func TestACollectionEndsWithAnError(t *testing.T) {
	for _, name := range []string{"roots", "space", "list put/", "list lease/"} {
		gone := errors.New("the disk is gone")
		n := &node{fail: map[string]error{name: gone}}
		if _, err := n.collector().Collect(t.Context()); !errors.Is(err, gone) || n.calls[len(n.calls)-1] != name {
			t.Errorf("%s: %v after %q", name, err, n.calls)
		}
	}
}

// Of two collections, the second one begins after the first one, or ends with its caller.
func TestTwoCollectionsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		c := n.collector()
		inside := make(chan struct{})
		n.during = func() { <-inside }
		ends := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := c.Collect(context.Background())
				ends <- err
			}()
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := c.Collect(ctx); !errors.Is(err, context.Canceled) || len(n.calls) != 2 {
			t.Errorf("%v after %q", err, n.calls)
		}
		close(inside)
		if err := errors.Join(<-ends, <-ends); err != nil || len(n.calls) != 10 {
			t.Errorf("%v after %q", err, n.calls)
		}
	})
}
