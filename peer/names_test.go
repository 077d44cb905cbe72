package peer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	ma "github.com/multiformats/go-multiaddr"
)

// WhyRefused refuses an origin whose name has only addresses that are not public, once the lookup has ended. It does
// not wait for the lookup. It looks up a name once, and none where private origins are allowed.
func TestNamesOfPrivateAddressesAreKnownBeforeADial(t *testing.T) {
	at := map[string][]string{
		"private.example": {"10.0.0.1", "fd00::1"}, "loop.example": {"::1"}, "mapped.example": {"::ffff:127.0.0.1"},
		"public.example": {"8.8.8.8"}, "both.example": {"10.0.0.1", "2606:4700::1111"}, "empty.example": nil,
	}
	release := make(chan struct{})
	var asked atomic.Int64
	p := newTestPeer(t, newRoster(), func(o *Options) { o.AllowPrivateOrigins = false })
	p.names.lookup = func(ctx context.Context, network, host string) (found []netip.Addr, err error) {
		asked.Add(1)
		select {
		case <-release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if _, known := at[host]; !known {
			return nil, errors.New("no such host")
		}
		for _, text := range at[host] {
			found = append(found, netip.MustParseAddr(text))
		}
		return found, nil
	}
	const slow = "/dns4/private.example/tcp/4001"
	for range 10 {
		if why := p.WhyRefused(slow + someID); why != "" {
			t.Errorf("before it is looked up: %q", why)
		}
	}
	close(release)
	for origin, want := range map[string]string{
		slow:                                  "origin refused: private.example is 10.0.0.1, which is not a public address",
		"/dns6/loop.example/udp/4001/quic-v1": "origin refused: loop.example is ::1, which is not a public address",
		"/dns/mapped.example/tcp/443/wss":     "origin refused: mapped.example is ::ffff:127.0.0.1, which is not a public address",
		"/dns/private.example/tcp/443/tls/ws": "origin refused: private.example is 10.0.0.1, which is not a public address",
		"/dns4/public.example/tcp/4001":       "",
		"/dns/both.example/tcp/4001":          "",
		"/dns4/empty.example/tcp/4001":        "",
		"/dns4/unknown.example/tcp/4001":      "",
		"/dnsaddr/private.example":            "",
	} {
		until(t, origin, func() bool {
			return p.WhyRefused(origin+someID) == want && p.names.idle()
		})
	}
	before := asked.Load()
	if before != 8 {
		t.Errorf("%d lookups of 8 names", before)
	}
	for range 10 {
		p.WhyRefused(slow + someID)
	}
	if n := asked.Load(); n != before {
		t.Errorf("%d lookups of what is known", n-before)
	}
	open := newTestPeer(t, newRoster(), func(o *Options) { o.AllowPrivateOrigins = true })
	open.names.lookup = p.names.lookup
	if why := open.WhyRefused(slow + someID); why != "" || asked.Load() != before {
		t.Errorf("where private origins are allowed: %q, looked up: %t", why, asked.Load() != before)
	}
}

// idle tells whether no lookup is under way.
func (n *names) idle() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.running == 0
}

// At most maxLookups names are looked up at a time, and at most maxVerdicts are remembered. A name is looked up at
// most once in verdictFor.
func TestLookupsOfNamesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNames(nil)
		now := time.Now()
		var running []*verdict
		for i := range 2 * maxLookups {
			if v, look := n.known(fmt.Sprint("name ", i), now); look {
				running = append(running, v)
			}
		}
		if len(running) != maxLookups {
			t.Errorf("%d lookups at a time", len(running))
		}
		if _, look := n.known("name 0", now); look {
			t.Error("one name is looked up twice at a time")
		}
		for _, v := range running {
			n.learn(v, "refused", now)
		}
		if v, look := n.known("name 0", now.Add(verdictFor-1)); look || n.read(v) != "refused" {
			t.Error("what is known is looked up again")
		}
		v, look := n.known("name 0", now.Add(verdictFor))
		if !look || n.read(v) != "refused" {
			t.Error("a name is not looked up again, or forgotten meanwhile")
		}
		n.learn(v, "", now)
		for i := range 3 * maxVerdicts {
			n.known(fmt.Sprint("more ", i), now)
		}
		if got := n.verdicts.Len(); got > maxVerdicts {
			t.Errorf("%d names are remembered", got)
		}
	})
}

// notPublic returns no reason for an invalid address.
func TestAnAddressThatIsNoneIsNoReason(t *testing.T) {
	a, err := ma.NewMultiaddr("/dns4/x.example/tcp/1")
	if err != nil {
		t.Fatal(err)
	}
	if why := notPublic(a, "x.example", []netip.Addr{{}}, nil); why != "" {
		t.Error(why)
	}
}
