package peer

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	dht "github.com/libp2p/go-libp2p-kad-dht"
	"github.com/libp2p/go-libp2p-kad-dht/provider"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	mh "github.com/multiformats/go-multihash"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-ipfs/holdfast/peer/peertest"
)

func rawCID(tb testing.TB, text string) cid.Cid {
	tb.Helper()
	b, err := peertest.Block(cid.Raw, []byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return b.Cid()
}

// A restart begins no new cycle of announcements: its begin depends on the peer's id and reprovideEvery alone.
// Otherwise roots late in the cycle would not be announced for days.
func TestACycleOutlivesARestart(t *testing.T) {
	p := &Peer{id: "some peer"}
	begun := p.cycleStart(time.Now())
	for _, after := range []time.Duration{0, time.Minute, reprovideEvery - time.Second} {
		if got := p.cycleStart(begun.Add(after)); !got.Equal(begun) {
			t.Errorf("%s later the cycle began at %s, not at %s", after, got, begun)
		}
	}
	if got := p.cycleStart(begun.Add(reprovideEvery)); !got.Equal(begun.Add(reprovideEvery)) {
		t.Errorf("the next cycle begins at %s", got)
	}
	if d := time.Since(begun); d < 0 || d > reprovideEvery {
		t.Errorf("the cycle began %s ago", d)
	}
	if other := (&Peer{id: "other"}).cycleStart(time.Now()); other.Equal(begun) {
		t.Error("all nodes begin at the same time")
	}
}

// heldRoots is what a bridge hands over as Options.Roots.
type heldRoots struct {
	mu    sync.Mutex
	roots []cid.Cid
}

func (h *heldRoots) set(roots ...cid.Cid) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.roots = roots
}

func (h *heldRoots) each(fn func(cid.Cid) bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.roots {
		if !fn(c) {
			return nil
		}
	}
	return nil
}

// announcedOf returns those of the hashes that p announces.
func announcedOf(t *testing.T, p *Peer, hashes ...mh.Multihash) []mh.Multihash {
	t.Helper()
	there, err := p.providing.keys.only(t.Context(), hashes)
	if err != nil {
		t.Fatal(err)
	}
	return there
}

// A root that is withdrawn while it waits to be announced is not announced later. It waits because the DHT is out of
// reach or was not measured yet.
func TestWhatIsWithdrawnBeforeItsTurnIsNotAnnounced(t *testing.T) {
	p := newTestPeer(t, newRoster(), func(o *Options) { o.Routing = RoutingLAN }) // and knows nobody
	gone, back, stays := rawCID(t, "gone"), rawCID(t, "back"), rawCID(t, "stays")
	for _, c := range []cid.Cid{gone, back, stays, stays} {
		if !p.Announce(c) {
			t.Fatal("no room")
		}
	}
	p.Withdraw(gone)
	p.Withdraw(back)
	p.Announce(back)
	due := p.provide.batch(<-p.provide.roots)
	if want := []mh.Multihash{back.Hash(), stays.Hash()}; !slices.EqualFunc(due, want, slices.Equal) || len(p.provide.waits) > 0 {
		t.Errorf("%d are announced, want 2; %d are remembered", len(due), len(p.provide.waits))
	}
	const more = 2 * provideBatch
	for i := range more {
		p.Announce(rawCID(t, fmt.Sprint(i)))
	}
	batches := 0
	for left := more; left > 0; batches++ {
		left -= len(p.provide.batch(<-p.provide.roots))
	}
	if batches != more/provideBatch {
		t.Errorf("announced in %d batches", batches)
	}
	hashes := []mh.Multihash{gone.Hash(), stays.Hash()}
	if _, err := p.providing.keys.Put(t.Context(), hashes...); err != nil {
		t.Fatal(err)
	}
	p.Withdraw(gone)
	if left := announcedOf(t, p.Peer, hashes...); len(left) != 1 || string(left[0]) != string(stays.Hash()) {
		t.Errorf("%d are announced once the DHT is measured, want 1", len(left))
	}
}

