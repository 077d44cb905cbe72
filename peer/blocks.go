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
	// requestsAtOnce is how many streams one GetBlocks uses: enough that one
	// block's hash is computed while another is on its way.
	requestsAtOnce = 4
	// minRequestCIDs keeps small requests whole.
	minRequestCIDs = 8
	// blockTimeout bounds the time without one whole block coming or going.
	blockTimeout = 30 * time.Second
	// serveIdle is how long a served stream may stay without a request. It is
	// longer than streamIdle, so that the client closes first.
	serveIdle = 3 * time.Minute
	// maxServedRequests bounds the requests answered at the same time; the
	// others wait on their streams.
	maxServedRequests = 64
	blockBuffer       = 64 << 10
)

// ErrBadBlock is returned when a member sent bytes that do not match the CID.
var ErrBadBlock = errors.New("block does not match its hash")

// GetBlocks asks one member for blocks and hands each one that it has to fn,
// after checking its hash, in any order, never two at once. An error of fn
// ends the call and is returned. missing holds the CIDs that fn has not
// seen, whether or not there is an error; with a nil error the member does not
// have them.
func (p *Peer) GetBlocks(ctx context.Context, member string, cids []cid.Cid, fn func(blocks.Block) error) (missing []cid.Cid, err error) {
	size := min(max((len(cids)+requestsAtOnce-1)/requestsAtOnce, minRequestCIDs), maxRequestCIDs)
	pull := pull{fn: fn}
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
			if rest, err := p.pullPart(ctx, member, part, &pull); err != nil || len(rest) > 0 {
				pull.fail(rest, err)
				if err != nil {
					cancel() // one reason is enough; the parts on their way end too
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

// pull is what the streams of one GetBlocks share.
type pull struct {
	// mu guards all of it; fn is called under it, one block at a time.
	mu      sync.Mutex
	fn      func(blocks.Block) error
	missing []cid.Cid
	err     error // the first
}

func (u *pull) deliver(b blocks.Block) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err != nil {
		return u.err
	}
	u.err = u.fn(b) // so that no other stream calls it after an error
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

// pullPart sends one request and reads its answers. A pooled stream that turns
// out to be dead before the first answer is replaced once.
func (p *Peer) pullPart(ctx context.Context, member string, cids []cid.Cid, u *pull) (missing []cid.Cid, err error) {
	for {
		s, err := p.pool.get(ctx, member)
		if err != nil {
			return cids, err
		}
		missing, err := p.exchange(ctx, s, cids, u)
		p.pool.put(member, s, err == nil)
		if err != nil && s.reused && len(missing) == len(cids) && ctx.Err() == nil && !errors.Is(err, ErrBadBlock) {
			p.pool.dropIdle(member) // its siblings are as old
			continue
		}
		return missing, err
	}
}

// exchange speaks one request and its answers on s.
func (p *Peer) exchange(ctx context.Context, s *pooledStream, cids []cid.Cid, u *pull) (missing []cid.Cid, err error) {
	stop := context.AfterFunc(ctx, func() { _ = s.stream.Reset() })
	defer func() {
		if !stop() {
			err = ctx.Err() // the stream is gone, perhaps after the last answer
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
		if err := s.stream.SetReadDeadline(time.Now().Add(blockTimeout)); err != nil {
			return append(missing, cids[i:]...), err
		}
		status, data, err := readResponse(s.in)
		if err != nil {
			return append(missing, cids[i:]...), err
		}
		if status != statusFound {
			missing = append(missing, c)
			continue
		}
		b, err := verified(c, data)
		if err != nil {
			p.metrics.badBlocks.Inc()
			p.log.WarnContext(ctx, "member sent a bad block", "member", s.member, "cid", c, "err", err)
			return append(missing, cids[i:]...), err
		}
		p.metrics.blocksPulled.Inc()
		p.metrics.bytesPulled.Add(float64(len(data)))
		if err := u.deliver(b); err != nil {
			return append(missing, cids[i:]...), err
		}
	}
	return missing, nil
}

// verified makes a block of data if it hashes to c.
func verified(c cid.Cid, data []byte) (blocks.Block, error) {
	sum, err := c.Prefix().Sum(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrBadBlock, c, err)
	}
	if !sum.Equals(c) {
		return nil, fmt.Errorf("%w: %s", ErrBadBlock, c)
	}
	return blocks.NewBlockWithCid(data, c)
}

// serveBlocks answers the requests of one stream until the member is done.
func (p *Peer) serveBlocks(s network.Stream) {
	in := bufio.NewReaderSize(s, 4<<10)
	out := bufio.NewWriterSize(s, blockBuffer)
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
		return ErrNotMember // removed while its stream was pooled
	}
	select {
	case p.serving <- struct{}{}:
		defer func() { <-p.serving }()
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
	for _, c := range cids {
		if err := s.SetWriteDeadline(time.Now().Add(blockTimeout)); err != nil {
			return err
		}
		if err := p.serveBlock(c, out); err != nil {
			return err
		}
	}
	return out.Flush()
}

// checksummed is a block store that can leave the hash of what it reads to who
// receives it.
type checksummed interface {
	GetChecksummed(ctx context.Context, c cid.Cid) (blocks.Block, error)
}

func (p *Peer) serveBlock(c cid.Cid, out *bufio.Writer) error {
	read := p.opts.Blocks.Get
	if s, ok := p.opts.Blocks.(checksummed); ok {
		read = s.GetChecksummed // the member compares the hash
	}
	b, err := read(p.ctx, c)
	switch {
	case err == nil && len(b.RawData()) <= MaxBlock:
		p.metrics.blocksServed.Inc()
		p.metrics.bytesServed.Add(float64(len(b.RawData())))
		return writeBlock(out, b.RawData())
	case err == nil:
		p.log.Warn("stored block too large to serve", "cid", c, "bytes", len(b.RawData()))
		return out.WriteByte(statusFailed)
	case ipld.IsNotFound(err):
		return out.WriteByte(statusAbsent)
	default:
		p.log.Error("stored block not readable", "cid", c, "err", err)
		return out.WriteByte(statusFailed)
	}
}
