package dag

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/ipfs/boxo/ipld/merkledag"
	"github.com/ipfs/boxo/ipld/unixfs"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
	mh "github.com/multiformats/go-multihash"
)

// Bounds of the read-ahead window of a File, in blocks. The window begins at one block, because
// many reads are short ranges. It doubles when the reader had to wait for a block. It shrinks
// by one block when lessAfter blocks in a row arrived in time: then the reader is slower than
// the source, and waiting blocks only take memory.
const (
	readAhead = 10
	lateAfter = time.Millisecond
	lessAfter = 16
)

// Lender is a Getter that reads into reused memory.
type Lender interface {
	Getter
	// Read returns the bytes of a block. They are in the memory of the last call of lend,
	// or in memory that the caller owns from then on.
	Read(ctx context.Context, c cid.Cid, lend func(bytes int) []byte) ([]byte, error)
}

// Buffers is a pool of memory for leaves. Allocating and clearing a new MiB for each leaf
// costs as much as hashing it. Files use it if their Getter is a Lender. The zero value is
// ready for use and has no read-ahead bound.
type Buffers struct {
	pools [len(bufferSizes)]sync.Pool // of *[]byte
	ahead chan struct{}               // one place for each block that is read ahead; nil means no bound
}

// NewBuffers returns Buffers whose files together read at most this many blocks ahead. The limit
// exists because a slow reader occupies its blocks for a long time. When it is reached, a File
// reads each block only when it needs it.
func NewBuffers(ahead int) *Buffers { return &Buffers{ahead: make(chan struct{}, ahead)} }

// besideLeaf is the number of bytes that a buffer has in addition to those of a leaf, because a
// store or a stream adds some bytes to a leaf.
const besideLeaf = 512

// bufferSizes are the sizes of leaves: of small objects, of files imported by Kubo, and of
// Import.
var bufferSizes = [...]int{64<<10 + besideLeaf, 256<<10 + besideLeaf, ChunkSize + besideLeaf}

// of returns the pool for buffers of a size and their real size, which is less than twice
// the requested one, because callers count only what they requested.
func (b *Buffers) of(bytes int) (pool *sync.Pool, size int) {
	for i, size := range bufferSizes {
		if bytes > size/2 && bytes <= size {
			return &b.pools[i], size
		}
	}
	return nil, bytes
}

// Get returns a buffer of at least this many bytes. Its content is undefined.
func (b *Buffers) Get(bytes int) *[]byte {
	pool, size := b.of(bytes)
	if pool != nil {
		if buf, ok := pool.Get().(*[]byte); ok {
			return buf
		}
	}
	buf := make([]byte, size)
	return &buf
}

// Grow does the same as Get for a caller that may have a buffer already. If buf is too small,
// Grow puts it back.
func (b *Buffers) Grow(buf *[]byte, bytes int) *[]byte {
	if buf != nil && len(*buf) >= bytes {
		return buf
	}
	b.Put(buf)
	return b.Get(bytes)
}

// Put returns a buffer of Get to the pool; nil is ignored. The caller must not use it any
// more.
func (b *Buffers) Put(buf *[]byte) {
	if buf == nil {
		return
	}
	if pool, _ := b.of(len(*buf)); pool != nil {
		pool.Put(buf)
	}
}

// File reads a UnixFS file or a raw block. It is not safe for concurrent use.
type File struct {
	from    Getter
	buffers *Buffers
	ctx     context.Context // context of all reads; ends with Close
	cancel  context.CancelFunc
	reads   sync.WaitGroup

	root step // the root block, which Open has loaded
	size uint64
	at   uint64 // position in the file of the next byte to read
	rest []byte // unread bytes of the first step

	// steps are the blocks that lead to the bytes from at on, in order: leaves, nodes with
	// children that were not requested yet, and blocks that are being read. After a seek, the
	// context of the old steps ends.
	steps  []*step
	asking context.Context
	end    context.CancelFunc
	window int // number of blocks that are requested, including the one that is needed now
	inTime int // number of blocks in a row that arrived in time
}

