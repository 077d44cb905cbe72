// Package placement decides which nodes store a root. The decision is a pure function of the root
// and the known nodes. So all nodes with the same information decide alike, and a node that joins
// or leaves causes as few moves as possible.
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
	// MinFree is the number of free bytes below which a node gets new roots only if no node with
	// more free space is left.
	MinFree = 256 << 20

	// queueHalf is the length of the fetch queue at which a node's share of new roots is halved.
	// It is much more than a node fetches between two samples, so that a short burst does not
	// change the placement.
	queueHalf = 1024
)

// Node is a member with the facts that placement uses.
type Node struct {
	ID state.NodeID
	// Free and Used are bytes on the disk of the block store: the free space, and the space that
	// blocks take.
	Free, Used uint64
	// Queue is the number of roots that the node has not fetched yet.
	Queue int
	// Full is true for a node that refuses new content because it has no capacity.
	Full bool
	// Alive is false for a node that is down and should get no content. Draining is true
	// for a node whose content is being moved away.
	Alive, Draining bool
}

// rank is the first criterion of the order: nodes with a smaller rank are chosen first.
type rank uint8

const (
	kept        rank = iota // stores the root already, is alive and is not draining
	hasCapacity             // can store it
	full                    // can store it, but has less than MinFree bytes free
	draining                // is alive, but its content is being moved away
	dead                    // is down
)

// candidate is a node with the criteria by which candidates are sorted.
type candidate struct {
	id    state.NodeID
	rank  rank
	score float64 // orders nodes of the same rank; the largest is chosen first
}

// Choose returns the nodes that should store root: up to copies different nodes, sorted by id.
//
// Nodes in keep that are alive and not draining come first, so that content does not move without
// need. The others are sorted by weighted rendezvous hashing: a node's share of roots is
// proportional to its free bytes, and smaller if its queue is long. If a node joins or leaves,
// the order of the other nodes does not change. Nodes with less than MinFree bytes come after
// these. Draining and dead nodes are chosen only if there are no other nodes: fewer copies now
// are better than copies that must be moved at once.
//
// A node with Full set is chosen only if it is in keep. So the result may have fewer than copies
// nodes, or none. It does not depend on the order of nodes or of keep.
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
	worst := max(full, all[0].rank) // draining or dead nodes are used only if there are no others
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

// score returns the rendezvous score of a node for a root: weight / -ln(u), where u is the hash
// of both, mapped to (0, 1). The probability that a node has the highest score is its weight
// divided by the sum of all weights.
func score(root state.RootKey, n Node) float64 {
	weight := (float64(n.Free) + 1) / (1 + float64(max(n.Queue, 0))/queueHalf)
	u := (float64(hash(root, n.ID)>>11) + 0.5) / (1 << 53)
	return weight / -math.Log(u)
}

// hash maps a root and a node id to 64 bits by FNV-1a and the finalizer of splitmix64; FNV alone
// distributes short inputs badly in the high bits. It must never change, because another hash
// would move almost every root.
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
