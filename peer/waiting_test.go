package peer

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/ipfs/go-cid"
	mh "github.com/multiformats/go-multihash"
)

// waitingAfter runs a peer for as long as do takes, and returns what waits then.
func waitingAfter(t *testing.T, adapt func(*Options), do func(*Peer)) []mh.Multihash {
	t.Helper()
	opts := testOptions(t, newRoster())
	opts.Routing = RoutingLAN
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

// Roots that still wait to be announced when a node ends are announced after its next start, if they are held then. A
// node announces what it holds once in a cycle, and what is new at once.
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
	finds := newSeeker(t, boot)
	held := new(heldRoots)
	held.set(old)
	last := rawCID(t, "behind what waits")
	online := func(then func(*Peer)) func(*Peer) {
		return func(p *Peer) {
			p.Announce(last)
			until(t, "what came last is announced", func() bool { return finds(p.id, last) })
			until(t, "and nothing is under way", func() bool {
				s, err := p.providing.sweep.Stats(t.Context())
				return err == nil && isIdle(s)
			})
			then(p)
		}
	}
	reach := func(o *Options) {
		o.Bootstrap, o.Roots, o.Waiting = boot.Addrs(), held.each, hashesOf(old, fresh) // and fresh is gone since
	}
	got = waitingAfter(t, reach, online(func(p *Peer) {
		if left := announcedOf(t, p, hashesOf(old, fresh)...); len(left) != 1 {
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
	all := hashesOf(append(many, old, last)...) // the last two may have been handed over right before
	for _, h := range got {
		if _, found := slices.BinarySearchFunc(all, h, slices.Compare); !found {
			t.Errorf("%x waits, which nobody announced", h)
		}
	}
}
