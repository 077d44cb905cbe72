package consensus

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/consensus/transport"
	"github.com/holdfast-ipfs/holdfast/consensus/wire"
)

// Kinds of requests between members, each with its request body -> response body. Numbers are
// append-only.
const (
	askPropose   = 1 // commit this encoded command -> the encoded outcome
	askReadIndex = 2 // the newest term that the requesting voter knows, or nothing -> an index that the local state must reach before the read
	askApplied   = 3 // -> the index that the node has applied
	askTerm      = 4 // -> the newest term that the node knows
	askLevel     = 5 // -> the newest feature level that the node understands
	askClock     = 6 // -> a reading of the node's clock
	askProposeBy = 7 // commit this encoded command unless it arrives after a deadline -> a clock reading and its encoded outcome
	askBeat      = 8 // a beat, see beat.go -> what the node has seen of the leader
	askLeads     = 9 // -> the term in which the node leads, or 0
)

// Results of requests between members. Numbers are append-only.
const (
	answerDone    = 1
	answerRetry   = 2 // the request may be tried again; body: the reason as text
	answerRefused = 3 // the request was rejected for good; body: an encoded outcome with the error
	answerLate    = 4 // the deadline has passed, and the command will not be committed; body: a clock reading
)

// forwards sends requests to other members, and has the listener for requests from them.
type forwards struct {
	client   *transport.Client
	listener net.Listener
	clock    *leaderClock
}

func openForwards(network Network) (*forwards, error) {
	l, err := network.Listen(transport.ForwardProtocol)
	if err != nil {
		return nil, fmt.Errorf("listen for forwarded requests: %w", err)
	}
	return &forwards{client: transport.NewClient(network, transport.ForwardProtocol), listener: l, clock: newLeaderClock()}, nil
}

func (f *forwards) close() error {
	err := f.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil // Run has closed it
	}
	return errors.Join(err, f.client.Close())
}

// propose makes the leader commit an encoded command. Its errors are those of batcher.submit.
func (f *forwards) propose(ctx context.Context, leader state.NodeID, body []byte) (wire.Outcome, error) {
	answer, err := f.call(ctx, leader, askPropose, body)
	if err != nil {
		return wire.Outcome{}, err
	}
	outcome, err := wire.DecodeOutcome(answer)
	if err != nil {
		return wire.Outcome{}, fmt.Errorf("%w: %w", errRetry, err)
	}
	return outcome, nil
}

// proposeBy is propose with a deadline, after which the leader will not append the command. The
// deadline is the end of ctx, or proposeTimeout from now, converted to the leader's clock. If the
// error wraps errUntaken, the command will never take effect. changed identifies the leadership,
// as in leaderGate.get.
func (f *forwards) proposeBy(ctx context.Context, leader state.NodeID, changed <-chan struct{}, body []byte) (wire.Outcome, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(proposeTimeout)
	}
	by, err := f.clock.by(ctx, changed, deadline, func() (reading, error) {
		answer, err := f.call(ctx, leader, askClock, nil)
		if err != nil {
			return reading{}, err
		}
		r, _, ok := cutReading(answer)
		if !ok {
			return reading{}, fmt.Errorf("%w: a reading of %d bytes", errRetry, len(answer))
		}
		return r, nil
	})
	if err != nil {
		return wire.Outcome{}, err
	}
	request := append(by.append(make([]byte, 0, readingBytes+len(body))), body...)
	how, answer, err := f.client.Call(ctx, string(leader), askProposeBy, request)
	if err != nil {
		return wire.Outcome{}, fmt.Errorf("%w: %w", errRetry, err)
	}
	if how != answerDone && how != answerLate {
		_, err := f.answered(leader, how, answer)
		return wire.Outcome{}, err
	}
	now, rest, ok := cutReading(answer)
	if !ok {
		return wire.Outcome{}, fmt.Errorf("%w: a reading of %d bytes", errRetry, len(answer))
	}
	f.clock.heardOf(changed, now)
	if how == answerLate {
		return wire.Outcome{}, fmt.Errorf("%w: by node %s", errUntaken, leader)
	}
	outcome, err := wire.DecodeOutcome(rest)
	if err != nil {
		return wire.Outcome{}, fmt.Errorf("%w: %w", errRetry, err)
	}
	return outcome, nil
}

// number sends a request whose answer is one number of 8 bytes, such as an index or a term.
func (f *forwards) number(ctx context.Context, node state.NodeID, kind uint8, body []byte) (uint64, error) {
	answer, err := f.call(ctx, node, kind, body)
	if err != nil {
		return 0, err
	}
	if len(answer) != 8 {
		return 0, fmt.Errorf("%w: a number of %d bytes", errRetry, len(answer))
	}
	return binary.BigEndian.Uint64(answer), nil
}

