package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
	"github.com/libp2p/go-libp2p/core/network"
)

const (
	// requestsAtOnce is the number of streams that one GetBlocks uses. With several, the
	// hash of one block is computed while another arrives.
	requestsAtOnce = 4
	// minRequestCIDs is the smallest number of CIDs for which a request is split.
	minRequestCIDs = 8
	// blockTimeout bounds the time in which steadyBytes, or a whole block, must be sent or
	// received.
	blockTimeout = 30 * time.Second
	// serveIdle is how long a served stream may stay without a request. It is longer than
	// streamIdle, so that the client closes first.
	serveIdle = 3 * time.Minute
	// maxServedRequests is the number of block requests that this node answers at the same time.
	// One member can have at most 50 % of them. Other requests wait on their streams.
	maxServedRequests = 64
	blockBuffer       = 64 << 10
)

// ErrBadBlock means that a member sent bytes that do not match the CID.
var ErrBadBlock = errors.New("block does not match its hash")

// GetBlocks requests blocks from one member and passes each block to fn, in any order and never two
// at once. It verifies the hash of a block before it calls fn, and returns ErrBadBlock if the hash
// is wrong. If fn returns an error, GetBlocks stops and returns it. missing has the CIDs whose
// blocks were not passed to fn. If the error is nil, the member does not store these blocks.
func (p *Peer) GetBlocks(ctx context.Context, member string, cids []cid.Cid, fn func(blocks.Block) error) (missing []cid.Cid, err error) {
	return p.getBlocks(ctx, member, cids, fresh, fn)
}

// GetBlocksHearing does the same as GetBlocks. In addition it calls heard when a block begins to
// arrive, possibly on several goroutines at once. On a slow line this is long before the first
// block is complete.
func (p *Peer) GetBlocksHearing(ctx context.Context, member string, cids []cid.Cid, heard func(), fn func(blocks.Block) error) (missing []cid.Cid, err error) {
	return p.getBlocks(ctx, member, cids, func(bytes int) []byte {
		heard()
		return fresh(bytes)
	}, fn)
}

func (p *Peer) getBlocks(ctx context.Context, member string, cids []cid.Cid, lend func(int) []byte, fn func(blocks.Block) error) (missing []cid.Cid, err error) {
	size := min(max((len(cids)+requestsAtOnce-1)/requestsAtOnce, minRequestCIDs), maxRequestCIDs)
	pull := pull{fn: fn}
	take := taker{lend: lend, take: pull.deliver, steady: true}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	slots := make(chan struct{}, requestsAtOnce)
	for start := 0; start < len(cids); start += size {
		part := cids[start:min(start+size, len(cids))]
		slots <- struct{}{}
		if ctx.Err() != nil {
			pull.fail(part, nil)
			<-slots
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if rest, err := p.pullPart(ctx, member, part, take); err != nil || len(rest) > 0 {
				pull.fail(rest, err)
				if err != nil {
					cancel() // one error is enough; cancel the other streams
				}
			}
		})
	}
	wg.Wait()
	if pull.err == nil {
		pull.err = context.Cause(ctx)
	}
	if pull.err != nil {
		return pull.missing, fmt.Errorf("peer: blocks from %s: %w", member, pull.err)
	}
	return pull.missing, nil
}

// ReadBlock requests one block from one member and verifies its hash. The bytes are in
// the memory that the last call of lend returned. The error is ipld.ErrNotFound if the
// member does not have the block, and ErrBadBlock if the hash is wrong.
func (p *Peer) ReadBlock(ctx context.Context, member string, c cid.Cid, lend func(bytes int) []byte) (data []byte, err error) {
	missing, err := p.pullPart(ctx, member, []cid.Cid{c}, taker{lend: lend, take: func(_ cid.Cid, b []byte) error {
		data = b
		return nil
	}})
	switch {
	case err != nil:
		return nil, fmt.Errorf("peer: block from %s: %w", member, err)
	case len(missing) > 0:
		return nil, ipld.ErrNotFound{Cid: c}
	}
	return data, nil
}

// taker receives the blocks that a member sends.
type taker struct {
	lend func(bytes int) []byte                 // returns memory for the next block
	take func(c cid.Cid, verified []byte) error // receives a block whose hash is right; an error ends the request
	// steady is true if a block may take long as long as bytes arrive. Otherwise a block
	// that takes longer than blockTimeout is an error, because another member may be
	// faster. GetBlocks sets it, because its parallel streams slow each other down.
	steady bool
}

// fresh allocates the memory for one block.
func fresh(bytes int) []byte { return make([]byte, bytes) }

// pull is the state that the streams of one GetBlocks share.
type pull struct {
	// mu guards all fields. It is held during fn, so that fn gets one block at a time.
	mu      sync.Mutex
	fn      func(blocks.Block) error
	missing []cid.Cid
	err     error // the first error
}

func (u *pull) deliver(c cid.Cid, data []byte) error {
	b, err := blocks.NewBlockWithCid(data, c)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err != nil {
		return u.err
	}
	u.err = u.fn(b) // after an error no stream calls fn again
	return u.err
}

func (u *pull) fail(missing []cid.Cid, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.missing = append(u.missing, missing...)
	if u.err == nil {
		u.err = err
	}
}

// pullPart sends one request and reads the responses. If a pooled stream fails before the
// first response, it tries a new stream once.
func (p *Peer) pullPart(ctx context.Context, member string, cids []cid.Cid, to taker) (missing []cid.Cid, err error) {
	if to.steady {
		giveBack, err := p.pool.takeBulk(ctx, member)
		if err != nil {
			return cids, err
		}
		defer giveBack()
	}
	for {
		s, err := p.pool.get(ctx, member)
		if err != nil {
			return cids, err
		}
		missing, err := p.exchange(ctx, s, cids, to)
		p.pool.put(member, s, err == nil)
		if err != nil && s.reused && len(missing) == len(cids) && ctx.Err() == nil && !errors.Is(err, ErrBadBlock) {
			p.pool.dropIdle(member) // the other idle streams are as old
			continue
		}
		return missing, err
	}
}

