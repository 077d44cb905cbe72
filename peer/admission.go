package peer

import (
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/multiformats/go-multistream"
)

// negotiationTimeout bounds how long a stream may take to name its protocol.
const negotiationTimeout = 10 * time.Second

// admission counts the stream handlers that run, so that Close can wait.
type admission struct {
	// mu guards closed, and orders it before the last Add.
	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup

	join *multistream.MultistreamMuxer[protocol.ID] // what a joiner sees; nil until ListenJoin
}

func (a *admission) enter() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	a.wg.Add(1)
	return true
}

func (a *admission) leave() { a.wg.Done() }

func (a *admission) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
}

func (a *admission) wait() { a.wg.Wait() }

func (a *admission) setJoin(m *multistream.MultistreamMuxer[protocol.ID]) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.join = m
}

func (a *admission) joinMux() *multistream.MultistreamMuxer[protocol.ID] {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.join
}

// admit is the one door for streams that come in on the cluster host. A member
// finds every protocol; a joiner finds the join protocol alone, not even
// identify; anyone else, such as a member removed a moment ago, loses the
// connection.
func (p *Peer) admit(s network.Stream) {
	if !p.streams.enter() {
		_ = s.Reset()
		return
	}
	defer p.streams.leave()

	id := s.Conn().RemotePeer()
	negotiate := p.cluster.Mux().Negotiate
	if !p.isMember(id) {
		mux := p.streams.joinMux()
		if mux == nil || !p.opts.Joiners(id.String()) {
			_ = s.Reset()
			_ = s.Conn().Close()
			return
		}
		negotiate = mux.Negotiate
	}
	if err := s.SetDeadline(time.Now().Add(negotiationTimeout)); err != nil {
		_ = s.Reset()
		return
	}
	proto, handle, err := negotiate(s)
	if err != nil {
		_ = s.ResetWithError(network.StreamProtocolNegotiationFailed)
		return
	}
	if s.SetDeadline(time.Time{}) != nil || s.SetProtocol(proto) != nil {
		_ = s.ResetWithError(network.StreamResourceLimitExceeded)
		return
	}
	// Handlers own the stream from here, also when they fail.
	_ = handle(proto, s)
}
