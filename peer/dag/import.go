package dag

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ipfs/boxo/ipld/merkledag"
	"github.com/ipfs/boxo/ipld/unixfs/importer/balanced"
	"github.com/ipfs/boxo/ipld/unixfs/importer/helpers"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
)

const (
	// importBatch is the number of bytes that put gets at a time.
	importBatch = 2 << 20
	// importBatchBlocks bounds the blocks of a batch, for content of tiny blocks.
	importBatchBlocks = 256
	// headBytes is the number of bytes of a chunk that are read before memory for the chunk is
	// taken.
	headBytes = 32 << 10
)

// Import stores r as a UnixFS file with raw leaves, BLAKE3-256 hashes and CIDv1, and
// returns its root and size in bytes. It passes the blocks to put in batches, children
// before parents, so the last batch has the root. Content of at most ChunkSize is one raw
// block. put owns the slice and the blocks. The memory use does not depend on the size.
func Import(ctx context.Context, r io.Reader, put func([]blocks.Block) error) (root cid.Cid, size uint64, err error) {
	return new(Buffers).Import(ctx, r, importBatch, func(blks []blocks.Block, _ func()) error { return put(blks) })
}

// Flusher is a reader that may need the blocks that were made so far to be stored before it can
// return more bytes, for example because the blocks occupy its memory. FlushWith gives the reader a
// function for this, which passes the blocks to put and returns the error of put. The reader may
// call this function only during Read.
type Flusher interface {
	FlushWith(flush func() error)
}

// Import does the same as the function Import with the memory of b. It passes a batch to put when the
// batch has this many bytes, or when a Flusher asks for it. When the blocks of a batch are
// no longer used, the caller may call free, which returns their memory to b.
func (b *Buffers) Import(ctx context.Context, r io.Reader, batch int, put func(blks []blocks.Block, free func()) error) (root cid.Cid, size uint64, err error) {
	i := b.importer(ctx, Usual, batch, put)
	if f, ok := r.(Flusher); ok {
		f.FlushWith(i.sink.flushAll)
	}
	return i.single(r)
}

// ImportAs does the same as Import with the blocks and CIDs of a layout.
func ImportAs(ctx context.Context, as Layout, r io.Reader, put func([]blocks.Block) error) (root cid.Cid, size uint64, err error) {
	i := new(Buffers).importer(ctx, as, importBatch, func(blks []blocks.Block, _ func()) error { return put(blks) })
	return i.single(r)
}

// importer makes files of one import, one after the other. They share batches.
type importer struct {
	ctx    context.Context // of one import
	layout Layout
	chunks *splitter
	sink   *sink
}

func (b *Buffers) importer(ctx context.Context, as Layout, batch int, put func(blks []blocks.Block, free func()) error) *importer {
	chunks := &splitter{size: as.chunk, lend: as.rawLeaves, buffers: b, lent: map[*byte]*[]byte{}}
	return &importer{ctx: ctx, layout: as, chunks: chunks, sink: &sink{put: put, full: batch, chunks: chunks, builder: as.builder}}
}

// single makes the only file of an import.
func (i *importer) single(r io.Reader) (root cid.Cid, size uint64, err error) {
	node, size, err := i.file(r)
	if err == nil {
		err = i.sink.flush()
	}
	if err != nil {
		return cid.Undef, size, fmt.Errorf("dag: import: %w", err)
	}
	return node.Cid(), size, nil
}

// file makes a file of the content of r, and returns its root and its size in bytes. It also
// returns the size if it fails.
func (i *importer) file(r io.Reader) (root ipld.Node, size uint64, err error) {
	counted := &countingReader{ctx: i.ctx, r: r}
	i.chunks.begin(counted)
	params := helpers.DagBuilderParams{
		Maxlinks:   i.layout.links,
		RawLeaves:  i.layout.rawLeaves,
		CidBuilder: i.layout.builder,
		Dagserv:    i.sink,
	}
	layout, err := params.New(i.chunks)
	if err != nil {
		return nil, 0, err
	}
	root, err = balanced.Layout(layout)
	return root, counted.n, err
}

// splitter cuts the bytes of a reader into chunks. It takes memory for a chunk only after the first
// bytes of the chunk have arrived, so a slow reader does not occupy memory while it waits.
type splitter struct {
	size    int  // of a chunk, in bytes
	lend    bool // whether the memory of a chunk is that of a block, so that it comes back with its batch
	r       io.Reader
	head    [headBytes]byte
	err     error // returned instead of the next chunk
	buffers *Buffers
	lent    map[*byte]*[]byte // chunks that are in no batch yet, by their first byte
	last    []byte            // the newest chunk
}

// begin makes the splitter cut the bytes of another reader.
func (s *splitter) begin(r io.Reader) { s.r, s.err, s.last = r, nil, nil }

// Reader implements chunk.Splitter.
func (s *splitter) Reader() io.Reader { return s.r }

