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

// How many blocks a File asks for before they are read. It begins with the one that
// is wanted, since much is read in short ranges, asks for twice as many whenever one came
// late, and for one less when so many in a row were there in time: whoever reads is
// slower then, and what waits for it only takes memory.
const (
	readAhead = 10
	lateAfter = time.Millisecond
	lessAfter = 16
)

// Lender is a Getter that can read into memory which is used again.
type Lender interface {
	Getter
	// Read is Get of the bytes alone. They are in memory of lend, or in memory that
	// is the caller's from then on; what lend gave before its last call is not used.
	Read(ctx context.Context, c cid.Cid, lend func(bytes int) []byte) ([]byte, error)
}

// Buffers is memory of leaves that is used again: a new MiB for each has to be cleared,
// and mostly found by the system first, which costs as much as hashing it. The leaves of
// Files are read into it by those that are Lenders. The zero value is ready, and has no
// bound.
type Buffers struct {
	pools [len(bufferSizes)]sync.Pool // of *[]byte
	ahead chan struct{}               // a place for each block that is read ahead; nil: no bound
}

// NewBuffers returns Buffers whose files read so many blocks ahead, all together: who
// reads slowly holds them for as long as it takes. Files beyond the bound read a block
// when they need it.
func NewBuffers(ahead int) *Buffers { return &Buffers{ahead: make(chan struct{}, ahead)} }

// besideLeaf is room for what a store or a stream has beside the bytes of a leaf.
const besideLeaf = 512

// bufferSizes are those of leaves: of small objects, as Kubo cuts files, and as Import does.
var bufferSizes = [...]int{64<<10 + besideLeaf, 256<<10 + besideLeaf, ChunkSize + besideLeaf}

// of is where memory of a size is kept, and how much it is: less than twice as much as is
// wanted, since those who bound what they have count what they want.
func (b *Buffers) of(bytes int) (pool *sync.Pool, size int) {
	for i, size := range bufferSizes {
		if bytes > size/2 && bytes <= size {
			return &b.pools[i], size
		}
	}
	return nil, bytes
}

// Get returns memory of at least so many bytes, which holds anything.
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

// Grow is Get for who has some already, or nil: what is too small is put back.
func (b *Buffers) Grow(buf *[]byte, bytes int) *[]byte {
	if buf != nil && len(*buf) >= bytes {
		return buf
	}
	b.Put(buf)
	return b.Get(bytes)
}

// Put takes back what Get returned, as it was; nil is nothing. Nobody uses it any more.
func (b *Buffers) Put(buf *[]byte) {
	if buf == nil {
		return
	}
	if pool, _ := b.of(len(*buf)); pool != nil {
		pool.Put(buf)
	}
}

// File reads a UnixFS file or a raw block. It is for one goroutine.
type File struct {
	from    Getter
	buffers *Buffers
	ctx     context.Context // until Close
	cancel  context.CancelFunc
	reads   sync.WaitGroup

	root step // asked for and there
	size uint64
	at   uint64 // where the next byte that is read is in the file
	rest []byte // what of the first of steps is still to be read

	// steps lead to the bytes from at on, in their order: leaves, nodes of which some
	// children have not been asked for, and what is on its way. Those of an earlier
	// place end with their context.
	steps  []*step
	asking context.Context
	end    context.CancelFunc
	window int // how many blocks are asked for, with the one that is wanted
	inTime int // of those that were wanted since the window changed
}

// step is a block of a file, and what has become of it.
type step struct {
	cid  cid.Cid
	size uint64 // bytes of the file that are below it, which a parent knows
	skip uint64 // of which so many are not to be read

	done  chan struct{} // closed when what follows is there; nil: it has been looked at
	err   error
	data  []byte // of the file, before that of links
	lent  *[]byte
	links []child // that were not asked for
	ahead bool    // it has a place among those that are read ahead
}

// child is a link of a node of a file.
type child struct {
	cid  cid.Cid
	size uint64
}

// Open prepares a file for reading and seeking; blocks are read ahead as the
// reading goes on. The root is read now, so an error comes before anything
// is answered: ErrIsDirectory, ErrNotFile, ErrUnsupportedCodec, or what from
// returned. ctx lives until Close.
func Open(ctx context.Context, from Getter, root cid.Cid) (*File, error) {
	return new(Buffers).Open(ctx, from, root)
}

// Open is Open for leaves that are read into these buffers.
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

// WriteTo implements io.WriterTo; it saves the copy that Read makes.
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

// Seek implements io.Seeker. A place behind the end is one where nothing is read.
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

// Close ends the reading ahead and waits for it.
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

// rewind begins anew at a place.
func (f *File) rewind(at uint64) {
	f.end()
	f.asking, f.end = context.WithCancel(f.ctx)
	for _, s := range f.steps {
		f.wanted(s)
	}
	root := f.root // which stays as it is
	root.lent, root.skip = nil, at
	f.at, f.rest, f.window, f.inTime = at, nil, 1, 0
	f.steps = []*step{&root}
	if at < f.size {
		root.cut()
	}
}

// cut leaves out what is not to be read of a step that is there.
func (s *step) cut() {
	n := min(s.skip, uint64(len(s.data)))
	s.data = s.data[n:]
	s.skip -= n
	for len(s.links) > 0 && s.skip >= s.links[0].size {
		s.skip -= s.links[0].size
		s.links = s.links[1:]
	}
}

// next returns the bytes that follow, some of them, or io.EOF.
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
		// Of a node with links what is left comes from its children, before it.
		f.rest = s.data
		s.data = nil
	}
	return f.rest, nil
}

// advance goes on behind bytes that next returned.
func (f *File) advance(n int) {
	f.rest = f.rest[n:]
	f.at += uint64(n)
	if len(f.rest) > 0 || len(f.steps[0].links) > 0 {
		return
	}
	f.buffers.Put(f.steps[0].lent)
	f.steps = f.steps[1:]
}

// await waits for a block that is on its way.
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

// waited sets the window by how long a block that is wanted took to come.
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

// arrived takes in a block that has come.
func (f *File) arrived(s *step) {
	s.done = nil
	if s.err == nil {
		s.cut()
	}
}

// ask asks for blocks until as many as may be are on their way, or here and not read
// yet: children of nodes that are here, in the order of the file.
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
		f.wanted(s) // it only leads to others
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

// start begins to read a block. One that is wanted while none is read ahead is read right
// here: what is on this node's disk is there before another goroutine has its turn, and is
// in the cache of the processor that goes on with it.
func (f *File) start(s *step, ahead bool) {
	asking := f.asking
	if !ahead {
		began := time.Now()
		f.read(asking, s)
		f.arrived(s)
		if len(s.data) > 0 { // else it only leads to what is wanted
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

// mayAhead tells whether a block may be read ahead, and takes a place for it.
func (f *File) mayAhead(s *step) bool {
	select {
	case f.buffers.ahead <- struct{}{}:
		s.ahead = true
		return true
	default:
		return f.buffers.ahead == nil
	}
}

// wanted gives the place of a block back that is not ahead any more.
func (f *File) wanted(s *step) {
	if s.ahead {
		s.ahead = false
		<-f.buffers.ahead
	}
}

// read gets a block, and what it has of the file.
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

// borrow reads a leaf into a buffer, if it is from here.
func (f *File) borrow(ctx context.Context, from Lender, s *step) (err error) {
	s.data, err = from.Read(ctx, s.cid, func(bytes int) []byte {
		s.lent = f.buffers.Grow(s.lent, bytes)
		return (*s.lent)[:bytes]
	})
	return err
}

// parse reads a dag-pb node of a file.
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
