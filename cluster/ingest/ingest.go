// Package ingest makes new content durable on several nodes before a record names it.
// While a body arrives, this node cuts it into blocks, stores them and pushes them to
// other nodes. Each node seals the root and returns the epoch in which it did so. The
// command that names the content carries these epochs. Until its outcome is known, a
// lease on each node protects the root; see ADR 23.
//
// Imports: consensus/state, go-cid, go-block-format, uuid.
// Never:   raft, libp2p, boxo, storage, HTTP.
package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	block "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

// ReferencePrefix is the prefix of the references of content that is still arriving.
const ReferencePrefix = "put/"

// Blocks is the block store. If the disk is full, the error is state.ErrNoSpace.
type Blocks interface {
	// Put stores blocks and adds them to a reference; they are durable on return. After a
	// return without an error the store does not use their memory any more.
	Put(ctx context.Context, reference string, blks []block.Block) error
	// PutAndSeal does the same as Put followed by Seal, in one step.
	PutAndSeal(ctx context.Context, reference string, blks []block.Block, bytes, blocks uint64) (hidden bool, err error)
	// Verify returns whether the store has all of blks with the same bytes. A damaged block
	// counts as missing from then on.
	Verify(ctx context.Context, blks []block.Block) (all bool, err error)
	// Reference returns the record of a reference; a damaged reference is not sealed.
	Reference(ctx context.Context, reference string) (sealed bool, bytes, blocks uint64, ok bool, err error)
	// References calls fn for the references whose names begin with prefix.
	References(ctx context.Context, prefix string, fn func(reference string, sealed bool) (more bool, err error)) error
	// Seal marks a reference as complete. The change is durable on return. The state of this
	// node decides whether the reference is hidden from unknown peers.
	Seal(ctx context.Context, reference string, bytes, blocks uint64) (hidden bool, err error)
	// Drop removes a reference, and the blocks that no other reference includes.
	Drop(ctx context.Context, reference string) error
}

// Fetcher completes DAGs.
type Fetcher interface {
	// Fetch stores the complete DAG of root under a reference. It takes blocks on this node,
	// and fetches the others from members, first from the given members. It returns the size
	// and the number of the blocks.
	Fetch(ctx context.Context, root cid.Cid, reference string, members []state.NodeID) (bytes, blocks uint64, err error)
}

// DAGs makes blocks of bytes.
type DAGs interface {
	// Leaf returns the block for content of at most ChunkSize bytes. sum is the BLAKE3 hash of
	// the content, or nil if the hash is not known.
	Leaf(data, sum []byte) (block.Block, error)
	// Import cuts r into blocks and passes them to put in batches of about this many bytes,
	// children before parents. If r has a method FlushWith, Import gives it a function that
	// passes on the current batch, for use during Read. free returns the memory of a batch;
	// its blocks must not be used after that.
	Import(ctx context.Context, r io.Reader, batch int, put func(blks []block.Block, free func()) error) (root cid.Cid, size uint64, err error)
	// Join returns the nodes of a file that consists of the parts, children before parents.
	Join(parts []File) (root cid.Cid, nodes []block.Block, err error)
}

// Buffers is a pool of memory for blocks.
type Buffers interface {
	// Get returns memory of at least the given number of bytes. Its content is undefined.
	Get(bytes int) *[]byte
	// Put returns memory of Get to the pool. The caller must not use the memory after that.
	Put(buf *[]byte)
}

// Leases keep roots from being dropped on this node.
type Leases interface {
	// Begin takes a lease on a root until End, once for each Begin.
	Begin(ctx context.Context, root state.RootKey) error
	End(root state.RootKey)
	// Sealed records that the holder of the lease has sealed the root. Found records that the root was sealed
	// before and is unchanged. For each Begin, at most one of the two is called, and only once.
	Sealed(root state.RootKey, hidden bool)
	Found(root state.RootKey)
	// Fenced records that leases of earlier processes no longer count.
	Fenced()
}

// Fences is the epoch of this node in the replicated state.
type Fences interface {
	// Epoch returns this node's epoch in the newest state of the cluster, or 0 if the node has
	// had none. It returns an error while the cluster has no epochs.
	Epoch(ctx context.Context) (uint64, error)
	// Raise makes epoch the first epoch of this node that counts. On return, this node has
	// applied the change.
	Raise(ctx context.Context, epoch uint64) error
}

// Network opens and accepts streams between members. The remote address of a stream
// is the id of the node at its other end.
type Network interface {
	Dial(ctx context.Context, node, protocol string) (net.Conn, error)
	Listen(protocol string) (net.Listener, error)
}