// step is a block of a file that is being read, and how far reading has come.
type step struct {
	cid  cid.Cid
	size uint64 // number of bytes of the file below the block, according to its parent
	skip uint64 // number of these bytes to skip

	done  chan struct{} // closed when the block has arrived; nil after the result was processed
	err   error
	data  []byte // bytes of the file in the block itself, which come before those of its links
	lent  *[]byte
	links []child // children that were not requested yet
	ahead bool    // the step holds a read-ahead place
}

// child is a link of a file node.
type child struct {
	cid  cid.Cid
	size uint64
}

// Open reads the root of a file and returns a File for reading and seeking, which reads
// blocks ahead. It fails with ErrIsDirectory, ErrNotFile, ErrUnsupportedCodec, or the error
// of from, so the caller gets the error before it has answered anything. ctx must live
// until Close.
func Open(ctx context.Context, from Getter, root cid.Cid) (*File, error) {
	return new(Buffers).Open(ctx, from, root)
}

// Open does the same as the function Open; the leaves are in the memory of b.
func (b *Buffers) Open(ctx context.Context, from Getter, root cid.Cid) (*File, error) {
	f := &File{from: from, buffers: b, root: step{cid: root}}
	f.ctx, f.cancel = context.WithCancel(ctx)
	f.end = func() {}
	f.read(f.ctx, &f.root)
	if f.root.err != nil {
		f.cancel()
		return nil, fmt.Errorf("dag: open %s: %w", root, f.root.err)
	}
	f.size = f.root.size
	f.rewind(0)
	return f, nil
}

// Size returns the length of the file in bytes.
func (f *File) Size() uint64 { return f.size }

// Read implements io.Reader.
func (f *File) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	next, err := f.next()
	if err != nil {
		return 0, err
	}
	n := copy(b, next)
	f.advance(n)
	return n, nil
}

// WriteTo implements io.WriterTo. Unlike Read, it does not copy the bytes.
func (f *File) WriteTo(w io.Writer) (written int64, err error) {
	for {
		next, err := f.next()
		if err == io.EOF { //nolint:errorlint // what next itself returns
			return written, nil
		}
		if err != nil {
			return written, err
		}
		n, err := w.Write(next)
		f.advance(n)
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
}

// Seek implements io.Seeker. It may seek past the end, where Read returns io.EOF.
func (f *File) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += int64(f.at)
	case io.SeekEnd:
		offset += int64(f.size)
	case io.SeekStart:
	default:
		return 0, fmt.Errorf("dag: seek from %d", whence)
	}
	if offset < 0 {
		return 0, errors.New("dag: seek before the beginning")
	}
	switch to := uint64(offset); {
	case to == f.at:
	case to > f.at && to-f.at < uint64(len(f.rest)):
		f.advance(int(to - f.at))
	default:
		f.rewind(to)
	}
	return offset, nil
}

// Close stops reading ahead and waits until that has ended.
func (f *File) Close() error {
	f.cancel()
	f.end()
	f.reads.Wait()
	for _, s := range f.steps {
		f.wanted(s)
		f.buffers.Put(s.lent)
	}
	f.buffers.Put(f.root.lent)
	f.steps, f.rest, f.root = nil, nil, step{err: io.ErrClosedPipe}
	return nil
}

// rewind starts reading at a position.
func (f *File) rewind(at uint64) {
	f.end()
	f.asking, f.end = context.WithCancel(f.ctx)
	for _, s := range f.steps {
		f.wanted(s)
	}
	root := f.root // the original stays unchanged
	root.lent, root.skip = nil, at
	f.at, f.rest, f.window, f.inTime = at, nil, 1, 0
	f.steps = []*step{&root}
	if at < f.size {
		root.cut()
	}
}

