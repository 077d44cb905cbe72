package peer

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/peer/peertest"
	"github.com/ipfs/go-cid"
	dht "github.com/libp2p/go-libp2p-kad-dht"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	mh "github.com/multiformats/go-multihash"
)

// waitingAfter runs a peer for as long as do takes, and returns what waits then.
func waitingAfter(t *testing.T, adapt func(*Options), do func(*Peer)) []mh.Multihash {
	t.Helper()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	r := newRoster()
	opts := Options{
		Key: key, Listen: []string{"/ip4/127.0.0.1/tcp/0"}, ClusterListen: []string{"/ip4/127.0.0.1/tcp/0"},
		Members: r.isMember, Joiners: r.isJoiner, Blocks: peertest.NewStore(), AllowPrivateOrigins: true, Routing: RoutingLAN,
	}
	adapt(&opts)
	p, err := Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	do(p)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return p.Waiting()
}

func hashesOf(roots ...cid.Cid) (hashes []mh.Multihash) {
	for _, c := range roots {
		hashes = append(hashes, c.Hash())
	}
	slices.SortFunc(hashes, slices.Compare)
	return hashes
}

// A node announces what it holds once in a cycle, and what is new at once. What is new when it
// ends is so at the next start.
func TestWhatWaitsToBeAnnouncedOutlivesARestart(t *testing.T) {
	old, fresh, gone := rawCID(t, "of an earlier start"), rawCID(t, "fresh"), rawCID(t, "withdrawn")
	got := waitingAfter(t, func(o *Options) { o.Waiting = hashesOf(old) }, func(p *Peer) { // it knows nobody
		for _, c := range []cid.Cid{fresh, gone, old} {
			if !p.Announce(c) {
				t.Error("no room")
			}
		}
		p.Withdraw(gone)
	})
	if want := hashesOf(old, fresh); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%d roots wait, want %d", len(got), len(want))
	}

	boot := newTestPeer(t, newRoster(), func(o *Options) { o.Routing = RoutingLAN })
	seeker, err := dht.New(peertest.NewForeign(t).Host, dht.Mode(dht.ModeClient), dht.ProtocolExtension(lanExtension),
		dht.BootstrapPeers(target(t, boot.Addrs())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { seeker.Close() })
	if err := seeker.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	held := new(heldRoots)
	held.set(old)
	online := func(then func(*Peer)) func(*Peer) {
		return func(p *Peer) {
			last := rawCID(t, "behind what waits")
			p.Announce(last)
			until(t, "what came last is announced", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				found, err := seeker.FindProviders(ctx, last)
				return err == nil && slices.ContainsFunc(found, func(i libp2ppeer.AddrInfo) bool { return i.ID == p.id })
			})
			then(p)
		}
	}
	reach := func(o *Options) {
		o.Bootstrap, o.Roots, o.Waiting = boot.Addrs(), held.each, hashesOf(old, fresh) // and fresh is gone since
	}
	got = waitingAfter(t, reach, online(func(p *Peer) {
		if left := p.providing.keys.only(hashesOf(old, fresh)); len(left) != 1 {
			t.Errorf("%d of the roots that waited are announced, want the one that is held", len(left))
		}
	}))
	if len(got) > 0 {
		t.Errorf("%d roots wait, and all were announced", len(got))
	}

	var many []cid.Cid
	for i := range 5_000 {
		many = append(many, rawCID(t, fmt.Sprint(i)))
	}
	want := hashesOf(many...)
	got = waitingAfter(t, reach, online(func(p *Peer) {
		if !p.startProviding(t.Context(), p.providing.sweep, want) {
			t.Error("not started")
		}
	}))
	if len(got) == 0 {
		t.Error("nothing is known of 5,000 roots that the provider had not come to")
	}
	for _, h := range got {
		if _, found := slices.BinarySearchFunc(want, h, slices.Compare); !found {
			t.Errorf("%x waits, which nobody announced", h)
		}
	}
}