func (f *forwards) call(ctx context.Context, node state.NodeID, kind uint8, body []byte) ([]byte, error) {
	how, answer, err := f.client.Call(ctx, string(node), kind, body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRetry, err)
	}
	return f.answered(node, how, answer)
}

// answered returns the body of the answer if how is answerDone. Otherwise it returns the error
// that the answer contains. how is a result code from above.
func (f *forwards) answered(node state.NodeID, how uint8, answer []byte) ([]byte, error) {
	switch how {
	case answerDone:
		return answer, nil
	case answerRefused:
		refused, err := wire.DecodeOutcome(answer)
		if err == nil && refused.Err != nil {
			return nil, refused.Err
		}
	case answerRetry:
		return nil, fmt.Errorf("%w: node %s: %s", errRetry, node, answer)
	}
	return nil, fmt.Errorf("%w: node %s answers %d, which is no answer", errRetry, node, how)
}

// serve answers one request of another member.
func (n *Node) serve(ctx context.Context, from string, kind uint8, body []byte) (uint8, []byte) {
	switch kind {
	case askPropose:
		outcome, err := n.batcher.submit(ctx, body)
		if err != nil {
			return refusal(err)
		}
		n.transport.NotifyCommit(from, outcome.Index) // which it waits for
		encoded, err := wire.EncodeOutcome(outcome)
		if err != nil {
			return refusal(err)
		}
		return answerDone, encoded
	case askClock:
		return answerDone, n.clock.now().append(nil)
	case askProposeBy:
		return n.serveBy(ctx, from, body)
	case askReadIndex:
		if !n.IsLeader() { // asking on would go round in circles
			return refusal(fmt.Errorf("%w: not the leader", errRetry))
		}
		index, ok := n.vouched(from, body)
		if !ok {
			var err error
			if index, err = n.reads.join(ctx); err != nil {
				return refusal(err)
			}
		}
		n.transport.NotifyCommit(from, index) // which it waits for
		return answerDone, binary.BigEndian.AppendUint64(nil, index)
	case askApplied:
		return answerDone, binary.BigEndian.AppendUint64(nil, n.Applied())
	case askTerm:
		if !n.knowsItsTerm() {
			return refusal(fmt.Errorf("%w: this node has no vote, so its term vouches for nothing", errRetry))
		}
		return answerDone, binary.BigEndian.AppendUint64(nil, n.raft.CurrentTerm())
	case askLevel:
		return answerDone, binary.BigEndian.AppendUint64(nil, uint64(state.NewestFeatureLevel))
	case askBeat:
		if n.detector != nil {
			return n.answerBeat(from, body)
		}
	case askLeads:
		if term := n.raft.CurrentTerm(); n.beats.leads(term) {
			return answerDone, binary.BigEndian.AppendUint64(nil, term)
		}
		return answerDone, binary.BigEndian.AppendUint64(nil, 0)
	}
	return refusal(state.Errorf(state.CodeInvalid, "request of unknown kind %d", kind))
}

// serveBy commits a command of another member, unless the deadline of the command has passed.
func (n *Node) serveBy(ctx context.Context, from string, request []byte) (uint8, []byte) {
	by, body, ok := cutReading(request)
	if !ok {
		return refusal(state.Errorf(state.CodeInvalid, "a command without a deadline"))
	}
	deadline, ok := n.clock.when(by)
	if !ok || !time.Now().Before(deadline) {
		return answerLate, n.clock.now().append(nil)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	outcome, err := n.batcher.submit(ctx, body)
	switch {
	case errors.Is(err, errUntaken):
		return answerLate, n.clock.now().append(nil)
	case err != nil:
		return refusal(err)
	}
	n.transport.NotifyCommit(from, outcome.Index) // which it waits for
	encoded, err := wire.EncodeOutcome(outcome)
	if err != nil {
		return refusal(err)
	}
	return answerDone, append(n.clock.now().append(make([]byte, 0, readingBytes+len(encoded))), encoded...)
}

// refusal returns the answer that contains an error.
func refusal(err error) (uint8, []byte) {
	var coded *state.Error
	if errors.As(err, &coded) && !errors.Is(err, errRetry) {
		if encoded, err := wire.EncodeOutcome(wire.Outcome{Err: coded}); err == nil {
			return answerRefused, encoded
		}
	}
	return answerRetry, []byte(err.Error())
}
