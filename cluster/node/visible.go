package node

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// visibleProtocol asks a member whether it shows a block to peers that are not members. The request
// is the CID of the block and a line feed. The answer is 1 or 0. Members send each other private blocks
// too, so that a member has a block does not say that everybody may read it. A member that does not
// know the protocol refuses the stream and counts as silent.
const visibleProtocol = "/holdfast/visible/1"

// Limits for questions about blocks.
const (
	// visibleTimeout is how long a request of the IPFS gateway waits for the answers of members.
	visibleTimeout = time.Second
	// maxFinding is the largest number of blocks about which this node asks members at the same time, with
	// one stream to each member. Further ones wait within visibleTimeout. maxShowing is the largest number of questions that this
	// node answers at the same time.
	maxFinding = 64
	maxShowing = 256
)

// visibility asks members whether they show blocks to everybody, and answers such questions of other
// members. The answers are not cached: content that becomes private is not served any more when the
// members have hidden it.
type visibility struct {
	dial    func(ctx context.Context, id, proto string) (net.Conn, error)
	others  func() []state.NodeID // members that are not down, without this node
	shows   func(ctx context.Context, c cid.Cid) (bool, error)
	finding chan struct{} // has maxFinding places
}

// Find returns a member that shows the block c. Errors: state.ErrNotFound if all members have answered
// that they do not, state.ErrUnavailable if one of them has not answered in time.
func (v *visibility) Find(ctx context.Context, c cid.Cid) (state.NodeID, error) {
	ctx, cancel := context.WithTimeout(ctx, visibleTimeout)
	var asked sync.WaitGroup
	defer asked.Wait()
	defer cancel()
	done, err := v.enter(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	type answer struct {
		id    state.NodeID
		shows bool
		err   error
	}
	others := v.others()
	answers := make(chan answer, len(others))
	for _, id := range others {
		asked.Go(func() {
			shows, err := v.ask(ctx, id, c)
			answers <- answer{id, shows, err}
		})
	}
	silent := 0
	for range others {
		switch a := <-answers; {
		case a.err != nil:
			silent++
		case a.shows:
			return a.id, nil
		}
	}
	if silent > 0 {
		return "", state.Errorf(state.CodeUnavailable, "%d members, which may have %s, did not answer", silent, c)
	}
	return "", state.Errorf(state.CodeNotFound, "this cluster does not keep %s, or it is not public", c)
}

// Asks returns whether a member shows the block c, or an error if the member does not answer within
// visibleTimeout.
func (v *visibility) Asks(ctx context.Context, id state.NodeID, c cid.Cid) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, visibleTimeout)
	defer cancel()
	done, err := v.enter(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	return v.ask(ctx, id, c)
}

// enter takes a place among the blocks about which this node asks. The caller calls done.
func (v *visibility) enter(ctx context.Context) (done func(), err error) {
	select {
	case v.finding <- struct{}{}:
		return func() { <-v.finding }, nil
	case <-ctx.Done():
		return nil, state.Errorf(state.CodeUnavailable, "this node asks its members for too many blocks at once")
	}
}

func (v *visibility) ask(ctx context.Context, id state.NodeID, c cid.Cid) (bool, error) {
	data, err := question(ctx, v.dial, id, visibleProtocol, c, 1)
	if err == nil && string(data) != "0" && string(data) != "1" {
		err = fmt.Errorf("member %s answers %q", id, data)
	}
	return string(data) == "1", err
}

// serve answers questions of members until ctx ends.
func (v *visibility) serve(ctx context.Context, l net.Listener) error {
	return serveStreams(ctx, l, maxShowing, v.answer)
}

// answer answers one question. It closes the connection without an answer if the question is malformed
// or if the store cannot be read.
func (v *visibility) answer(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithTimeout(ctx, visibleTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	c, err := readRoot(conn)
	if err != nil {
		return
	}
	shows, err := v.shows(ctx, c)
	if err != nil {
		return
	}
	text := "0"
	if shows {
		text = "1"
	}
	_, _ = io.WriteString(conn, text) // it counts as silent if this fails
}

// question sends a CID to a member by a protocol, and returns the answer, of at most limit bytes. It
// returns an error if the member has not answered when ctx ends.
func question(ctx context.Context, dial func(ctx context.Context, id, proto string) (net.Conn, error), id state.NodeID, proto string, c cid.Cid, limit int64) ([]byte, error) {
	conn, err := dial(ctx, string(id), proto)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		stop()
		_ = conn.Close()
	}()
	if _, err := io.WriteString(conn, c.String()+"\n"); err != nil {
		return nil, fmt.Errorf("ask %s: %w", id, err)
	}
	data, err := io.ReadAll(io.LimitReader(conn, limit))
	if err != nil {
		return nil, fmt.Errorf("answer of %s: %w", id, err)
	}
	return data, nil
}
