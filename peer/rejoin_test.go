package peer

import (
	"slices"
	"testing"

	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
)

// A node that starts without bootstrap peers joins the DHT by the addresses of its last start. Others find its roots.
func TestARestartFindsTheDHTWithoutBootstrapPeers(t *testing.T) {
	lan := func(o *Options) { o.Routing = RoutingLAN }
	boot := newTestPeer(t, newRoster(), lan)
	held, root := new(heldRoots), rawCID(t, "held")
	opts := testOptions(t, newRoster())
	start := func(o *Options) {
		o.Key, o.Datastores, o.Routing, o.Roots = opts.Key, opts.Datastores, RoutingLAN, held.each
	}
	waitingAfter(t, func(o *Options) { start(o); o.Bootstrap = boot.Addrs() }, func(p *Peer) {
		until(t, "the bootstrap peer is in the routing table", func() bool { return p.dht.RoutingTable().Size() > 0 })
	})

	held.set(root)
	finds := newSeeker(t, boot)
	waitingAfter(t, func(o *Options) { start(o); o.Waiting = hashesOf(root) }, func(p *Peer) {
		if len(p.boot) > 0 {
			t.Fatal("it has bootstrap peers")
		}
		until(t, "it is in the DHT again", func() bool { return slices.Contains(p.dht.RoutingTable().ListPeers(), boot.id) })
		until(t, "its root is found", func() bool { return finds(p.id, root) })
	})
}

// A node without routing peers keeps the addresses of those that it knew.
func TestAddressesOfNobodyReplaceNone(t *testing.T) {
	other := newTestPeer(t, newRoster())
	r := rejoin{store: openStore(t, newDatastores(t, t.TempDir()))}
	if none, err := r.peers(t.Context(), 5); err != nil || len(none) > 0 {
		t.Fatal(none, err)
	}
	known := target(t, other.Addrs())
	if err := r.put(t.Context(), []libp2ppeer.AddrInfo{known}); err != nil {
		t.Fatal(err)
	}
	if err := r.put(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	got, err := r.peers(t.Context(), 5)
	if err != nil || len(got) != 1 || got[0].ID != other.id || len(got[0].Addrs) != len(known.Addrs) {
		t.Errorf("%v, %v", got, err)
	}
	if few, err := r.peers(t.Context(), 0); err != nil || len(few) > 0 {
		t.Errorf("%v beyond the limit, %v", few, err)
	}
}
