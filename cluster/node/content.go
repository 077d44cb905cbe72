package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/cluster/integrity"
	"github.com/holdfast-ipfs/holdfast/cluster/tracker"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/peer"
	"github.com/holdfast-ipfs/holdfast/peer/dag"
	"github.com/holdfast-ipfs/holdfast/storage/blocks"
	block "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
)

// maySee returns the filter of the bitswap servers. The filter returns whether a peer may get a
// block. Members get all blocks. Other peers get only the blocks of complete content on this node
// that is not private. Blocks of unfinished fetches, and of imports that no pin references yet,
// stay hidden from them.
func (n *Node) maySee(gate *gate) func(id string, c cid.Cid) bool {
	return func(id string, c cid.Cid) bool {
		if gate.member(id) {
			return true
		}
		visible, err := n.blocks.Visible(context.Background(), c)
		if err != nil {
			n.logger.Error("cannot decide whether a block is public", "cid", c, "err", err)
		}
		return visible
	}
}

// hidden returns whether the blocks of a reference must be hidden from peers that are not
// members. They are hidden if the content is private, or if the state has no record of it yet, as
// after a put, or if the state cannot be read.
func (n *Node) hidden(reference string) bool {
	c, ok := tracker.RootOf(reference)
	if !ok {
		return true
	}
	view, release := n.consensus.LocalView()
	defer release()
	root, err := view.Root(state.RootOf(c))
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		n.logger.Error("cannot decide whether a root is public", "cid", c, "err", err)
	}
	return err != nil || root.Private()
}

// maxAhead is the largest number of blocks of 1 MiB that this node reads ahead for all open files
// together. It is limited because blocks for a slow client stay in memory for long.
const maxAhead = 64

// files imports and reads files. It implements content.Store.
type files struct {
	peer    *peer.Peer
	blocks  *blocks.Store
	members func() []state.Node
	down    func(state.NodeID) bool // returns whether a member is down
	now     func() time.Time
	buffers *dag.Buffers                      // memory for files that are read
	visible *visibility                       // of blocks on members
	walks   dag.Walks                         // of CARs that are imported or exported
	reading func(state.RootKey) (done func()) // prevents the deletion of the content on this node until done is called
}

// Drop implements content.Store.
func (f *files) Drop(ctx context.Context, reference string) error {
	_, err := f.blocks.Drop(ctx, reference)
	return err
}

// Open implements objects.Files.
func (f *files) Open(ctx context.Context, root cid.Cid, placed []state.NodeID) (io.ReadSeekCloser, uint64, error) {
	return f.OpenPath(ctx, root, nil, placed)
}

// OpenPath implements content.Store.
func (f *files) OpenPath(ctx context.Context, root cid.Cid, path []string, placed []state.NodeID) (io.ReadSeekCloser, uint64, error) {
	from, done := f.from(root, placed)
	var file *dag.File
	at, err := dag.Resolve(ctx, from, root, path)
	if err == nil {
		file, err = f.buffers.Open(ctx, from, at)
	}
	if err != nil {
		done()
		return nil, 0, unreadable(root, path, err)
	}
	if file.Size() <= tellFrom {
		return keptFile{file, done}, file.Size(), nil
	}
	return keptFile{file, f.telling(root, from, done)}, file.Size(), nil
}

// from returns a reader of the blocks of a root, which asks the members in placed first. The content
// is not deleted on this node until done is called.
func (f *files) from(root cid.Cid, placed []state.NodeID) (from *reader, done func()) {
	done = f.reading(state.RootOf(root))
	return f.reader(placed), done
}

// reader returns a reader of blocks, which asks the members in placed before other members.
func (f *files) reader(placed []state.NodeID) *reader {
	order := slices.Clone(placed)
	for _, n := range f.members() {
		if !slices.Contains(order, n.ID) {
			order = append(order, n.ID)
		}
	}
	self := f.peer.ID()
	order = slices.DeleteFunc(order, func(id state.NodeID) bool { return string(id) == self })
	ask := func(ctx context.Context, id state.NodeID, c cid.Cid, lend func(int) []byte) ([]byte, error) {
		return f.peer.ReadBlock(ctx, string(id), c, lend)
	}
	return &reader{here: f.blocks, ask: ask, down: f.down, now: f.now, order: order}
}

