package peer

import (
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/multiformats/go-multistream"
)

// negotiationTimeout bounds the time in which a stream must name its protocol.
const negotiationTimeout = 10 * time.Second

// admission counts the running stream handlers, so that Close can wait for them.
type admission struct {
	// mu guards closed. With mu held, enter adds nothing to wg after closed is set.
	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup

	join *multistream.MultistreamMuxer[protocol.ID] // the protocols of joining nodes; nil until ListenJoin
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

// admit handles every inbound stream of the cluster host. A member may use every protocol
// and a joining node only the join protocol, not even identify. For any other peer, such as
// a member removed a moment ago, admit closes the connection.
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
	// The handler owns the stream now, also if it fails.
	_ = handle(proto, s)
}
