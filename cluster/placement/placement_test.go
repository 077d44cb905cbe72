package placement

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"pgregory.net/rapid"
)

const gib = 1 << 30

func up(id string, free uint64) Node { return Node{ID: state.NodeID(id), Free: free, Alive: true} }

func ids(names ...string) []state.NodeID {
	out := make([]state.NodeID, len(names))
	for i, n := range names {
		out[i] = state.NodeID(n)
	}
	return out
}

// Choose keeps the live nodes of a root, prefers others with room, and takes draining and dead ones only if there is
// no other.
func TestChooseByRank(t *testing.T) {
	down := func(id string) Node { return Node{ID: state.NodeID(id), Free: gib} }
	leaving := func(id string) Node { return Node{ID: state.NodeID(id), Free: gib, Alive: true, Draining: true} }
	for _, tc := range []struct {
		name   string
		copies int
		nodes  []Node
		keep   []state.NodeID
		want   []state.NodeID
	}{
		{"no node", 3, nil, nil, nil},
		{"no copy asked", 0, []Node{up("a", gib)}, nil, nil},
		{"negative copies", -1, []Node{up("a", gib)}, nil, nil},
		{"fewer nodes than copies", 3, []Node{up("b", gib), up("a", gib)}, nil, ids("a", "b")},
		{"kept ones stay, whatever their room", 2, []Node{up("a", 100*gib), up("b", 0), up("c", 1), up("d", 100*gib)}, ids("c", "b"), ids("b", "c")},
		{"a kept one that is down is replaced", 2, []Node{down("a"), up("b", gib), up("c", gib)}, ids("a", "b"), ids("b", "c")},
		{"a kept one that drains is replaced", 2, []Node{leaving("a"), up("b", gib), up("c", gib)}, ids("a", "b"), ids("b", "c")},
		{"a kept one that has left is no node", 2, []Node{up("b", gib), up("c", gib)}, ids("gone", "b"), ids("b", "c")},
		{"full ones come last", 2, []Node{up("a", MinFree-1), up("b", MinFree), up("c", MinFree)}, nil, ids("b", "c")},
		{"full ones come before nothing", 3, []Node{up("a", 0), up("b", gib), down("c")}, nil, ids("a", "b")},
		{"dead ones are not taken to fill up", 3, []Node{down("a"), up("b", gib), leaving("c")}, nil, ids("b")},
		{"draining ones when there is no other", 3, []Node{down("a"), leaving("b"), leaving("c")}, nil, ids("b", "c")},
		{"dead ones when there is no other", 2, []Node{down("a"), down("b")}, nil, ids("a", "b")},
		{"a node that is named twice is one", 3, []Node{up("a", gib), up("a", gib), up("b", gib)}, nil, ids("a", "b")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Choose("root", tc.copies, tc.nodes, tc.keep); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// A node with less than MinFree bytes free is not chosen beside one with MinFree.
func TestFullBeginsBelowMinFree(t *testing.T) {
	nodes := []Node{up("a", MinFree-1), up("b", MinFree)}
	for i := range 50 {
		if got := Choose(state.RootKey(fmt.Sprint(i)), 1, nodes, nil); !slices.Equal(got, ids("b")) {
			t.Fatalf("root %d is placed on %v", i, got)
		}
	}
}

// The hash that ranks nodes has the values that it had: it is a format, on which nodes of different releases must
// agree.
func TestHashStaysAsItIs(t *testing.T) {
	for _, tc := range []struct {
		root state.RootKey
		id   state.NodeID
		want uint64
	}{
		{"", "", 0x25fc6dd36ce04b20},
		{"root", "node", 0x75b0ad22eb8206ac},
		{"ab", "c", 0x843f56deeb0e0db0},
		{"a", "bc", 0xeaa7d656308787d4},
	} {
		if got := hash(tc.root, tc.id); got != tc.want {
			t.Errorf("hash(%q, %q) = %#x, want %#x", string(tc.root), tc.id, got, tc.want)
		}
	}
}

// anyNodes returns up to 12 nodes of every kind.
func anyNodes(t *rapid.T) []Node {
	n := rapid.IntRange(1, 12).Draw(t, "nodes")
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i] = Node{
			ID:       state.NodeID(fmt.Sprintf("node-%02d", i)),
			Free:     rapid.SampledFrom([]uint64{0, 1, MinFree, gib, 50 * gib, math.MaxUint64}).Draw(t, "free"),
			Queue:    rapid.SampledFrom([]int{-1, 0, 10, 5000}).Draw(t, "queue"),
			Alive:    rapid.IntRange(0, 3).Draw(t, "alive") > 0,
			Draining: rapid.IntRange(0, 5).Draw(t, "draining") == 0,
		}
	}
	return nodes
}

func someOf(t *rapid.T, nodes []Node) []state.NodeID {
	var some []state.NodeID
	for _, n := range nodes {
		if rapid.Bool().Draw(t, "keep") {
			some = append(some, n.ID)
		}
	}
	return some
}

func fit(n Node) bool { return n.Alive && !n.Draining }

// Choose returns as many fit nodes as it can, sorted and each once, keeps the kept ones, and does not depend on the
// order of its input.
func TestChooseProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := anyNodes(t)
		keep := someOf(t, nodes)
		root := state.RootKey(rapid.String().Draw(t, "root"))
		copies := rapid.IntRange(1, 6).Draw(t, "copies")
		got := Choose(root, copies, nodes, keep)

		fits := 0
		for _, n := range nodes {
			if fit(n) {
				fits++
			}
		}
		if fits > 0 && len(got) != min(copies, fits) {
			t.Fatalf("%d nodes for %d copies with %d fit nodes", len(got), copies, fits)
		}
		if len(got) == 0 || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Fatalf("not sorted, each once: %v", got)
		}
		kept, keepable := 0, 0
		for _, n := range nodes {
			chosen := slices.Contains(got, n.ID)
			if fits > 0 && chosen && !fit(n) {
				t.Fatalf("%v chosen beside fit nodes", n)
			}
			if fit(n) && slices.Contains(keep, n.ID) {
				keepable++
				if chosen {
					kept++
				}
			}
		}
		if kept != min(keepable, copies) {
			t.Fatalf("%d of %d kept nodes stay, %d copies", kept, keepable, copies)
		}

		shuffled := rapid.Permutation(nodes).Draw(t, "order")
		if again := Choose(root, copies, shuffled, rapid.Permutation(keep).Draw(t, "keep order")); !slices.Equal(again, got) {
			t.Fatalf("order of the input shows: %v and %v", got, again)
		}
		if fits >= copies {
			if again := Choose(root, copies, nodes, got); !slices.Equal(again, got) {
				t.Fatalf("an answer is not kept: %v becomes %v", got, again)
			}
		}
	})
}