// telling makes from tell the members that send blocks that the root is being read. It returns a
// function that ends this and calls done.
func (f *files) telling(root cid.Cid, from *reader, done func()) func() {
	holders := newTeller(root, f.peer.Dial, f.now)
	from.tellsFrom(holders.tell)
	return func() {
		holders.close()
		done()
	}
}

// unreadable returns the error for the caller if the content at a path below root cannot be opened. If
// no node has the content, or if it is not what was asked for, the error has a state code, because the
// node itself works. Other errors are returned unchanged.
func unreadable(root cid.Cid, path []string, err error) error {
	what := strings.Join(append([]string{root.String()}, path...), "/")
	switch {
	case ipld.IsNotFound(err):
		return content.NotHeld(root)
	case errors.Is(err, dag.ErrNoEntry):
		return state.Errorf(state.CodeNotFound, "%s does not exist: no folder has an entry with this name", what)
	case errors.Is(err, dag.ErrIsDirectory):
		return fmt.Errorf("%w: %w", state.Errorf(state.CodeInvalid, "%s is a folder", what), content.ErrFolder)
	case errors.Is(err, dag.ErrTooLarge):
		return state.Errorf(state.CodeInvalid, "%s cannot be read: %v", what, err)
	case errors.Is(err, dag.ErrNotFile), errors.Is(err, dag.ErrUnsupportedCodec):
		return state.Errorf(state.CodeInvalid, "%s is no file: content is read of files, folders and raw blocks only (%v)", what, err)
	case errors.Is(err, dag.ErrInvalidBlock):
		return state.Errorf(state.CodeInvalid, "%s is no file: its block cannot be read as one", what)
	}
	return err
}

// keptFile is an open file. Until it is closed, its blocks are not deleted on this node or on the
// members from which this node reads them.
type keptFile struct {
	*dag.File
	done func()
}

// Read implements io.Reader.
func (f keptFile) Read(b []byte) (int, error) {
	n, err := f.File.Read(b)
	return n, notHere(err)
}

// WriteTo implements io.WriterTo.
func (f keptFile) WriteTo(w io.Writer) (int64, error) {
	n, err := f.File.WriteTo(w)
	return n, notHere(err)
}

// notHere turns "not found" for a block in the middle of a file into an ErrUnavailable, because
// the file itself exists. It returns other errors unchanged.
func notHere(err error) error {
	if !ipld.IsNotFound(err) {
		return err
	}
	return fmt.Errorf("%w: %w", state.Errorf(state.CodeUnavailable, "the members that have all of this content cannot be reached"), err)
}

// Close implements io.Closer.
func (f keptFile) Close() error {
	defer f.done()
	return f.File.Close()
}

// Time limits for members that a reader asks for blocks.
const (
	// avoidFor is how long a member that has failed is asked after all other members.
	avoidFor = 30 * time.Second
	// askNextAfter is how long the reader waits for the first byte from a member before it asks
	// the next member. The connection to a member that hangs or has lost its power stays open
	// for 15 s more.
	askNextAfter = 3 * time.Second
	// searchFor limits the time until any member begins to send the first block of a file.
	// Clients wait at most 15 s for an answer. Without this limit, each of several members that
	// died at the same time could take 10 s or more.
	searchFor = 14 * time.Second
)

// errSilent means that a member has not begun to answer in time.
var errSilent = errors.New("no answer yet")

// reader reads the blocks of one file from this node or else from members. It does not store the
// blocks of members.
type reader struct {
	here dag.Lender
	// ask requests a block from a member and verifies its hash. It returns ipld.ErrNotFound if
	// the member does not have the block.
	ask  func(ctx context.Context, id state.NodeID, c cid.Cid, lend func(int) []byte) ([]byte, error)
	down func(state.NodeID) bool
	now  func() time.Time

	// mu guards the fields below. It is not held during calls of other code.
	mu     sync.Mutex
	order  []state.NodeID // members to ask; the member that last sent a block is the first
	failed map[state.NodeID]time.Time
	giver  state.NodeID       // the member that last sent a block; empty if no member has sent one
	tell   func(state.NodeID) // called for each member that sends blocks; may be nil
}

