// Package ingest stores new content durably on several nodes before a command references it.
// While a body arrives, this node cuts it into blocks, stores them and sends them to other nodes.
// Each node seals the root, that is marks its blocks as complete, and returns its current epoch.
// The command that references the content contains these epochs. Until the outcome of the command
// is known, a lease on each node protects the root; see ADR 23.
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

// ReferencePrefix is the prefix of the references of content that is still arriving. A reference
// is a named set of blocks in the block store, which protects them from garbage collection.
const ReferencePrefix = "put/"

// Blocks is the block store. If the disk is full, its error is state.ErrNoSpace.
type Blocks interface {
	// Put stores blocks and adds them to a reference; they are durable when Put returns. After
	// Put has returned without an error, the store no longer uses their memory.
	Put(ctx context.Context, reference string, blks []block.Block) error
	// PutAndSeal is Put followed by Seal, in one step.
	PutAndSeal(ctx context.Context, reference string, blks []block.Block, bytes, blocks uint64) (hidden bool, err error)
	// Verify returns whether the store has all of blks with the same bytes. It marks a damaged
	// block as missing.
	Verify(ctx context.Context, blks []block.Block) (all bool, err error)
	// Reference returns the record of a reference; ok is false if there is none. sealed is false
	// if the reference is damaged.
	Reference(ctx context.Context, reference string) (sealed bool, bytes, blocks uint64, ok bool, err error)
	// References calls fn for the references whose names begin with prefix.
	References(ctx context.Context, prefix string, fn func(reference string, sealed bool) (more bool, err error)) error
	// Seal marks a reference as complete. The change is durable when Seal returns. hidden is
	// whether the content is hidden from unknown peers, according to this node's state.
	Seal(ctx context.Context, reference string, bytes, blocks uint64) (hidden bool, err error)
	// Drop removes a reference, and the blocks that are in no other reference.
	Drop(ctx context.Context, reference string) error
}

// Fetcher fetches the missing blocks of DAGs.
type Fetcher interface {
	// Fetch stores the complete DAG of root under a reference. It uses blocks that are on this
	// node, and fetches the others from members, the given ones first. It returns the size in
	// bytes and the number of the blocks.
	Fetch(ctx context.Context, root cid.Cid, reference string, members []state.NodeID) (bytes, blocks uint64, err error)
}

// DAGs converts files to UnixFS blocks.
type DAGs interface {
	// Leaf returns the block for content of at most ChunkSize bytes. sum is the BLAKE3 hash of
	// the content, or nil if it is not known.
	Leaf(data, sum []byte) (block.Block, error)
	// Import cuts r into blocks and passes them to put in batches of about batch bytes, children
	// before parents. If r has a method FlushWith, Import gives it a function that passes on the
	// current batch at once; r may call it during Read. free releases the memory of a batch,
	// whose blocks must not be used afterwards.
	Import(ctx context.Context, r io.Reader, batch int, put func(blks []block.Block, free func()) error) (root cid.Cid, size uint64, err error)
	// Join returns the DAG nodes above the parts of a file that consists of these parts, children
	// before parents.
	Join(parts []File) (root cid.Cid, nodes []block.Block, err error)
}

// Buffers is a pool of memory for blocks.
type Buffers interface {
	// Get returns a buffer of at least the given number of bytes. Its content is undefined.
	Get(bytes int) *[]byte
	// Put returns a buffer from Get to the pool. The caller must not use it afterwards.
	Put(buf *[]byte)
}

// Leases protect roots on this node from being deleted.
type Leases interface {
	// Begin creates a lease on a root. The caller must call End once for each Begin.
	Begin(ctx context.Context, root state.RootKey) error
	End(root state.RootKey)
	// Sealed records that the holder of the lease has sealed the root. Found records that the
	// root was sealed already and is unchanged. For each Begin, at most one of the two is called,
	// once.
	Sealed(root state.RootKey, hidden bool)
	Found(root state.RootKey)
	// Fenced records that this node has raised its epoch after its start, so that content that
	// earlier processes have reported can no longer be referenced by a command.
	Fenced()
}