// Defaults of Options.
const (
	// ChunkSize is the size of the largest content that is one block.
	ChunkSize = 1 << 20
	// DefaultBatch is three chunks, which fit into one transaction of the block store
	// together with the records that belong to them. A body has at most three batches in
	// memory.
	DefaultBatch  = 3 * ChunkSize
	DefaultMemory = 96 << 20
	// DefaultArriving is smaller than DefaultMemory by the bytes in the windows of streams,
	// because these bytes are not counted.
	DefaultArriving = 64 << 20
	// latePart bounds the memory for nodes that are slow with small bodies which enough other
	// nodes have stored already: 1/latePart of the memory for bodies.
	latePart = 4
	// memoryPatience is the longest time that a body waits for memory that other bodies have.
	memoryPatience = 30 * time.Second
)

// Options are the dependencies of Ingest. Fields that say so may be zero; the others are
// required.
type Options struct {
	Self      state.NodeID
	Blocks    Blocks
	Fetcher   Fetcher
	DAGs      DAGs
	Buffers   Buffers
	Leases    Leases
	Fences    Fences
	Network   Network
	Reference func(state.RootKey) string // returns the name of the reference of a root's blocks
	Now       func() time.Time
	Logger    *slog.Logger
	// The following fields are bounds in bytes. 0 means the default of each.
	Batch    int   // bytes that are stored and sent together
	Memory   int64 // bytes of all bodies in memory
	Arriving int64 // bytes that other nodes have put on this node and that are not stored yet
}

// Ingest stores content on several nodes.
type Ingest struct {
	opts     Options
	keeper   *keeper
	pool     *pool
	bodies   *bodies
	turns    atomic.Uint64       // number of bodies so far
	arriving *semaphore.Weighted // bounds the bytes that other nodes have put here and that are not stored yet
	shares   sync.Map            // parts of arriving, by member
	late     *semaphore.Weighted // bytes of small bodies that are stored here and kept for slower nodes

	life context.Context // context that ends with Run
	end  context.CancelFunc
	// mu guards closed, so that no work begins after Close waits for its end.
	mu     sync.Mutex
	closed bool
	work   sync.WaitGroup // counts running puts
}

// New returns an Ingest. The caller must call DropLeftovers before Run and before the first
// Store.
func New(opts Options) *Ingest {
	if opts.Batch == 0 {
		opts.Batch = DefaultBatch
	}
	if opts.Memory == 0 {
		opts.Memory = DefaultMemory
	}
	opts.Memory = max(opts.Memory, 4*int64(opts.Batch))
	if opts.Arriving == 0 {
		opts.Arriving = min(DefaultArriving, opts.Memory)
	}
	i := &Ingest{
		opts: opts, keeper: newKeeper(opts), pool: newPool(opts.Network),
		bodies: newBodies(opts.Memory, opts.Buffers), arriving: semaphore.NewWeighted(opts.Arriving),
		late: semaphore.NewWeighted(opts.Memory / latePart),
	}
	i.life, i.end = context.WithCancel(context.Background())
	return i
}

// DropLeftovers drops the content that puts of an earlier process have left, because no record
// refers to it.
func (i *Ingest) DropLeftovers(ctx context.Context) error { return i.keeper.dropLeftovers(ctx) }

// Run accepts content from other nodes and keeps this node's epoch up to date, until ctx ends.
// It returns when everything that Store has begun has ended.
func (i *Ingest) Run(ctx context.Context) error {
	l, err := i.opts.Network.Listen(Protocol)
	if err != nil {
		return fmt.Errorf("ingest: listen: %w", err)
	}
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return i.serve(ctx, l) })
	keeping, stopKeeping := context.WithCancel(context.Background())
	defer stopKeeping()
	var keeper errgroup.Group
	keeper.Go(func() error { return i.keeper.run(keeping) })
	work.Go(func() error { i.pool.run(ctx); return nil })
	err = work.Wait()
	i.mu.Lock()
	i.closed = true
	i.mu.Unlock()
	i.end()
	i.work.Wait()
	i.pool.work.Wait()
	stopKeeping() // the last drops belong to it
	return errors.Join(err, keeper.Wait())
}

// Placement names the nodes for new content.
type Placement struct {
	Nodes  []state.NodeID // nodes for the content; this node may be among them
	Spare  []state.NodeID // further nodes, tried in this order if one of Nodes fails
	Copies int            // number of durable copies before the content counts as stored
}

// File is content that nodes have already.
type File struct {
	Root cid.Cid
	Size uint64 // size in bytes
}