// missing counts the elements of a that b lacks.
func missing(a, b []state.NodeID) (n int) {
	for _, x := range a {
		if !slices.Contains(b, x) {
			n++
		}
	}
	return n
}

// A node that leaves changes at most one place in the answer of Choose, and none if it had none.
func TestANodeThatLeavesMovesOnlyItsOwnPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := anyNodes(t)
		for i := range nodes { // ranks of the others stay
			nodes[i].Alive, nodes[i].Draining = true, false
		}
		nodes = append(nodes, up("node-zz", gib))
		gone := rapid.IntRange(0, len(nodes)-1).Draw(t, "gone")
		rest := slices.Delete(slices.Clone(nodes), gone, gone+1)
		root := state.RootKey(rapid.String().Draw(t, "root"))
		copies := rapid.IntRange(1, 5).Draw(t, "copies")

		before, after := Choose(root, copies, nodes, nil), Choose(root, copies, rest, nil)
		if !slices.Contains(before, nodes[gone].ID) {
			if !slices.Equal(before, after) {
				t.Fatalf("a node that kept nothing changes %v to %v", before, after)
			}
			return
		}
		if missing(before, after) != 1 || missing(after, before) > 1 {
			t.Fatalf("without %s: %v becomes %v", nodes[gone].ID, before, after)
		}
	})
}

// Each node gets a share of all copies in proportion to its free bytes, and half as much with a queue of queueHalf,
// within 1.5 %.
func TestSharesFollowFreeBytesAndQueues(t *testing.T) {
	const roots = 20_000
	busy := up("busy", 4*gib)
	busy.Queue = queueHalf
	for _, tc := range []struct {
		name   string
		copies int
		nodes  []Node
		want   map[state.NodeID]float64 // share of all copies
	}{
		{"equal", 1, []Node{up("a", gib), up("b", gib), up("c", gib), up("d", gib)}, map[state.NodeID]float64{"a": .25, "b": .25, "c": .25, "d": .25}},
		{"three to one", 1, []Node{up("a", 3*gib), up("b", gib)}, map[state.NodeID]float64{"a": .75, "b": .25}},
		{"three copies of equals", 3, []Node{up("a", gib), up("b", gib), up("c", gib), up("d", gib), up("e", gib)}, map[state.NodeID]float64{"a": .2, "b": .2, "c": .2, "d": .2, "e": .2}},
		{"half by queue", 1, []Node{busy, up("a", 4*gib), up("b", 2*gib)}, map[state.NodeID]float64{"busy": .25, "a": .5, "b": .25}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			counts := map[state.NodeID]int{}
			for i := range roots {
				for _, id := range Choose(state.RootKey(fmt.Sprintf("root %d", i)), tc.copies, tc.nodes, nil) {
					counts[id]++
				}
			}
			for id, want := range tc.want {
				got := float64(counts[id]) / float64(roots*tc.copies)
				if math.Abs(got-want) > 0.015 {
					t.Errorf("%s has a share of %.3f, want %.3f", id, got, want)
				}
			}
		})
	}
}

func BenchmarkChoose(b *testing.B) {
	for _, n := range []int{3, 32, state.MaxNodes} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			nodes := make([]Node, n)
			for i := range nodes {
				nodes[i] = up(fmt.Sprintf("12D3KooWGzBXWNvHpLALvWw4rt5HdwGhEZ4kGkYk%012d", i), uint64(i+1)*gib)
			}
			b.ReportAllocs()
			for b.Loop() {
				Choose("0123456789012345678901234567890123456", 3, nodes, nil)
			}
		})
	}
}