// newSeeker returns a peer of boot's DHT that is no Holdfast node. What it returns asks it once
// whether a peer has c.
func newSeeker(t *testing.T, boot testPeer) (finds func(id libp2ppeer.ID, c cid.Cid) bool) {
	t.Helper()
	seeker, err := dht.New(peertest.NewForeign(t).Host, dht.Mode(dht.ModeClient), dht.ProtocolExtension(lanExtension),
		dht.BootstrapPeers(target(t, boot.Addrs())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { seeker.Close() })
	if err := seeker.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	return func(id libp2ppeer.ID, c cid.Cid) bool {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		found, err := seeker.FindProviders(ctx, c)
		return err == nil && slices.ContainsFunc(found, func(i libp2ppeer.AddrInfo) bool { return i.ID == id })
	}
}

// A peer that is no Holdfast node finds every root that this node holds and announces. The node announces roots that
// it was given, held before its start, or found by a scan. Roots that are withdrawn or no longer held are not
// announced.
func TestRootsAreAnnouncedAndWithdrawn(t *testing.T) {
	boot := newTestPeer(t, newRoster(), func(o *Options) { o.Routing = RoutingLAN })
	held := new(heldRoots)
	before, late := rawCID(t, "held before the start"), rawCID(t, "found no room in the queue")
	held.set(before)
	registry := prometheus.NewRegistry()
	holder := newTestPeer(t, newRoster(), func(o *Options) {
		o.Routing, o.Bootstrap, o.Roots, o.Registerer = RoutingLAN, boot.Addrs(), held.each, registry
	})
	finds := newSeeker(t, boot)
	provided := func(c cid.Cid) bool { return finds(holder.id, c) }
	fresh := rawCID(t, "pinned now")
	if !holder.Announce(fresh) {
		t.Fatal("no room in an empty queue")
	}
	until(t, "a new root is found by a peer that is no Holdfast node", func() bool { return provided(fresh) })
	until(t, "so is one that was held before the start", func() bool { return provided(before) })

	running := func() bool {
		holder.providing.mu.Lock()
		defer holder.providing.mu.Unlock()
		return holder.providing.sweep != nil
	}
	if !running() {
		t.Fatal("it is announced, but by whom?")
	}
	held.set(before, fresh, late)
	holder.holdRoots(t.Context(), holder.providing.sweep, true)
	until(t, "a root that was only looked up is found too", func() bool { return provided(late) })
	if n, _ := holder.providing.keys.Size(t.Context()); n != 3 {
		t.Errorf("%d roots are announced, want 3", n)
	}
	until(t, "the metrics say so", func() bool {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]float64{}
		for _, f := range families {
			m := f.GetMetric()[0]
			values[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
		return values["holdfast_provide_roots"] == 3 && values["holdfast_provide_online"] == 1 &&
			values["holdfast_provide_announced_roots_total"] >= 2 && values["holdfast_provide_next_timestamp_seconds"] > 0
	})

	holder.Withdraw(fresh)
	if n, _ := holder.providing.keys.Size(t.Context()); n != 2 {
		t.Errorf("%d roots are announced after one was withdrawn, want 2", n)
	}
	held.set(late)
	holder.holdRoots(t.Context(), holder.providing.sweep, true)
	left, err := holder.providing.keys.Get(t.Context(), "")
	if err != nil || len(left) != 1 || string(left[0]) != string(late.Hash()) {
		t.Errorf("%d roots are announced after all but one are gone, %v", len(left), err)
	}
}

// A scan of all roots ends at once while the DHT is out of reach, and when the node stops. The scan waited a minute
// for each 256 new roots, and the end of the node behind that.
func TestAScanOfAllRootsWaitsForNobody(t *testing.T) {
	held := new(heldRoots)
	p := newTestPeer(t, newRoster(), func(o *Options) { o.Routing, o.Roots = RoutingLAN, held.each }) // and knows nobody
	sweep := func() *provider.SweepingProvider {
		p.providing.mu.Lock()
		defer p.providing.mu.Unlock()
		return p.providing.sweep
	}
	until(t, "the provider runs", func() bool { return sweep() != nil })
	for _, tc := range []struct {
		name   string
		root   string
		online bool // or so it seemed
	}{{"out of reach", "a", false}, {"at the end", "b", true}} {
		held.set(rawCID(t, tc.root))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.holdRoots(ctx, sweep(), tc.online)
		}()
		hash := rawCID(t, tc.root).Hash()
		until(t, "the root is known", func() bool { return len(announcedOf(t, p.Peer, hash)) == 1 })
		if tc.online {
			cancel()
		}
		select {
		case <-done:
		case <-time.After(provideReady * 3 / 4):
			t.Errorf("%s it waits", tc.name)
		}
		cancel()
	}
}

// A scan of all roots does not announce a root again that was withdrawn during the scan. A root that was announced
// again meanwhile stays announced. A scan reads the state of its beginning; what becomes private, or goes, before the
// scan has come to it stays withdrawn.
func TestWhatIsWithdrawnDuringAScanStaysWithdrawn(t *testing.T) {
	kept, gone, back := rawCID(t, "kept"), rawCID(t, "gone"), rawCID(t, "back")
	p := &Peer{ctx: t.Context(), dht: new(dht.IpfsDHT), provide: newProvideQueue(), log: slog.New(slog.DiscardHandler)}
	p.providing.keys = openKeystore(t, newDatastores(t, t.TempDir()))
	all := func(fn func(cid.Cid) bool) error { _ = fn(kept) && fn(gone) && fn(back); return nil }
	p.opts.Roots = all
	p.holdRoots(t.Context(), nil, false)
	p.opts.Roots = func(fn func(cid.Cid) bool) error {
		p.Withdraw(gone)
		p.Withdraw(back)
		if _, err := p.providing.keys.Put(t.Context(), back.Hash()); err != nil { // public again
			t.Error(err)
		}
		return all(fn)
	}
	p.holdRoots(t.Context(), nil, false)
	announced := announcedOf(t, p, kept.Hash(), gone.Hash(), back.Hash())
	if len(announced) != 2 || slices.ContainsFunc(announced, func(h mh.Multihash) bool { return string(h) == string(gone.Hash()) }) {
		t.Errorf("announced: %v", announced)
	}
	p.opts.Roots = all
	p.holdRoots(t.Context(), nil, false) // a later look sees what is there then
	if n, _ := p.providing.keys.Size(t.Context()); n != 3 {
		t.Errorf("%d announced", n)
	}
}
