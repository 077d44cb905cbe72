package peer

import (
	"context"
	"crypto/rand"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
)

// tlsNow returns the TLS of a member whose process begins now, and its id.
func tlsNow(t *testing.T) (wholeTLS, peer.ID) {
	t.Helper()
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id, err := peer.IDFromPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newWholeTLS(libp2ptls.ID, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, id
}

// Members connect in both directions when the clock of one was ahead, by decades, at the start of its process.
func TestAWrongClockKeepsNobodyOut(t *testing.T) {
	ahead, aheadID := tlsNow(t)
	synctest.Test(t, func(t *testing.T) { // where it is the year 2000
		if time.Now().Year() > 2000 {
			t.Fatalf("it is %v", time.Now())
		}
		right, rightID := tlsNow(t)
		for name, ends := range map[string]struct {
			from, to wholeTLS
			id       peer.ID
		}{
			"to a member whose clock was ahead":   {right, ahead, aheadID},
			"from a member whose clock was ahead": {ahead, right, rightID},
		} {
			a, b := net.Pipe()
			for _, c := range []net.Conn{a, b} { // whose writes wait for reads: who is refused may write too
				if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
					t.Fatal(err)
				}
			}
			accepted := make(chan error)
			go func() {
				conn, err := ends.to.SecureInbound(context.Background(), b, "")
				if err == nil {
					defer conn.Close()
					_, err = conn.Read(make([]byte, 1))
				}
				accepted <- err
			}()
			conn, err := ends.from.SecureOutbound(context.Background(), a, ends.id)
			if err == nil {
				_, err = conn.Write([]byte{1}) // only who reads it has taken the certificate
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := <-accepted; err != nil {
				t.Errorf("%s: it refuses: %v", name, err)
			}
			_ = a.Close()
		}
	})
}