// tellsFrom makes the reader call tell with each member that sends a block from now on, and with
// the member that has already sent one. tell informs these members that the file is being read.
func (r *reader) tellsFrom(tell func(state.NodeID)) {
	r.mu.Lock()
	giver := r.giver
	r.tell = tell
	r.mu.Unlock()
	if giver != "" {
		tell(giver)
	}
}

// Get implements dag.Getter.
func (r *reader) Get(ctx context.Context, c cid.Cid) (block.Block, error) {
	b, err := r.here.Get(ctx, c)
	if err == nil {
		return b, nil
	}
	data, err := r.elsewhere(ctx, c, func(bytes int) []byte { return make([]byte, bytes) }, err)
	if err != nil {
		return nil, err
	}
	return block.NewBlockWithCid(data, c)
}

// Read implements dag.Lender.
func (r *reader) Read(ctx context.Context, c cid.Cid, lend func(int) []byte) ([]byte, error) {
	data, err := r.here.Read(ctx, c, lend)
	if err == nil {
		return data, nil
	}
	return r.elsewhere(ctx, c, lend, err)
}

// elsewhere gets a block from members. here is the error of the read on this node; elsewhere
// returns it if no member sends the block.
func (r *reader) elsewhere(ctx context.Context, c cid.Cid, lend func(int) []byte, here error) ([]byte, error) {
	// The block is missing or damaged here, but a member may have it. A member that does
	// not answer is treated like one without the block and asked last for a while. A member
	// that was only slow is asked once more, without the short limit, if no other has the
	// block.
	order, search := r.ranked()
	if search {
		var end context.CancelFunc
		ctx, lend, end = beginsWithin(ctx, searchFor, lend)
		defer end()
	}
	first := len(order)
	for i := 0; i < len(order); i++ {
		id, ask := order[i], r.ask
		if i < first-1 {
			ask = r.askSoon
		}
		data, err := ask(ctx, id, c, lend)
		if err == nil {
			r.gave(id)
			return data, nil
		}
		if errors.Is(context.Cause(ctx), errSilent) {
			break
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if errors.Is(err, errSilent) {
			order = append(order, id)
		}
		if !ipld.IsNotFound(err) {
			r.fails(id)
		}
	}
	return nil, here
}

// beginsWithin returns a copy of ctx that ends with the cause errSilent if no answer has begun
// within the given time, and a copy of lend that must be passed on with it: the call of lend,
// which requests memory for a block, shows that an answer has begun. The caller must call the
// third result at the end.
func beginsWithin(ctx context.Context, within time.Duration, lend func(int) []byte) (context.Context, func(int) []byte, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(within, func() { cancel(errSilent) })
	return ctx, func(bytes int) []byte {
			late.Stop()
			return lend(bytes)
		}, func() {
			late.Stop()
			cancel(nil)
		}
}

// askSoon asks a member for a block. It returns errSilent if the member does not begin to answer
// within askNextAfter.
func (r *reader) askSoon(ctx context.Context, id state.NodeID, c cid.Cid, lend func(int) []byte) ([]byte, error) {
	ctx, lend, end := beginsWithin(ctx, askNextAfter, lend)
	defer end()
	data, err := r.ask(ctx, id, c, lend)
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		return nil, errSilent
	}
	return data, err
}

// ranked returns the members in the order in which to ask them: members that are down or have
// failed recently come last. search is true if no member has sent a block of this file yet.
func (r *reader) ranked() (order []state.NodeID, search bool) {
	r.mu.Lock()
	search = r.giver == ""
	order, now := slices.Clone(r.order), r.now()
	late := make(map[state.NodeID]bool, len(r.failed))
	for id, at := range r.failed {
		late[id] = now.Sub(at).Abs() < avoidFor
	}
	r.mu.Unlock()
	for _, id := range order {
		late[id] = late[id] || r.down(id)
	}
	slices.SortStableFunc(order, func(a, b state.NodeID) int {
		switch {
		case late[a] == late[b]:
			return 0
		case late[a]:
			return 1
		default:
			return -1
		}
	})
	return order, search
}

