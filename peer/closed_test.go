package peer

import (
	"strings"
	"sync"
	"testing"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"
)

// holding is a gater that lets a dial go on when it is told to.
type holding struct {
	once        sync.Once
	asked, free chan struct{}
}

func (h *holding) InterceptAddrDial(libp2ppeer.ID, ma.Multiaddr) bool {
	h.once.Do(func() { close(h.asked) })
	<-h.free
	return true
}

func (*holding) InterceptPeerDial(libp2ppeer.ID) bool        { return true }
func (*holding) InterceptAccept(network.ConnMultiaddrs) bool { return true }
func (*holding) InterceptSecured(network.Direction, libp2ppeer.ID, network.ConnMultiaddrs) bool {
	return true
}
func (*holding) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) { return true, 0 }

// A host that is closed while it dials a member or opens a stream ends the dial with an error. In libp2p such a dial
// asks for a transport that is gone then, which ended the process.
func TestAHostMayBeClosedWhileItDials(t *testing.T) {
	for name, dial := range map[string]func(*Peer, libp2ppeer.ID) error{
		"a member": func(p *Peer, id libp2ppeer.ID) error { return p.dialMember(t.Context(), id) },
		"a stream": func(p *Peer, id libp2ppeer.ID) error {
			_, err := openStream(t.Context(), p.cluster, id, "/x")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			gater := &holding{asked: make(chan struct{}), free: make(chan struct{})}
			h, err := libp2p.New(libp2p.NoListenAddrs, libp2p.ConnectionGater(gater), libp2p.DisableRelay())
			if err != nil {
				t.Fatal(err)
			}
			other := newUnknownPeer(t, nil)
			if err := other.Network().Listen(ma.StringCast("/ip4/127.0.0.1/tcp/0")); err != nil {
				t.Fatal(err)
			}
			h.Peerstore().AddAddrs(other.ID(), other.Addrs(), peerstore.PermanentAddrTTL)
			ended := make(chan error, 1)
			go func() { ended <- dial(&Peer{cluster: h}, other.ID()) }()
			<-gater.asked
			if err := h.Close(); err != nil {
				t.Error(err)
			}
			close(gater.free)
			if err := <-ended; err == nil {
				t.Error("a closed host has dialled")
			}
		})
	}
}

// A member that did not answer a moment ago is dialled again at once, without the back-off of libp2p.
func TestDialsOfMembersDoNotBackOff(t *testing.T) {
	h := newUnknownPeer(t, nil)
	p := &Peer{cluster: h}
	id, err := libp2ppeer.Decode(newID(t))
	if err != nil {
		t.Fatal(err)
	}
	h.Peerstore().AddAddr(id, ma.StringCast("/ip4/127.0.0.1/tcp/1"), peerstore.PermanentAddrTTL)
	for range 3 {
		if err := p.dialMember(t.Context(), id); err == nil || strings.Contains(err.Error(), swarm.ErrDialBackoff.Error()) {
			t.Errorf("a member that is gone: %v", err)
		}
		if _, err := openStream(t.Context(), h, id, "/x"); err == nil || strings.Contains(err.Error(), swarm.ErrDialBackoff.Error()) {
			t.Errorf("a stream to it: %v", err)
		}
	}
	if _, err := h.Network().DialPeer(t.Context(), id); err == nil || !strings.Contains(err.Error(), swarm.ErrDialBackoff.Error()) {
		t.Errorf("libp2p does not back off by itself: %v", err)
	}
}
