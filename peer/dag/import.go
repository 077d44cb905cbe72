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

// The shape of imported content.
const (
	ChunkSize    = 1 << 20 // bytes of a leaf
	LinksPerNode = 1024

	// importBatch is how many bytes are handed to put at once.
	importBatch = 8 << 20
	// importBatchBlocks bounds the blocks of a batch, for content of tiny ones.
	importBatchBlocks = 256
	// headBytes are read of a chunk before there is memory for it.
	headBytes = 32 << 10
)

// Import chunks r into a UnixFS file with raw leaves and BLAKE3-256 hashes,
// CIDv1, and hands the blocks to put in batches, children before parents; the
// root is in the last one. Content of at most ChunkSize is one raw block. put
// owns the slice and the blocks. Memory is bounded whatever the size.
func Import(ctx context.Context, r io.Reader, put func([]blocks.Block) error) (root cid.Cid, size uint64, err error) {
	return new(Buffers).Import(ctx, r, importBatch, func(blks []blocks.Block, _ func()) error { return put(blks) })
}

// Flusher is a reader that may want what has been cut of it to be handed over at once,
// because it cannot go on before: FlushWith gives it a call for that, which is good within
// its Read. It fails as put does.
type Flusher interface {
	FlushWith(flush func() error)
}

// Import is the function Import with leaves in this memory, and batches that are handed
// over as soon as they have so many bytes, or a Flusher wants it. Once nobody uses the
// blocks of a batch any more, free may be called with it, and gives their memory back.
func (b *Buffers) Import(ctx context.Context, r io.Reader, batch int, put func(blks []blocks.Block, free func()) error) (root cid.Cid, size uint64, err error) {
	counted := &countingReader{ctx: ctx, r: r}
	chunks := &splitter{r: counted, buffers: b, lent: map[*byte]*[]byte{}}
	sink := &sink{put: put, full: batch, chunks: chunks}
	if f, ok := r.(Flusher); ok {
		f.FlushWith(sink.flushAll)
	}
	params := helpers.DagBuilderParams{
		Maxlinks:   LinksPerNode,
		RawLeaves:  true,
		CidBuilder: builder,
		Dagserv:    sink,
	}
	layout, err := params.New(chunks)
	if err != nil {
		return cid.Undef, 0, fmt.Errorf("dag: import: %w", err)
	}
	node, err := balanced.Layout(layout)
	if err == nil {
		err = sink.flush()
	}
	if err != nil {
		return cid.Undef, counted.n, fmt.Errorf("dag: import: %w", err)
	}
	return node.Cid(), counted.n, nil
}

// splitter cuts a reader into chunks. It has memory for a chunk once its first bytes have
// come: a reader that waits for its turn to have memory has none while it waits.
type splitter struct {
	r       io.Reader
	head    [headBytes]byte
	err     error // what comes instead of the next chunk
	buffers *Buffers
	lent    map[*byte]*[]byte // chunks that are in no batch yet, by where they begin
	last    []byte            // the chunk that was cut last
}

// Reader implements chunk.Splitter.
func (s *splitter) Reader() io.Reader { return s.r }

// NextBytes implements chunk.Splitter.
func (s *splitter) NextBytes() ([]byte, error) {
	n := s.fill(s.head[:], 1)
	if n == 0 {
		return nil, s.err
	}
	buf := s.buffers.Get(ChunkSize)
	data := (*buf)[:ChunkSize]
	copy(data, s.head[:n])
	if n += s.fill(data[n:], ChunkSize-n); n == ChunkSize {
		s.lent[&data[0]], s.last = buf, data
		return data, nil
	}
	defer s.buffers.Put(buf)
	if s.err != io.EOF { //nolint:errorlint // see fill
		return nil, s.err
	}
	return append([]byte(nil), data[:n]...), nil
}

// fill reads at least so many bytes, or all that come before the reader's error. An
// io.EOF alone is the end of the content: to io.ReadFull a body that was cut, and says
// io.ErrUnexpectedEOF, would look like one that ends within a chunk.
func (s *splitter) fill(b []byte, least int) (n int) {
	for n < least && s.err == nil {
		var m int
		m, s.err = s.r.Read(b[n:])
		n += m
	}
	return n
}

// added notes that a chunk is in a batch.
func (s *splitter) added(b blocks.Block) {
	if data := b.RawData(); len(s.last) > 0 && len(data) > 0 && &data[0] == &s.last[0] {
		s.last = nil
	}
}

// memory is that of the chunks among blocks.
func (s *splitter) memory(blks []blocks.Block) (bufs []*[]byte) {
	for _, b := range blks {
		data := b.RawData()
		if len(data) != ChunkSize {
			continue
		}
		if buf, ok := s.lent[&data[0]]; ok {
			delete(s.lent, &data[0])
			bufs = append(bufs, buf)
		}
	}
	return bufs
}

// countingReader counts bytes and ends with its context.
type countingReader struct {
	ctx context.Context // of the one Import
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

// sink is the DAG service that the importer writes to.
type sink struct {
	put    func(blks []blocks.Block, free func()) error
	full   int // bytes of a batch
	batch  []blocks.Block
	bytes  int
	chunks *splitter
	ahead  *byte // where a chunk began that was handed over before the importer added it
}

var errWriteOnly = errors.New("the importer only adds nodes")

// Add implements ipld.NodeAdder.
func (s *sink) Add(_ context.Context, n ipld.Node) error {
	if data := n.RawData(); s.ahead != nil && len(data) > 0 && &data[0] == s.ahead {
		s.ahead = nil // its memory may have another chunk by now
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

// flushAll is flush with the chunk that was cut last: the importer adds the first only
// when it has the second.
func (s *sink) flushAll() error {
	if data := s.chunks.last; data != nil {
		n, err := merkledag.NewRawNodeWPrefix(data, builder)
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
