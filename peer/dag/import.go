package dag

import (
	"context"
	"errors"
	"fmt"
	"io"

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
		f.FlushWith(sink.flush)
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
}

// Reader implements chunk.Splitter.
func (s *splitter) Reader() io.Reader { return s.r }

// NextBytes implements chunk.Splitter.
func (s *splitter) NextBytes() ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	var n int
	if n, s.err = io.ReadAtLeast(s.r, s.head[:], 1); s.err != nil {
		return nil, s.err
	}
	buf := s.buffers.Get(ChunkSize)
	data := (*buf)[:ChunkSize]
	copy(data, s.head[:n])
	more, err := io.ReadFull(s.r, data[n:])
	if err == nil {
		s.lent[&data[0]] = buf
		return data, nil
	}
	defer s.buffers.Put(buf)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		s.err = io.EOF
		return append([]byte(nil), data[:n+more]...), nil
	}
	s.err = err
	return nil, err
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
}

var errWriteOnly = errors.New("the importer only adds nodes")

// Add implements ipld.NodeAdder.
func (s *sink) Add(_ context.Context, n ipld.Node) error {
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
