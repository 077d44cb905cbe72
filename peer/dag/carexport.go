package dag

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	"github.com/ipld/go-ipld-prime/codec/dagcbor"
	"github.com/ipld/go-ipld-prime/datamodel"
	"github.com/ipld/go-ipld-prime/fluent/qp"
	cidlink "github.com/ipld/go-ipld-prime/linking/cid"
	"github.com/ipld/go-ipld-prime/node/basicnode"
)

// Walks are walks of complete DAGs that share the memory for the CIDs that they have visited: 12 to
// 19 bytes for each block, of at most maxSeenBytes.
type Walks struct{ free *atomic.Int64 }

// NewWalks returns Walks without a walk.
func NewWalks() Walks { return Walks{newSeenBytes()} }

// Check returns nil if from has all blocks of the DAGs of these roots. It calls has and not from for
// leaves without links. It reads a block that is in several of the DAGs once.
//
// Errors: ErrNotFound for the first block that is missing, ErrInvalidBlock, ErrUnsupportedCodec,
// ErrTooLarge, ErrMemory, and the errors of from and has.
func (w Walks) Check(ctx context.Context, from Getter, has func(context.Context, cid.Cid) (bool, error), roots []cid.Cid) error {
	f := newFrontier(Limits{}.withDefaults(), w.free)
	defer f.end()
	for _, root := range roots {
		err := f.walk(ctx, leafless{from, has}, root, func(blocks.Block, bool) error { return nil })
		if err != nil {
			return fmt.Errorf("the DAG of %s: %w", root, err)
		}
	}
	return nil
}

// leafless is a Getter that returns an empty block for a raw block that exists, because a walk needs
// only its links.
type leafless struct {
	Getter
	has func(context.Context, cid.Cid) (bool, error)
}

// Get implements Getter.
func (l leafless) Get(ctx context.Context, c cid.Cid) (blocks.Block, error) {
	if c.Prefix().Codec == cid.Raw {
		if there, err := l.has(ctx, c); err == nil && there {
			return blocks.NewBlockWithCid(nil, c)
		}
	}
	return l.Getter.Get(ctx, c)
}

// Export writes the DAG of root as a CARv1 with this root. The blocks are in depth-first order,
// parents before children, and each CID occurs once. So the bytes depend on the DAG only, and are
// those of `ipfs dag export` of Kubo. Identity CIDs are written like other blocks, as Kubo does.
// Export reads leaves ahead, at most readAhead of them, if from is a Distant whose blocks come from
// far. Export writes nothing before it has read the root. After an error, w may have a part of the CAR.
//
// Errors: those of Check, and the errors of w.
func (w Walks) Export(ctx context.Context, to io.Writer, from Getter, root cid.Cid) error {
	header, err := carHeader(root)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(to, carBuffer)
	f := newFrontier(Limits{}.withDefaults(), w.free)
	f.exact = true // a leaf that is written again would be a repeated block
	defer f.end()
	early := newEarly(ctx, from)
	defer early.end()
	f.coming = early.request
	err = f.walk(ctx, early, root, func(b blocks.Block, _ bool) error {
		if err := writeSection(out, header); err != nil {
			return err
		}
		header = nil
		return writeSection(out, b.Cid().Bytes(), b.RawData())
	})
	if err != nil {
		return err
	}
	return out.Flush()
}

// Distant is an optional method of a Getter. It returns true if blocks come through a network, so that
// it is worth to request several at once. Get must then be safe for concurrent use.
type Distant interface{ Distant() bool }

// early is a Getter that reads some blocks ahead. It is not safe for concurrent use.
type early struct {
	from   Getter
	ctx    context.Context // of the reads
	cancel context.CancelFunc
	reads  sync.WaitGroup
	coming map[cid.Cid]chan arrival // blocks that were requested and not returned yet
}

// arrival is the result of a read.
type arrival struct {
	block blocks.Block
	err   error
}

func newEarly(ctx context.Context, from Getter) *early {
	e := &early{from: from, coming: map[cid.Cid]chan arrival{}}
	e.ctx, e.cancel = context.WithCancel(ctx)
	return e
}

// request begins to read blocks that will be needed soon.
func (e *early) request(cids []cid.Cid) {
	if d, ok := e.from.(Distant); !ok || !d.Distant() {
		return
	}
	for _, c := range cids {
		if e.coming[c] != nil || len(e.coming) >= readAhead {
			continue
		}
		done := make(chan arrival, 1)
		e.coming[c] = done
		e.reads.Go(func() {
			b, err := e.from.Get(e.ctx, c)
			done <- arrival{b, err}
		})
	}
}

// Get implements Getter.
func (e *early) Get(ctx context.Context, c cid.Cid) (blocks.Block, error) {
	done := e.coming[c]
	if done == nil {
		return e.from.Get(ctx, c)
	}
	delete(e.coming, c)
	a := <-done // ends with e.ctx
	return a.block, a.err
}

// end cancels all reads and waits for their end.
func (e *early) end() {
	e.cancel()
	e.reads.Wait()
}

// carHeader returns the header of a CARv1 with one root, without its length.
func carHeader(root cid.Cid) ([]byte, error) {
	header, err := qp.BuildMap(basicnode.Prototype.Map, 2, func(m datamodel.MapAssembler) {
		qp.MapEntry(m, "roots", qp.List(1, func(l datamodel.ListAssembler) {
			qp.ListEntry(l, qp.Link(cidlink.Link{Cid: root}))
		}))
		qp.MapEntry(m, "version", qp.Int(1))
	})
	if err != nil {
		return nil, err
	}
	var data bytes.Buffer
	err = dagcbor.Encode(header, &data)
	return data.Bytes(), err
}

// writeSection writes parts with their length before them. Without any bytes it writes nothing.
func writeSection(w io.Writer, parts ...[]byte) error {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	if n == 0 {
		return nil
	}
	for _, p := range append([][]byte{binary.AppendUvarint(nil, uint64(n))}, parts...) {
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	return nil
}