// exchange sends one request on s and reads the responses.
func (p *Peer) exchange(ctx context.Context, s *pooledStream, cids []cid.Cid, to taker) (missing []cid.Cid, err error) {
	stop := context.AfterFunc(ctx, func() { _ = s.stream.Reset() })
	defer func() {
		if !stop() {
			err = ctx.Err() // the stream was reset, perhaps after the last response
		}
	}()
	frame, err := appendRequest(s.frame[:0], cids)
	if err != nil {
		return cids, err
	}
	s.frame = frame
	if err := s.stream.SetDeadline(time.Now().Add(blockTimeout)); err != nil {
		return cids, err
	}
	if _, err := s.stream.Write(frame); err != nil {
		return cids, fmt.Errorf("request: %w", err)
	}
	for i, c := range cids {
		began := time.Now()
		if err := s.stream.SetReadDeadline(began.Add(blockTimeout)); err != nil {
			return append(missing, cids[i:]...), err
		}
		in := &steadyReader{in: s.in, stream: s.stream}
		if !to.steady {
			most := 1
			in.last = func() time.Time {
				most = max(most, p.pool.busy(s.member))
				return began.Add(time.Duration(most) * blockTimeout)
			}
		}
		status, data, err := readResponse(in, to.lend)
		if err != nil {
			return append(missing, cids[i:]...), err
		}
		if status != statusFound {
			missing = append(missing, c)
			continue
		}
		if err := verify(c, data); err != nil {
			p.metrics.badBlocks.Inc()
			p.log.WarnContext(ctx, "member sent a bad block", "member", s.member, "cid", c, "err", err)
			return append(missing, cids[i:]...), err
		}
		p.metrics.blocksPulled.Inc()
		p.metrics.bytesPulled.Add(float64(len(data)))
		if err := to.take(c, data); err != nil {
			return append(missing, cids[i:]...), err
		}
	}
	return missing, nil
}

// verify returns ErrBadBlock unless data has the hash of c.
func verify(c cid.Cid, data []byte) error {
	sum, err := c.Prefix().Sum(data)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrBadBlock, c, err)
	}
	if !sum.Equals(c) {
		return fmt.Errorf("%w: %s", ErrBadBlock, c)
	}
	return nil
}

// serveBlocks answers the block requests on one stream until the member closes the stream.
func (p *Peer) serveBlocks(s network.Stream) {
	in := bufio.NewReaderSize(s, 4<<10)
	out := bufio.NewWriterSize(steadyWriter{s}, blockBuffer)
	for {
		if err := p.serveRequest(s, in, out); err != nil {
			if errors.Is(err, io.EOF) {
				_ = s.Close()
				return
			}
			p.log.Debug("block stream ended", "member", s.Conn().RemotePeer().String(), "err", err)
			_ = s.Reset()
			return
		}
	}
}

func (p *Peer) serveRequest(s network.Stream, in *bufio.Reader, out *bufio.Writer) error {
	if err := s.SetReadDeadline(time.Now().Add(serveIdle)); err != nil {
		return err
	}
	cids, err := readRequest(in)
	if err != nil {
		return err
	}
	if !p.isMember(s.Conn().RemotePeer()) {
		return ErrNotMember // removed while its stream was in the pool
	}
	if err := p.serving.take(p.ctx, s.Conn().RemotePeer()); err != nil {
		return err
	}
	defer p.serving.giveBack(s.Conn().RemotePeer())
	var buf *[]byte
	defer func() { p.buffers.Put(buf) }()
	lend := func(bytes int) []byte {
		buf = p.buffers.Grow(buf, bytes)
		return (*buf)[:bytes]
	}
	for _, c := range cids {
		if err := p.serveBlock(c, lend, out); err != nil {
			return err
		}
	}
	return out.Flush()
}

// checksummed is a block store that can skip the hash check, because the receiver does it,
// and that reads into memory of the caller.
type checksummed interface {
	ReadChecksummed(ctx context.Context, c cid.Cid, lend func(bytes int) []byte) ([]byte, error)
}

// stored reads a block to send. It does not verify the hash; the receiver does.
func (p *Peer) stored(c cid.Cid, lend func(bytes int) []byte) ([]byte, error) {
	if s, ok := p.opts.Blocks.(checksummed); ok {
		return s.ReadChecksummed(p.ctx, c, lend)
	}
	b, err := p.opts.Blocks.Get(p.ctx, c)
	if err != nil {
		return nil, err
	}
	return b.RawData(), nil
}

// serveBlock writes the response for one CID to out.
func (p *Peer) serveBlock(c cid.Cid, lend func(bytes int) []byte, out *bufio.Writer) error {
	data, err := p.stored(c, lend)
	switch {
	case err == nil && len(data) <= MaxBlock:
		p.metrics.blocksServed.Inc()
		p.metrics.bytesServed.Add(float64(len(data)))
		return writeBlock(out, data)
	case err == nil:
		p.log.Warn("stored block is too large to serve", "cid", c, "bytes", len(data))
		return out.WriteByte(statusFailed)
	case ipld.IsNotFound(err):
		return out.WriteByte(statusAbsent)
	default:
		p.log.Error("cannot read a stored block", "cid", c, "err", err)
		return out.WriteByte(statusFailed)
	}
}