// Fences reads and raises the epoch of this node in the replicated state.
type Fences interface {
	// Epoch returns this node's epoch in the newest state of the cluster, or 0 if it has none. It
	// returns an error while the cluster does not support epochs.
	Epoch(ctx context.Context) (uint64, error)
	// Raise makes epoch the lowest valid epoch of this node. When Raise returns, this node has
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
	// ChunkSize is the largest size of content that is stored as a single block.
	ChunkSize = 1 << 20
	// DefaultBatch is three chunks: they fit into one transaction of the block store together
	// with their records. A body has at most three batches in memory.
	DefaultBatch  = 3 * ChunkSize
	DefaultMemory = 96 << 20
	// DefaultArriving is smaller than DefaultMemory, because the bytes in the receive windows of
	// streams come in addition and are not counted.
	DefaultArriving = 64 << 20
	// latePart is the divisor that gives, from the memory for bodies, the memory for small bodies
	// that enough nodes have stored while slower nodes still receive them.
	latePart = 4
	// memoryPatience is the longest time for which a body waits for memory that other bodies use.
	memoryPatience = 30 * time.Second
)

// Options are the dependencies of Ingest. All are required, except where a comment says that 0 is
// allowed.
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
	// The following fields are limits in bytes. 0 means the default.
	Batch    int   // bytes that are stored and sent together
	Memory   int64 // bytes of all bodies in memory
	Arriving int64 // bytes received from other nodes that are not stored yet
}

// Ingest stores content on several nodes.
type Ingest struct {
	opts     Options
	keeper   *keeper
	pool     *pool
	bodies   *bodies
	turns    atomic.Uint64       // number of bodies so far
	arriving *semaphore.Weighted // limits the bytes received from other nodes that are not stored yet
	shares   sync.Map            // each member's share of arriving
	late     *semaphore.Weighted // limits the bytes of small bodies that enough nodes have stored and slower nodes still receive

	life context.Context // context that ends with Run
	end  context.CancelFunc
	// mu guards closed. It also ensures that no put begins after Run has started to wait for the
	// running ones.
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

// DropLeftovers removes the content that puts of an earlier process have left. No command
// references it.
func (i *Ingest) DropLeftovers(ctx context.Context) error { return i.keeper.dropLeftovers(ctx) }

// Run accepts content from other nodes and updates this node's epoch, until ctx ends. It returns
// when all puts that Store has begun have ended.
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
	Copies int            // number of durable copies at which Store may return
}

// File is a file that nodes have stored already.
type File struct {
	Root cid.Cid
	Size uint64 // size in bytes
}

// Stored is content that is durable on nodes and protected there by leases. The caller must
// finally call Done or Unknown.
type Stored struct {
	Content state.Content
	Size    uint64 // size of the file in bytes
	p       *put
}

// Store reads body to its end and stores it on the nodes of place. When it returns, at least
// place.Copies nodes have stored the content durably; others may still be storing it. Errors:
// that of body or of ctx; state.ErrNoSpace; state.ErrLimited if too much content arrives at once,
// or if body is too slow while others wait; state.ErrUnavailable. After an error, none of the
// content remains.
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

// Join creates one file from files that nodes have stored already, in order, without moving their
// bytes. Errors: those of Store; state.ErrInvalid for parts that cannot be joined.
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

// Take makes the nodes of place store a file that some member has. Errors: those of Store.
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

// Renew asks the nodes for their current epochs, after a command was rejected because the epochs
// in it were too low. Nodes that do not answer no longer count as holders. If fewer than the
// requested copies remain, Renew returns state.ErrUnavailable.
func (s *Stored) Renew(ctx context.Context) error { return s.p.renew(ctx, s) }

// Done reports the outcome to the nodes, so that they end their leases. committed is true if a
// command has referenced the content, and false if none has and none will. It does not block. The
// caller must call either Done or Unknown, once.
func (s *Stored) Done(committed bool) {
	if committed {
		s.p.decide(outcomeCommitted)
		return
	}
	s.p.decide(outcomeGivenUp)
}

// Unknown must be called instead of Done if a command was proposed and its outcome is unknown.
// The nodes then protect the content until they have raised their epochs, after which the command
// can no longer take effect.
func (s *Stored) Unknown() { s.p.decide(0) }

// newID returns a random id for a put.
func newID() putID { return putID(uuid.New()) }
