package peer

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/peerstore"
	ma "github.com/multiformats/go-multiaddr"
)

// Refused reports true only for a dial whose addresses were all refused or belong to another node. Only such a member
// is known to be gone: any other error may be the network's.
func TestAMemberRefusesWhenAllItsAddressesDo(t *testing.T) {
	h, err := libp2p.New(libp2p.NoListenAddrs, libp2p.DisableRelay())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	other := newUnknownPeer(t, nil)
	for range 2 {
		if err := other.Network().Listen(ma.StringCast("/ip4/127.0.0.1/tcp/0")); err != nil {
			t.Fatal(err)
		}
	}
	h.Peerstore().AddAddrs(other.ID(), other.Addrs(), peerstore.PermanentAddrTTL)
	dial := func() error {
		_, err := openStream(t.Context(), h, other.ID(), "/unknown")
		return fmt.Errorf("dial: %w", err)
	}
	if err := dial(); Refused(err) {
		t.Errorf("it listens, and knows no such protocol: %v", err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for err = dial(); !Refused(err); err = dial() { // until the connection of before has ended
		if time.Now().After(deadline) {
			t.Fatalf("nothing listens any more: %v", err)
		}
	}
	third := newUnknownPeer(t, nil)
	if err := third.Network().Listen(ma.StringCast("/ip4/127.0.0.1/tcp/0")); err != nil {
		t.Fatal(err)
	}
	h.Peerstore().AddAddrs(other.ID(), third.Addrs(), peerstore.PermanentAddrTTL)
	if err := dial(); !Refused(err) {
		t.Errorf("somebody else listens at one of its addresses: %v", err)
	}
	h.Peerstore().AddAddrs(other.ID(), []ma.Multiaddr{ma.StringCast("/ip4/240.0.0.1/tcp/4001")}, peerstore.PermanentAddrTTL)
	if err := dial(); Refused(err) {
		t.Errorf("one of its addresses cannot be reached: %v", err)
	}
	for _, err := range []error{nil, errors.New("x"), ErrNotMember, context.DeadlineExceeded} {
		if Refused(err) {
			t.Errorf("taken for a refusal: %v", err)
		}
	}
}