// cut removes the first skip bytes from a step whose block has arrived.
func (s *step) cut() {
	n := min(s.skip, uint64(len(s.data)))
	s.data = s.data[n:]
	s.skip -= n
	for len(s.links) > 0 && s.skip >= s.links[0].size {
		s.skip -= s.links[0].size
		s.links = s.links[1:]
	}
}

// next returns some of the bytes that follow, or io.EOF.
func (f *File) next() ([]byte, error) {
	if f.at >= f.size {
		return nil, io.EOF
	}
	for len(f.rest) == 0 {
		f.ask()
		if len(f.steps) == 0 {
			return nil, io.ErrUnexpectedEOF
		}
		s := f.steps[0]
		f.wanted(s)
		if s.done != nil {
			if err := f.await(s); err != nil {
				return nil, err
			}
		}
		if s.err != nil {
			return nil, s.err
		}
		// In a node with links, its own bytes come before those of its children.
		f.rest = s.data
		s.data = nil
	}
	return f.rest, nil
}

// advance moves the position behind n bytes that next returned.
func (f *File) advance(n int) {
	f.rest = f.rest[n:]
	f.at += uint64(n)
	if len(f.rest) > 0 || len(f.steps[0].links) > 0 {
		return
	}
	f.buffers.Put(f.steps[0].lent)
	f.steps = f.steps[1:]
}

// await waits for a block in flight.
func (f *File) await(s *step) error {
	began := time.Now()
	select {
	case <-s.done:
	case <-f.ctx.Done():
		return f.ctx.Err()
	}
	f.waited(time.Since(began))
	f.arrived(s)
	return nil
}

// waited adjusts the read-ahead window. d is how long the reader had to wait for a block.
func (f *File) waited(d time.Duration) {
	switch {
	case d > lateAfter:
		f.window, f.inTime = min(2*f.window, readAhead), 0
	case f.window > 1:
		if f.inTime++; f.inTime == lessAfter {
			f.window, f.inTime = f.window-1, 0
		}
	}
}

// arrived processes a block that has arrived.
func (f *File) arrived(s *step) {
	s.done = nil
	if s.err == nil {
		s.cut()
	}
}

// ask requests blocks, in the order of the file, until the number of those in flight or
// unread reaches the window.
func (f *File) ask() {
	coming, window := 0, f.window
	for i := 0; i < len(f.steps) && coming < window; i++ {
		s := f.steps[i]
		if s.done != nil && i > 0 {
			select {
			case <-s.done:
				f.waited(0)
				f.arrived(s)
			default:
			}
		}
		if s.done != nil || s.err != nil || len(s.data) > 0 || len(s.links) == 0 {
			coming++
			continue
		}
		f.wanted(s) // a node without bytes of its own is not read ahead
		var more []*step
		for ; coming < window && len(s.links) > 0; s.links = s.links[1:] {
			link := s.links[0]
			if link.size == 0 {
				continue
			}
			next := &step{cid: link.cid, size: link.size, skip: s.skip}
			if coming > 0 && !f.mayAhead(next) {
				coming = window
				break
			}
			s.skip = 0
			f.start(next, window > 1)
			more = append(more, next)
			coming++
		}
		for len(s.links) > 0 && s.links[0].size == 0 {
			s.links = s.links[1:]
		}
		if len(s.links) == 0 {
			f.steps = slices.Replace(f.steps, i, i+1, more...)
		} else {
			f.steps = slices.Insert(f.steps, i, more...)
		}
		i += len(more) - 1
	}
}

// start begins to read a block. A block that is needed now is read in this goroutine if
// nothing is read ahead: a block on the local disk arrives before another goroutine would
// run, and it stays in the cache of this processor.
func (f *File) start(s *step, ahead bool) {
	asking := f.asking
	if !ahead {
		began := time.Now()
		f.read(asking, s)
		f.arrived(s)
		if len(s.data) > 0 { // a node without bytes of its own says nothing about the reader
			f.waited(time.Since(began))
		}
		return
	}
	s.done = make(chan struct{})
	f.reads.Go(func() {
		defer close(s.done)
		f.read(asking, s)
	})
}