// Stored is content that is durable on nodes and protected there by leases, until Done or
// Unknown.
type Stored struct {
	Content state.Content
	Size    uint64 // size of the file in bytes
	p       *put
}

// Store reads body to its end and stores it on the nodes of place. When it returns, at least
// place.Copies nodes have the content durably; others may still be storing it. It fails with
// the error of the body or of ctx, with state.ErrNoSpace, state.ErrLimited (too much content
// arrives at once, or the body is too slow meanwhile) or state.ErrUnavailable. After an error
// none of the content stays.
func (i *Ingest) Store(ctx context.Context, body io.Reader, place Placement) (*Stored, error) {
	if err := check(place); err != nil {
		return nil, err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	m := i.bodies.open(ctx, end, body, i.turns.Add(1))
	defer m.leave()
	s, err := i.store(ctx, m, place)
	if err != nil && errors.Is(context.Cause(ctx), errSlow) {
		return nil, errSlow // whatever failed first then
	}
	return s, err
}

func (i *Ingest) store(ctx context.Context, m *memory, place Placement) (*Stored, error) {
	data, more, err := m.first()
	if err != nil {
		m.free()
		return nil, err
	}
	if !more {
		leaf, err := i.opts.DAGs.Leaf(data, m.blake3())
		if err != nil {
			m.free()
			return nil, err
		}
		s, err := i.place(ctx, place, whole{blks: []block.Block{hashed{leaf}}, end: end{root: leaf.Cid()}}, m)
		return withSize(s, uint64(len(data))), err
	}
	return i.stream(ctx, &rest{m: m, first: data}, place)
}

// Join makes one file of files that nodes keep already, in order, without moving their
// bytes. It fails as Store does, and with state.ErrInvalid for parts that cannot be
// joined.
func (i *Ingest) Join(ctx context.Context, parts []File, place Placement) (*Stored, error) {
	if err := check(place); err != nil {
		return nil, err
	}
	size := uint64(0)
	for _, p := range parts {
		size += p.Size
	}
	root, nodes, err := i.opts.DAGs.Join(parts)
	if err != nil {
		return nil, state.Errorf(state.CodeInvalid, "the parts cannot be joined: %v", err)
	}
	for k, b := range nodes {
		nodes[k] = hashed{b}
	}
	s, err := i.place(ctx, place, whole{blks: nodes, end: end{root: root}}, nil)
	return withSize(s, size), err
}

// Take makes nodes keep a file that some member has. It fails as Store does.
func (i *Ingest) Take(ctx context.Context, file File, place Placement) (*Stored, error) {
	if err := check(place); err != nil {
		return nil, err
	}
	s, err := i.place(ctx, place, whole{end: end{root: file.Root}}, nil)
	return withSize(s, file.Size), err
}

func withSize(s *Stored, size uint64) *Stored {
	if s != nil {
		s.Size = size
	}
	return s
}

func check(place Placement) error {
	seen := map[state.NodeID]bool{}
	for _, id := range slices.Concat(place.Nodes, place.Spare) {
		if seen[id] || id == "" || len(id) > maxNode {
			return state.Errorf(state.CodeInvalid, "content cannot be placed on node %q, or not twice", id)
		}
		seen[id] = true
	}
	if place.Copies < 1 || len(place.Nodes) == 0 {
		return state.Errorf(state.CodeInvalid, "content needs a node, and at least one copy")
	}
	if place.Copies > len(seen) {
		return state.Errorf(state.CodeUnavailable, "%d copies are needed, and %d nodes can keep one", place.Copies, len(seen))
	}
	return nil
}

// Renew asks the nodes for their current epochs after a command was rejected because their
// holdings were too old. Nodes that do not answer no longer count as holders. If fewer than
// the requested copies are left, it fails with state.ErrUnavailable.
func (s *Stored) Renew(ctx context.Context) error { return s.p.renew(ctx, s) }

// Done reports the outcome to the nodes. committed is true if a command has named the content, and false if no
// command names it and none will. Done does not block. Call either Done or Unknown, once.
func (s *Stored) Done(committed bool) {
	if committed {
		s.p.decide(outcomeCommitted)
		return
	}
	s.p.decide(outcomeGivenUp)
}

// Unknown must be called in the place of Done if a command was proposed and its outcome is
// unknown. The nodes then keep the content until a fence ensures that the command can no longer
// take effect.
func (s *Stored) Unknown() { s.p.decide(0) }

// newID returns a new id of a put.
func newID() putID { return putID(uuid.New()) }
