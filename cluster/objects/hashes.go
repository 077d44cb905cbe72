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

// Limits for computing the hashes of objects that could not be computed during the upload.
const (
	// DefaultHashRate is the default number of bytes a second that a node reads to compute
	// hashes.
	DefaultHashRate = 32 << 20
	hashEvery       = 5 * time.Second // interval between two scans for versions without a hash
	hashPage        = 64              // versions that one read of the state returns
	hashStep        = 1 << 20         // bytes that are read at once
	hashCheck       = 64 << 20        // bytes after which the node checks whether the hash is still wanted
)

// Hashing counts the work of this node for missing hashes of versions.
type Hashing struct {
	reads atomic.Int64 // number of objects that are being read
	bytes atomic.Uint64
}

// Reads returns the number of objects that are being read now: one or none.
func (h *Hashing) Reads() int64 { return h.reads.Load() }

// Bytes returns the number of bytes that were read since the start.
func (h *Hashing) Bytes() uint64 { return h.bytes.Load() }

// Hashing returns the counters of RunHashes on this node.
func (o *Objects) Hashing() *Hashing { return &o.hashed }

// RunHashes computes missing BLAKE3 hashes and wanted checksums of versions until ctx ends. It
// handles the versions for which hasher returns this node, one at a time, and reads
// Options.HashRate bytes a second. If another node becomes responsible meanwhile, it reads the
// version from the beginning.
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
			o.opts.Logger.WarnContext(ctx, "cannot compute hashes of objects", "err", err)
		}
		timer.Reset(hashEvery)
	}
}

// HashObjects does one pass of RunHashes over all versions without a hash. It skips a version
// that cannot be read, and returns the last such error; the next pass tries again.
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

// unhashed reads one page of the versions without a hash from the state that this node has
// applied, beginning behind after. It returns those that this node must hash. next is the
// position for the next page, or nil after the last one.
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

// hasher returns the node that must compute the hash of a version. It chooses one of the live
// nodes with a complete copy, by a hash of the id; "" if there is none. If nodes disagree about
// which members are alive, two nodes may compute the same hash, which does no harm.
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

// hashObject reads a version once, computes its hashes and proposes them. It does nothing if they
// are no longer wanted.
func (o *Objects) hashObject(ctx context.Context, u *state.Unhashed) error {
	if wanted, err := o.wantsHash(u); err != nil || !wanted {
		return err
	}
	o.hashed.reads.Add(1)
	defer o.hashed.reads.Add(-1)
	blake3, sum, err := o.sumOf(ctx, u)
	if err != nil || blake3 == nil {
		return err
	}
	var cmd state.Command = &state.SetObjectHash{
		Account: u.Account, Born: u.Born, Key: u.Object.Key, ID: u.Object.ID, Root: u.Object.Root, Blake3: blake3,
	}
	if u.Object.Wanted != "" {
		cmd = &state.SetObjectSums{
			Account: u.Account, Born: u.Born, Key: u.Object.Key, ID: u.Object.ID, Root: u.Object.Root, Blake3: blake3,
			Checksum: state.Checksum{Algorithm: u.Object.Wanted, Value: sum},
		}
	}
	if _, err = o.propose(ctx, cmd); err == nil {
		o.opts.Logger.DebugContext(ctx, "hash of object computed", "version", u.Object.ID, "root", u.Object.Root)
	}
	return wrap("set hash of object", err)
}

// errUnwanted stops the reading of a version whose hashes are no longer wanted.
var errUnwanted = errors.New("the hash is not wanted any more")

// sumOf reads a version at HashRate and returns its BLAKE3 hash and its wanted checksum. Both are
// nil without an error if the hashes are no longer wanted.
func (o *Objects) sumOf(ctx context.Context, u *state.Unhashed) (blake3, sum []byte, err error) {
	limit := rate.NewLimiter(rate.Limit(o.opts.HashRate), hashStep)
	unchecked := uint64(0)
	blake3, sum, err = o.digest(ctx, u.Account, &u.Object, u.Object.Wanted, func(n uint64) error {
		if unchecked >= hashCheck {
			switch wanted, err := o.wantsHash(u); {
			case err != nil:
				return err
			case !wanted:
				return errUnwanted
			}
			unchecked = 0
		}
		if err := limit.WaitN(ctx, int(n)); err != nil {
			return fmt.Errorf("wait for the rate: %w", err)
		}
		unchecked += n
		o.hashed.bytes.Add(n)
		return nil
	})
	if errors.Is(err, errUnwanted) {
		return nil, nil, nil
	}
	return blake3, sum, err
}

// digest reads an object and returns its BLAKE3 hash and its checksum; the checksum is nil if
// algorithm is "". It calls pace with the number of bytes before each read. An error of pace
// stops the reading.
func (o *Objects) digest(ctx context.Context, a state.AccountID, obj *state.Object, algorithm string, pace func(n uint64) error) (blake3, sum []byte, err error) {
	f, err := o.Open(ctx, a, obj)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	tree, other := bao.NewHasher(0), NewHash(algorithm)
	buffer := make([]byte, min(obj.Size, hashStep))
	for left := obj.Size; left > 0; {
		piece := buffer[:min(left, hashStep)]
		if err := pace(uint64(len(piece))); err != nil {
			return nil, nil, fmt.Errorf("hash object: %w", err)
		}
		if _, err := io.ReadFull(f, piece); err != nil {
			return nil, nil, fmt.Errorf("hash object: %w", err)
		}
		_, _ = tree.Write(piece) // never fails, as that of the other
		if other != nil {
			other.Write(piece)
		}
		left -= uint64(len(piece))
	}
	whole := tree.Sum()
	if other != nil {
		sum = other.Sum(nil)
	}
	return whole[:], sum, nil
}

func (o *Objects) wantsHash(u *state.Unhashed) (bool, error) {
	view, release := o.opts.State.LocalView()
	defer release()
	wanted, err := view.IsUnhashed(u)
	return wanted, wrap("look for version without a hash", err)
}