// mayAhead takes a read-ahead place for a step. It returns false if there is none.
func (f *File) mayAhead(s *step) bool {
	select {
	case f.buffers.ahead <- struct{}{}:
		s.ahead = true
		return true
	default:
		return f.buffers.ahead == nil
	}
}

// wanted gives back the read-ahead place of a step, if it has one, because the reader needs the
// block now.
func (f *File) wanted(s *step) {
	if s.ahead {
		s.ahead = false
		<-f.buffers.ahead
	}
}

// read loads a block and checks its size.
func (f *File) read(ctx context.Context, s *step) {
	if s.err = f.load(ctx, s); s.err != nil {
		return
	}
	sum := uint64(len(s.data))
	for _, l := range s.links {
		if sum > sum+l.size {
			s.err = fmt.Errorf("%w: %s has more bytes than can be counted", ErrInvalidBlock, s.cid)
			return
		}
		sum += l.size
	}
	switch {
	case s == &f.root:
		s.size = sum
	case s.size != sum:
		s.err = fmt.Errorf("%w: %s has %d bytes of a file, its parent says %d", ErrInvalidBlock, s.cid, sum, s.size)
	}
}

func (f *File) load(ctx context.Context, s *step) error {
	if from, lends := f.from.(Lender); lends && s.cid.Prefix().Codec == cid.Raw && s.cid.Prefix().MhType != mh.IDENTITY {
		return f.borrow(ctx, from, s)
	}
	b, inlined, err := inline(s.cid)
	if err == nil && !inlined {
		b, err = get(ctx, f.from, s.cid)
	}
	if err != nil {
		return err
	}
	switch codec := s.cid.Prefix().Codec; codec {
	case cid.Raw:
		s.data = b.RawData()
		return nil
	case cid.DagProtobuf:
		n, err := merkledag.DecodeProtobufBlock(b)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrInvalidBlock, s.cid, err)
		}
		return s.parse(n)
	default:
		if supported(codec) {
			return fmt.Errorf("%w: codec 0x%x", ErrNotFile, codec)
		}
		return fmt.Errorf("%w: 0x%x", ErrUnsupportedCodec, codec)
	}
}

// borrow reads a leaf into a buffer of the pool.
func (f *File) borrow(ctx context.Context, from Lender, s *step) (err error) {
	s.data, err = from.Read(ctx, s.cid, func(bytes int) []byte {
		s.lent = f.buffers.Grow(s.lent, bytes)
		return (*s.lent)[:bytes]
	})
	return err
}

// parse reads the bytes and the links of a dag-pb file node.
func (s *step) parse(n ipld.Node) error {
	p, ok := n.(*merkledag.ProtoNode)
	if !ok {
		return fmt.Errorf("%w: %s", ErrNotFile, s.cid)
	}
	u, err := unixfs.FSNodeFromBytes(p.Data())
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrNotFile, s.cid, err)
	}
	switch u.Type() {
	case unixfs.TFile, unixfs.TRaw:
	case unixfs.TDirectory, unixfs.THAMTShard:
		return ErrIsDirectory
	default:
		return fmt.Errorf("%w: %s is of the UnixFS type %s", ErrNotFile, s.cid, u.Type())
	}
	links := p.Links()
	if len(links) != u.NumChildren() {
		return fmt.Errorf("%w: %s has %d links and sizes of %d", ErrInvalidBlock, s.cid, len(links), u.NumChildren())
	}
	s.data = u.Data()
	s.links = make([]child, len(links))
	for i, l := range links {
		s.links[i] = child{l.Cid, u.BlockSize(i)}
	}
	return nil
}