// NextBytes implements chunk.Splitter.
func (s *splitter) NextBytes() ([]byte, error) {
	n := s.fill(s.head[:], 1)
	if n == 0 {
		return nil, s.err
	}
	buf := s.buffers.Get(s.size)
	data := (*buf)[:s.size]
	copy(data, s.head[:n])
	if n += s.fill(data[n:], s.size-n); n == s.size && s.lend {
		s.lent[&data[0]], s.last = buf, data
		return data, nil
	}
	defer s.buffers.Put(buf)
	if n == s.size {
		return append([]byte(nil), data...), nil
	}
	if s.err != io.EOF { //nolint:errorlint // see fill
		return nil, s.err
	}
	return append([]byte(nil), data[:n]...), nil
}

// fill reads until b has at least as many bytes as least says, or until the reader returns an error. Only io.EOF is the
// end of the content. fill does not use io.ReadFull, which returns io.ErrUnexpectedEOF at the
// end of the content: a reader returns the same error for a body that was cut off.
func (s *splitter) fill(b []byte, least int) (n int) {
	for n < least && s.err == nil {
		var m int
		m, s.err = s.r.Read(b[n:])
		n += m
	}
	return n
}

// added notes that the chunk in b has become part of a batch.
func (s *splitter) added(b blocks.Block) {
	if data := b.RawData(); len(s.last) > 0 && len(data) > 0 && &data[0] == &s.last[0] {
		s.last = nil
	}
}

// memory returns the buffers of the chunks among the blocks.
func (s *splitter) memory(blks []blocks.Block) (bufs []*[]byte) {
	for _, b := range blks {
		data := b.RawData()
		if len(data) != s.size {
			continue
		}
		if buf, ok := s.lent[&data[0]]; ok {
			delete(s.lent, &data[0])
			bufs = append(bufs, buf)
		}
	}
	return bufs
}

// countingReader counts bytes and returns an error when its context has ended.
type countingReader struct {
	ctx context.Context // of one Import
	r   io.Reader
	n   uint64
}

// Read implements io.Reader.
func (c *countingReader) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(b)
	c.n += uint64(n)
	return n, err
}

// sink is the DAG service to which the importer writes.
type sink struct {
	put     func(blks []blocks.Block, free func()) error
	full    int // bytes at which a batch is complete
	batch   []blocks.Block
	bytes   int
	chunks  *splitter
	builder cid.Builder
	ahead   *byte // first byte of a chunk that was passed to put before the importer added it
}

var errWriteOnly = errors.New("the importer only adds nodes")

// Add implements ipld.NodeAdder.
func (s *sink) Add(_ context.Context, n ipld.Node) error {
	if data := n.RawData(); s.ahead != nil && len(data) > 0 && &data[0] == s.ahead {
		s.ahead = nil // its memory may hold another chunk now
		return nil
	}
	s.chunks.added(n)
	s.batch = append(s.batch, n)
	if s.bytes += len(n.RawData()); s.bytes >= s.full || len(s.batch) >= importBatchBlocks {
		return s.flush()
	}
	return nil
}

// AddMany implements ipld.NodeAdder.
func (s *sink) AddMany(ctx context.Context, nodes []ipld.Node) error {
	for _, n := range nodes {
		if err := s.Add(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// flushAll passes all chunks to put, including the newest one. flush does not pass on the newest
// chunk, because the importer adds a chunk to the DAG only after it has the next chunk.
func (s *sink) flushAll() error {
	if data := s.chunks.last; data != nil {
		n, err := merkledag.NewRawNodeWPrefix(data, s.builder)
		if err != nil {
			return err
		}
		s.chunks.last, s.ahead = nil, &data[0]
		s.batch, s.bytes = append(s.batch, n), s.bytes+len(data)
	}
	return s.flush()
}

func (s *sink) flush() error {
	if len(s.batch) == 0 {
		return nil
	}
	batch := s.batch
	s.batch, s.bytes = nil, 0
	bufs := s.chunks.memory(batch)
	return s.put(batch, func() {
		for _, buf := range bufs {
			s.chunks.buffers.Put(buf)
		}
	})
}

// Get implements ipld.NodeGetter; the importer does not call it.
func (*sink) Get(context.Context, cid.Cid) (ipld.Node, error) { return nil, errWriteOnly }

// GetMany implements ipld.NodeGetter; the importer does not call it.
func (*sink) GetMany(context.Context, []cid.Cid) <-chan *ipld.NodeOption {
	ch := make(chan *ipld.NodeOption, 1)
	ch <- &ipld.NodeOption{Err: errWriteOnly}
	close(ch)
	return ch
}

// Remove implements ipld.DAGService; the importer does not call it.
func (*sink) Remove(context.Context, cid.Cid) error { return errWriteOnly }

// RemoveMany implements ipld.DAGService; the importer does not call it.
func (*sink) RemoveMany(context.Context, []cid.Cid) error { return errWriteOnly }
