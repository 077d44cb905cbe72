package peer

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
)

// An honest unknown peer waits at most 5 s for its first KiB after a minute of attack by other unknown peers. The
// others come from eight addresses, each time under another id, and open streams until they are cut. So the debt of
// all unknown peers is bounded.
func TestDebtOfUnknownPeersIsBounded(t *testing.T) {
	const addresses = 8
	synctest.Test(t, func(t *testing.T) {
		s, _ := door()
		begin, n, tries := time.Now(), 0, 0
		for time.Since(begin) < time.Minute {
			c, err := knock(s, network.DirInbound, fmt.Sprintf("203.0.113.%d", tries%addresses))
			if tries++; err != nil {
				<-time.After(100 * time.Millisecond)
				continue
			}
			id := libp2ppeer.ID(fmt.Sprint("bad", n))
			n++
			cut := false
			s.cut = func(libp2ppeer.ID) { cut = true }
			if err := c.SetPeer(id); err != nil {
				t.Fatal(err)
			}
			var scopes []network.StreamManagementScope
			for !cut {
				st, err := s.OpenStream(id, network.DirInbound)
				if err == nil {
					scopes = append(scopes, st)
				}
			}
			for _, st := range scopes {
				st.Done()
			}
			c.Done()
		}
		c, err := knock(s, network.DirInbound, "198.51.100.7")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetPeer("honest"); err != nil {
			t.Fatal(err)
		}
		at := time.Now()
		if err := s.charge(context.Background(), "honest", 1024); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(at); took > 5*time.Second {
			t.Errorf("an honest unknown peer waits %s for its first KiB", took)
		}
	})
}
