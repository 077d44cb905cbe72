// Package upkeep does two tasks of an operator on one node: it collects garbage at once, and it
// checks that the state and the block store agree with themselves and with each other.
//
// Imports: std, consensus/state, cluster/tracker.
// Never:   storage, peer, consensus.
package upkeep

import (
	"context"
	"fmt"

	"github.com/holdfast-ipfs/holdfast/cluster/tracker"
)

// Usage are the sizes of the block store at one moment.
type Usage struct {
	LiveBytes uint64 // bytes of readable blocks
	DiskBytes uint64 // size of all segment files
}

// Freed counts what the block store has freed since its start.
type Freed struct {
	Blocks, Bytes    uint64 // blocks that lost their last reference
	Files, FileBytes uint64 // removed segment files
}

// Garbage is the part of the block store that the collection needs.
type Garbage interface {
	// Collect removes blocks without references and the space that they take in the files.
	Collect(ctx context.Context) error
	// Freed returns what the store has freed since its start.
	Freed() Freed
	// Usage returns the sizes of the store.
	Usage() Usage
	// References calls fn for each reference with a prefix, with its size in bytes.
	References(ctx context.Context, prefix string, fn func(reference string, bytes uint64) (more bool, err error)) error
}

// Roots drops content that the state does not want on this node.
type Roots interface {
	// Collect drops it, and waits until it is dropped.
	Collect(ctx context.Context) (tracker.Collected, error)
}

// Imports drops imported content that is pinned or has expired.
type Imports interface {
	// Sweep does that once.
	Sweep(ctx context.Context)
}

// Collector collects garbage on request. Its fields are required.
type Collector struct {
	garbage Garbage
	roots   Roots
	imports Imports
	puts    string // prefix of the references of bodies that are arriving
	leases  string // prefix of the references of imports without a pin

	running chan struct{} // a lock: has a value while a collection runs
}

// NewCollector returns a Collector. puts and leases are the prefixes of the references of arriving
// bodies and of imports without a pin.
func NewCollector(garbage Garbage, roots Roots, imports Imports, puts, leases string) *Collector {
	return &Collector{garbage, roots, imports, puts, leases, make(chan struct{}, 1)}
}

// Held is content that cannot be freed yet.
type Held struct{ Count, Bytes uint64 }

func held(k tracker.Kept) Held { return Held{Count: k.Roots, Bytes: k.Bytes} }

// Collection is the result of Collect.
type Collection struct {
	Freed
	Usage
	// What cannot be freed yet: bodies that are arriving; imports that wait for their pin; content of
	// uploads whose outcome is unknown; content that somebody reads; content of which this node may
	// have the last copy; and content whose deletion waits for a majority of the members.
	Uploads, Imports, Leased, Read, Last, Waiting Held
}

// Collect frees at once what the node would free later: content that the state does not want on
// this node, imports that are pinned or have expired, blocks without references, and the space of
// both. It frees nothing that a lease or a running upload protects. If another collection runs,
// Collect waits for it first.
func (c *Collector) Collect(ctx context.Context) (out Collection, err error) {
	select {
	case c.running <- struct{}{}:
		defer func() { <-c.running }()
	case <-ctx.Done():
		return out, ctx.Err()
	}
	before := c.garbage.Freed()
	c.imports.Sweep(ctx)
	kept, err := c.roots.Collect(ctx)
	if err != nil {
		return out, fmt.Errorf("upkeep: drop unwanted content: %w", err)
	}
	out.Leased, out.Read, out.Last, out.Waiting = held(kept.Leased), held(kept.Read), held(kept.Last), held(kept.Waiting)
	if err := c.garbage.Collect(ctx); err != nil {
		return out, fmt.Errorf("upkeep: free space: %w", err)
	}
	for _, of := range []struct {
		prefix string
		held   *Held
	}{{c.puts, &out.Uploads}, {c.leases, &out.Imports}} {
		err := c.garbage.References(ctx, of.prefix, func(_ string, bytes uint64) (bool, error) {
			of.held.Count++
			of.held.Bytes += bytes
			return true, nil
		})
		if err != nil {
			return out, fmt.Errorf("upkeep: list %s: %w", of.prefix, err)
		}
	}
	after := c.garbage.Freed()
	out.Usage = c.garbage.Usage()
	out.Freed = Freed{
		Blocks: after.Blocks - before.Blocks, Bytes: after.Bytes - before.Bytes,
		Files: after.Files - before.Files, FileBytes: after.FileBytes - before.FileBytes,
	}
	return out, nil
}

// Upkeep has both tasks.
type Upkeep struct {
	*Collector
	*Checker
}
