package objects

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/holdfast-ipfs/holdfast/cluster/bao"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Bounds of computing what an upload could not tell of its hash.
const (
	// DefaultHashRate is how many bytes a second a node reads for it.
	DefaultHashRate = 32 << 20
	hashEvery       = 5 * time.Second // between two looks for versions without a hash
	hashPage        = 64              // versions of one look
	hashStep        = 1 << 20         // bytes that are read at once
	hashCheck       = 64 << 20        // bytes after which is asked whether the hash is still wanted
)

// Hashing is what a node does for the hashes of versions that do not know theirs.
type Hashing struct {
	reads atomic.Int64 // objects
	bytes atomic.Uint64
}

// Reads is how many objects are read now: one or none.
func (h *Hashing) Reads() int64 { return h.reads.Load() }

// Bytes is how many bytes have been read since the start.
func (h *Hashing) Bytes() uint64 { return h.bytes.Load() }

// Hashing tells how this node does.
func (o *Objects) Hashing() *Hashing { return &o.hashed }

// RunHashes computes, until ctx ends, the BLAKE3 hashes that versions do not know and
// that are this node's to compute: one after the other, at HashRate. What it is at when
// it ends begins anew with whoever has it next.
func (o *Objects) RunHashes(ctx context.Context) error {
	timer := time.NewTimer(hashEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if err := o.HashObjects(ctx); err != nil && ctx.Err() == nil {
			o.opts.Logger.WarnContext(ctx, "hashes of objects not computed", "err", err)
		}
		timer.Reset(hashEvery)
	}
}

// HashObjects is one pass of RunHashes over all versions without a hash. One that
// cannot be read is left for the next.
func (o *Objects) HashObjects(ctx context.Context) error {
	var after []byte
	var failed error
	for {
		mine, next, err := o.unhashed(after)
		if err != nil {
			return wrap("list versions without a hash", err)
		}
		for i := range mine {
			if err := o.hashObject(ctx, &mine[i]); err != nil {
				failed = fmt.Errorf("version %s: %w", mine[i].Object.ID, err)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		if after = next; after == nil {
			return failed
		}
	}
}

// unhashed returns those versions of a page that are this node's to hash, by what it
// has applied.
func (o *Objects) unhashed(after []byte) (mine []state.Unhashed, next []byte, err error) {
	view, release := o.opts.State.LocalView()
	defer release()
	page, next, err := view.Unhashed(after, hashPage)
	if err != nil || len(page) == 0 {
		return nil, nil, err
	}
	alive := map[state.NodeID]bool{}
	for _, n := range o.opts.Nodes.Candidates() {
		alive[n.ID] = n.Alive
	}
	for i := range page {
		root, err := view.Root(page[i].Object.Root)
		if err != nil {
			return nil, nil, err
		}
		if hasher(&root, page[i].Object.ID, alive) == o.opts.Self {
			mine = append(mine, page[i])
		}
	}
	return mine, next, nil
}

// hasher is the node that computes the hash of a version: one of those that hold its
// content and are alive, another one for each version. Nodes that see others alive may
// come to two of them, which costs only the work.
func hasher(root *state.Root, id state.VersionID, alive map[state.NodeID]bool) state.NodeID {
	var holders []state.NodeID
	for _, c := range root.Copies {
		if c.Phase == state.Held && alive[c.Node] {
			holders = append(holders, c.Node)
		}
	}
	if len(holders) == 0 {
		return ""
	}
	sum := fnv.New32a()
	sum.Write([]byte(id))
	return holders[sum.Sum32()%uint32(len(holders))]
}

// hashObject reads a version and says its hash.
func (o *Objects) hashObject(ctx context.Context, u *state.Unhashed) error {
	if wanted, err := o.wantsHash(u); err != nil || !wanted {
		return err
	}
	o.hashed.reads.Add(1)
	defer o.hashed.reads.Add(-1)
	sum, err := o.sumOf(ctx, u)
	if err != nil || sum == nil {
		return err
	}
	_, err = o.propose(ctx, &state.SetObjectHash{
		Account: u.Account, Born: u.Born, Key: u.Object.Key, ID: u.Object.ID, Root: u.Object.Root, Blake3: sum,
	})
	if err == nil {
		o.opts.Logger.DebugContext(ctx, "hash of object computed", "version", u.Object.ID, "root", u.Object.Root)
	}
	return wrap("set hash of object", err)
}

// sumOf is the BLAKE3 hash of a version, read at HashRate; nil when it is not wanted any
// more.
func (o *Objects) sumOf(ctx context.Context, u *state.Unhashed) (sum []byte, err error) {
	f, err := o.Open(ctx, u.Account, &u.Object)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	limit := rate.NewLimiter(rate.Limit(o.opts.HashRate), hashStep)
	h, buffer := bao.NewHasher(0), make([]byte, hashStep)
	for left, check := u.Object.Size, uint64(hashCheck); left > 0; {
		n := min(left, hashStep)
		if err := limit.WaitN(ctx, int(n)); err != nil {
			return nil, fmt.Errorf("hash object: %w", err)
		}
		if _, err := io.ReadFull(f, buffer[:n]); err != nil {
			return nil, fmt.Errorf("hash object: %w", err)
		}
		_, _ = h.Write(buffer[:n]) // never fails
		o.hashed.bytes.Add(n)
		left -= n
		if check -= min(check, n); check == 0 {
			if wanted, err := o.wantsHash(u); err != nil || !wanted {
				return nil, err
			}
			check = hashCheck
		}
	}
	whole := h.Sum()
	return whole[:], nil
}

func (o *Objects) wantsHash(u *state.Unhashed) (bool, error) {
	view, release := o.opts.State.LocalView()
	defer release()
	wanted, err := view.IsUnhashed(u)
	return wanted, wrap("look for version without a hash", err)
}
