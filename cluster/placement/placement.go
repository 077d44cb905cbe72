// Package placement decides which nodes keep a root. The decision is a pure function
// of the root and of the known nodes. So all nodes with the same knowledge decide
// alike, and a node that joins or leaves moves as few roots as possible.
//
// Imports: std, consensus/state.
// Never:   clocks, randomness, goroutines, input and output.
package placement

import (
	"cmp"
	"math"
	"slices"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

const (
	// MinFree is the number of free bytes below which a node counts as full: it
	// is given new roots only when no node with more room is left.
	MinFree = 256 << 20

	// queueHalf is the length of a queue that halves a node's share of new
	// roots. It is long beside what a node works off between two samples, so
	// that a short burst does not move placement.
	queueHalf = 1024
)

// Node is what placement knows of a member.
type Node struct {
	ID state.NodeID
	// Free and Used are bytes of the block store's disk: what is left, and what
	// blocks take.
	Free, Used uint64
	// Queue is the number of roots that the node has still to fetch.
	Queue int
	// Full is true for a node that refuses new content for want of room.
	Full bool
	// Alive is false for a node that should not be given content because it is
	// down. Draining is true for one whose content is being moved away.
	Alive, Draining bool
}

// rank orders nodes before scores do: a smaller one is chosen first.
type rank uint8

const (
	kept        rank = iota // keeps the root already, and can go on
	hasCapacity             // can take it
	full                    // can take it, hardly
	draining                // should not, but is up
	dead                    // should not
)

// candidate is a node with its place in the order.
type candidate struct {
	id    state.NodeID
	rank  rank
	score float64 // larger is better, within a rank
}

// Choose returns the nodes that should keep root, sorted by id, each once:
// copies of them if there are as many.
//
// Nodes without room for new content are chosen only when they are among keep,
// so that the answer may be shorter than it could be, and empty.
//
// Nodes of keep that are alive and not draining come first, so that content
// does not move without need. The rest is chosen by weighted rendezvous
// hashing: a node's share of all roots is in proportion to its free bytes, less
// with a long queue, and nodes that come or go change no more of an answer than
// their own place in it. Full nodes come after all others. Draining and dead
// nodes are chosen only when there is no other node at all: fewer copies now
// are better than copies that have to be moved at once.
//
// The answer does not depend on the order of nodes or of keep.
func Choose(root state.RootKey, copies int, nodes []Node, keep []state.NodeID) []state.NodeID {
	copies = min(copies, state.MaxCopies)
	if copies <= 0 || len(nodes) == 0 {
		return nil
	}
	all := make([]candidate, 0, len(nodes))
	for _, n := range nodes {
		if n.Full && !slices.Contains(keep, n.ID) {
			continue
		}
		all = append(all, candidate{id: n.ID, rank: rankOf(n, keep), score: score(root, n)})
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.score, a.score), cmp.Compare(a.id, b.id))
	})
	if len(all) == 0 {
		return nil
	}
	worst := max(full, all[0].rank) // draining or dead ones only among themselves
	chosen := make([]state.NodeID, 0, copies)
	for _, c := range all {
		if c.rank > worst || len(chosen) == copies {
			break
		}
		if !slices.Contains(chosen, c.id) {
			chosen = append(chosen, c.id)
		}
	}
	slices.Sort(chosen)
	return chosen
}

func rankOf(n Node, keep []state.NodeID) rank {
	switch {
	case !n.Alive:
		return dead
	case n.Draining:
		return draining
	case slices.Contains(keep, n.ID):
		return kept
	case n.Free < MinFree:
		return full
	}
	return hasCapacity
}

// score is the rendezvous score of a node for a root: weight / -ln(u) with u
// uniform in (0, 1) by the hash of both, which gives every node the chance
// weight / sum of weights to have the best one.
func score(root state.RootKey, n Node) float64 {
	weight := (float64(n.Free) + 1) / (1 + float64(max(n.Queue, 0))/queueHalf)
	u := (float64(hash(root, n.ID)>>11) + 0.5) / (1 << 53)
	return weight / -math.Log(u)
}

// hash mixes both names into 64 bits: FNV-1a, and the finalizer of splitmix64
// because FNV alone leaves the high bits of short inputs alike. It must stay as
// it is: another hash would move every root that is placed anew.
func hash(root state.RootKey, id state.NodeID) uint64 {
	const prime, offset = 1099511628211, 14695981039346656037
	h := uint64(offset)
	for i := range len(root) {
		h = (h ^ uint64(root[i])) * prime
	}
	h = (h ^ uint64(len(root))) * prime // ("ab", "c") is not ("a", "bc")
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * prime
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