func (r *reader) gave(id state.NodeID) {
	r.mu.Lock()
	delete(r.failed, id)
	if at := slices.Index(r.order, id); at > 0 {
		copy(r.order[1:], r.order[:at])
		r.order[0] = id
	}
	r.giver = id
	tell := r.tell
	r.mu.Unlock()
	if tell != nil {
		tell(id)
	}
}

func (r *reader) fails(id state.NodeID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		r.failed = map[state.NodeID]time.Time{}
	}
	r.failed[id] = r.now()
}

// held adapts the block store to the interface tracker.Blocks. It reports a damaged reference as
// not sealed until it is sealed again.
type held struct {
	*blocks.Store
	scrubber *integrity.Scrubber
	provides announcer
	hidden   func(reference string) bool // whether the reference is sealed as hidden
}

// announcer announces roots of this node to the IPFS network.
type announcer interface {
	Announce(root cid.Cid) bool // queues a root for an announcement; false if the queue is full, then the next announcement of all roots includes it
	Withdraw(root cid.Cid)
}

// Damaged implements tracker.Blocks. It distinguishes a damaged reference from one that was never
// complete.
func (h held) Damaged(reference string) bool { return h.scrubber.Damaged(reference) }

// Reference implements tracker.Blocks.
func (h held) Reference(ctx context.Context, reference string) (sealed bool, bytes, count uint64, ok bool, err error) {
	o, ok, err := h.Store.Reference(ctx, reference)
	return o.Sealed && !h.scrubber.Damaged(reference), o.Bytes, o.Blocks, ok, err
}

// References implements tracker.Blocks.
func (h held) References(ctx context.Context, prefix string, fn func(reference string, sealed bool) (bool, error)) error {
	return h.Store.References(ctx, prefix, func(o blocks.ReferenceInfo) (bool, error) { return fn(o.Reference, o.Sealed) })
}

// Seal implements tracker.Blocks.
func (h held) Seal(ctx context.Context, reference string, bytes, count uint64) error {
	_, err := h.seal(ctx, reference, bytes, count)
	return err
}

// seal seals a reference and returns whether its blocks are hidden from peers that are not
// members. It announces content that is not hidden to the IPFS network.
func (h held) seal(ctx context.Context, reference string, bytes, count uint64) (hidden bool, err error) {
	err = h.scrubber.Seal(ctx, reference, func() error {
		hidden = h.hidden(reference)
		if c, ok := tracker.RootOf(reference); ok && !hidden {
			h.provides.Announce(c)
		}
		return h.Store.Seal(ctx, reference, blocks.Sealed{Bytes: bytes, Blocks: count, Hidden: hidden})
	})
	return hidden, err
}

// Hide implements tracker.Blocks.
func (h held) Hide(ctx context.Context, reference string, hidden bool) error {
	changed, err := h.Store.Hide(ctx, reference, hidden)
	if c, ok := tracker.RootOf(reference); ok && changed {
		if hidden {
			h.provides.Withdraw(c)
		} else {
			h.provides.Announce(c)
		}
	}
	return err
}

// Drop implements tracker.Blocks.
func (h held) Drop(ctx context.Context, reference string) error {
	if c, ok := tracker.RootOf(reference); ok {
		h.provides.Withdraw(c)
	}
	_, err := h.Store.Drop(ctx, reference)
	return err
}

// scrubbed adapts the block store to the interface integrity.Store.
type scrubbed struct{ *blocks.Store }

// Scrub implements integrity.Store.
func (s scrubbed) Scrub(ctx context.Context, bytesPerSecond int64, resume bool) (integrity.Pass, error) {
	sum, err := s.Store.Scrub(ctx, blocks.ScrubOptions{BytesPerSecond: bytesPerSecond, Resume: resume})
	return integrity.Pass{Blocks: sum.Blocks, Bytes: sum.Bytes, Damaged: sum.Damaged}, err
}

// Missing implements integrity.Store.
func (s scrubbed) Missing() uint64 { return s.Usage().Missing }

// DiskBytes implements integrity.Store.
func (s scrubbed) DiskBytes() uint64 { return s.Usage().DiskBytes }

// Repair implements integrity.Repairs.
func (n *Node) Repair(ctx context.Context, reference string) error {
	return n.tracker.Repair(ctx, reference)
}
