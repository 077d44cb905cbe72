package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipfs/boxo/blockstore"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p"
	dht "github.com/libp2p/go-libp2p-kad-dht"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/routing"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/holdfast-ipfs/holdfast/internal/hosttest"
	"github.com/holdfast-ipfs/holdfast/peer/dag"
	"github.com/holdfast-ipfs/holdfast/peer/peertest"
)

// dialled tells whether the first dials of a session are over.
func dialled(s *Session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending == 0
}

// fetch pins root from origins, as the tracker does.
func fetch(ctx context.Context, p testPeer, root cid.Cid, limits dag.Limits, origins ...string) (dag.Result, error) {
	s := p.Session(ctx, "one", origins)
	defer s.Close()
	return dag.Fetch(ctx, dag.FetchRequest{
		Root: root, Reference: "pin", Store: p.store.DAGStore(), Sources: []dag.Source{s}, Limits: limits,
	})
}

// A node fetches whole files and trees from a peer that is no Holdfast node, over TCP and QUIC. The trees are of
// dag-cbor and dag-json, and one file is a block of the largest size.
func TestFetchFromAForeignPeer(t *testing.T) {
	f := peertest.NewForeign(t)
	p := newTestPeer(t, newRoster())
	data := peertest.Bytes(1, 20<<20)
	file, err := f.AddFile(bytes.NewReader(data), 256<<10)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		root   func() (cid.Cid, error)
		origin string // which of the foreign peer's addresses
	}{
		{"a file over TCP", func() (cid.Cid, error) { return file, nil }, "/tcp/"},
		{"a dag-cbor tree over QUIC", func() (cid.Cid, error) {
			c, _, _, err := f.Store.AddTree(2, cid.DagCBOR, 15, 2, 500)
			return c, err
		}, "/quic-v1/"},
		{"a dag-json tree", func() (cid.Cid, error) {
			c, _, _, err := f.Store.AddTree(3, cid.DagJSON, 15, 2, 500)
			return c, err
		}, "/tcp/"},
		{"a block of 2 MiB", func() (cid.Cid, error) {
			b, err := peertest.Block(cid.Raw, peertest.Bytes(4, MaxBlock))
			if err != nil {
				return cid.Undef, err
			}
			return b.Cid(), f.Store.Blockstore.Put(t.Context(), b)
		}, "/tcp/"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root, err := tc.root()
			if err != nil {
				t.Fatal(err)
			}
			addrs := f.Addrs()
			i := slices.IndexFunc(addrs, func(a string) bool { return strings.Contains(a, tc.origin) })
			if i < 0 {
				t.Fatal(addrs)
			}
			got, err := fetch(t.Context(), p, root, dag.Limits{}, addrs[i])
			if err != nil {
				t.Fatal(err)
			}
			if v, err := dag.Verify(t.Context(), p.store, root, dag.Limits{}); err != nil || v != got {
				t.Fatalf("%+v, %v; fetched %+v", v, err, got)
			}
		})
	}
}

// A peer that is no Holdfast node gets the blocks that AllowBlock allows, and not a private block. The empty block is
// among those that it gets.
func TestForeignPeersFetchWhatIsAllowed(t *testing.T) {
	private := make(map[string]bool)
	p := newTestPeer(t, newRoster(), func(o *Options) {
		o.AllowBlock = func(_ string, c cid.Cid) bool { return !private[c.KeyString()] }
	})
	cids := addBlocks(t, p.store, 2, 1<<20)
	private[cids[1].KeyString()] = true
	f := peertest.NewForeign(t)
	if err := f.Connect(t.Context(), p.Addrs()[0]); err != nil {
		t.Fatal(err)
	}
	b, err := f.Block(t.Context(), cids[0])
	if err != nil || len(b.RawData()) != 1<<20 {
		t.Fatal(err)
	}
	empty := addBlocks(t, p.store, 1, 0)[0] // the content of an empty object
	if b, err := f.Block(t.Context(), empty); err != nil || len(b.RawData()) != 0 {
		t.Fatalf("a block of no bytes: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := f.Block(ctx, cids[1]); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a private block: %v", err)
	}
}

// A fetch whose origin ends before all blocks have come fails with ErrStalled, and its reason names the origin.
func TestFetchTellsThatTheProviderVanished(t *testing.T) {
	f := peertest.NewForeign(t)
	p := newTestPeer(t, newRoster())
	root, count, _, err := f.Store.AddTree(1, cid.DagProtobuf, 30, 2, 20_000)
	if err != nil {
		t.Fatal(err)
	}
	origin := f.Addrs()[0]
	s := p.Session(t.Context(), "one", []string{origin})
	defer s.Close()
	var have uint64
	_, err = dag.Fetch(t.Context(), dag.FetchRequest{
		Root: root, Reference: "pin", Store: p.store.DAGStore(), Sources: []dag.Source{s},
		Limits: dag.Limits{Idle: 5 * time.Second, Renew: 500 * time.Millisecond}, // on a busy machine the first block needs a while
		Progress: func(at dag.Progress) {
			if have = at.Blocks; have > 20 {
				f.Close()
			}
		},
	})
	if !errors.Is(err, dag.ErrStalled) || have >= count {
		t.Fatalf("%v, after %d of %d blocks", err, have, count)
	}
	reason := dag.Reason(err)
	if !strings.Contains(reason, "the provider vanished after") || !strings.Contains(reason, origin+": ") {
		t.Fatal(reason)
	}
}

// A fetch of a block that its origin lacks fails with ErrNotFound. The reason names the block and the time that the
// fetch waited.
func TestFetchTellsThatNobodyHasIt(t *testing.T) {
	f := peertest.NewForeign(t)
	p := newTestPeer(t, newRoster())
	b, err := peertest.Block(cid.Raw, []byte("nobody has this"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = fetch(t.Context(), p, b.Cid(), dag.Limits{Idle: time.Second, Renew: 300 * time.Millisecond}, f.Addrs()...)
	if !errors.Is(err, dag.ErrNotFound) || !strings.Contains(dag.Reason(err), "nobody offered the block "+b.Cid().String()+" within 1s") {
		t.Fatal(dag.Reason(err))
	}
}

// silent returns a TCP address where connections are taken, by the system, and nothing is said.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", l.Addr().(*net.TCPAddr).Port)
}

// A fetch from a good origin ends before the dial of another origin does, which accepts the connection and says nothing.
func TestAnOriginThatHangsDoesNotHoldUpTheOthers(t *testing.T) {
	hangs := silent(t) + "/p2p/" + newID(t)
	f := peertest.NewForeign(t)
	// libp2p would give up a local address after 5 s, and the session after originDialTimeout.
	p := newTestPeer(t, newRoster(), func(o *Options) {
		o.HostOptions = []HostOption{libp2p.SwarmOpts(swarm.WithDialTimeoutLocal(2*originDialTimeout), swarm.WithDialTimeout(2*originDialTimeout))}
	})
	root, _, _, err := f.Store.AddTree(1, cid.DagProtobuf, 10, 2, 1000)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, err := fetch(t.Context(), p, root, dag.Limits{}, append([]string{hangs}, f.Addrs()...)...); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took >= originDialTimeout {
		t.Fatalf("took %s", took)
	}
}

// unheard asks for names of which nobody tells anything.
type unheard struct{}

func (unheard) ResolveDNSAddr(ctx context.Context, _ libp2ppeer.ID, _ ma.Multiaddr, _, _ int) ([]ma.Multiaddr, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (unheard) ResolveDNSComponent(ctx context.Context, _ ma.Multiaddr, _ int) ([]ma.Multiaddr, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A fetch reaches an origin by its IP addresses while the lookups of its DNS names get no answer. It does not wait for
// the lookups, which hold a dial up for originDialTimeout. Kubo also names itself by DNS names (libp2p.direct).
func TestNamesThatNobodyAnswersForDoNotHoldUpNumbers(t *testing.T) {
	f := peertest.NewForeign(t)
	p := newTestPeer(t, newRoster(), func(o *Options) { o.HostOptions = []HostOption{libp2p.MultiaddrResolver(unheard{})} })
	id := "/p2p/" + target(t, f.Addrs()).ID.String()
	origins := append([]string{"/dns4/a.example.org/tcp/4001/tls/ws" + id, "/dnsaddr/example.org" + id}, f.Addrs()...)
	start := time.Now()
	for i := range 2 { // the second time with what the peer was known by
		root, _, _, err := f.Store.AddTree(uint64(1+i), cid.DagProtobuf, 10, 2, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fetch(t.Context(), p, root, dag.Limits{Idle: originDialTimeout}, origins...); err != nil {
			t.Fatal(err)
		}
		if err := p.public.Network().ClosePeer(target(t, f.Addrs()).ID); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took >= originDialTimeout {
		t.Fatalf("took %s", took)
	}
}

// A session fetches at full speed from an origin that connects by itself, which this node does not dial. The
// connection is over TCP or QUIC. A peer behind a NAT is named by addresses that are not dialled. Nothing protects
// its connection after the session.
func TestAnOriginThatIsNotDialledComesByItself(t *testing.T) {
	for _, kind := range []string{"/tcp/", "/quic-v1/"} {
		f := peertest.NewForeign(t)
		p := newTestPeer(t, newRoster(), func(o *Options) { o.AllowPrivateOrigins = false })
		file, err := f.AddFile(bytes.NewReader(peertest.Bytes(1, peerBytesBurst+40*peerBytes)), 256<<10)
		if err != nil {
			t.Fatal(err)
		}
		to := p.Addrs()[slices.IndexFunc(p.Addrs(), func(a string) bool { return strings.Contains(a, kind) })]
		if err := f.Connect(t.Context(), to); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 35*time.Second) // an unknown peer takes 40 s
		if _, err := fetch(ctx, p, file, dag.Limits{}, f.Addrs()...); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		cancel()
		if p.gate.isNamed(f.Host.ID()) {
			t.Errorf("%s: still an origin", kind)
		}
		// bitswap protects whom a session asks as well, and ends that in the background.
		until(t, "nothing protects it", func() bool { return !p.public.ConnManager().IsProtected(f.Host.ID(), "") })
	}
}

// OriginErrors has one line for each origin that is not reached or is refused, with the reason.
func TestSessionNamesTheOriginsItDoesNotReach(t *testing.T) {
	closed, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := closed.Addr().(*net.TCPAddr).Port
	closed.Close()
	const id = "/p2p/12D3KooWP1Zc2bV5qR6b8YjZMpyuXrA7fGukvf93mjXKGAJ1NWSU"
	// Sorted, as OriginErrors is.
	refused := fmt.Sprintf("/ip4/127.0.0.1/tcp/%d%s", port, id)
	p := newTestPeer(t, newRoster())
	s := p.Session(t.Context(), "one", []string{refused, "/ip4/127.0.0.1/udp/1/webrtc-direct" + id, "nonsense", p.Addrs()[0]})
	defer s.Close()
	until(t, "three reasons", func() bool { return len(s.OriginErrors()) == 3 && dialled(s) })
	for i, want := range []string{refused + ": not reachable: ", "webrtc-direct/p2p/12D3KooWP1Zc2bV5qR6b8YjZMpyuXrA7fGukvf93mjXKGAJ1NWSU: origin refused: only tcp", "nonsense: origin refused: "} {
		if got := s.OriginErrors()[i]; !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// After Renew a session gets a block that the origin has stored meanwhile. Renew ends the requests under way. The
// origin does not tell of the block.
func TestRenewedSessionGoesOn(t *testing.T) {
	f := peertest.NewForeign(t)
	p := newTestPeer(t, newRoster())
	s := p.Session(t.Context(), "one", f.Addrs())
	defer s.Close()
	late, err := peertest.Block(cid.Raw, []byte("late"))
	if err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		missing []cid.Cid
		err     error
	}
	ended := make(chan outcome, 1)
	begun := make(chan struct{})
	go func() {
		close(begun)
		missing, err := s.Blocks(t.Context(), []cid.Cid{late.Cid()}, func(blocks.Block) error { return nil })
		ended <- outcome{missing, err}
	}()
	<-begun
	until(t, "the want to be sent", func() bool { return slices.Contains(p.bitswap.GetWantlist(), late.Cid()) })
	if err := f.Store.Blockstore.Put(t.Context(), late); err != nil { // the foreign peer does not tell
		t.Fatal(err)
	}
	s.Renew()
	if o := <-ended; o.err == nil || len(o.missing) != 1 {
		t.Fatalf("%+v", o)
	}
	got := 0
	if missing, err := s.Blocks(t.Context(), []cid.Cid{late.Cid()}, func(blocks.Block) error { got++; return nil }); err != nil || got != 1 {
		t.Fatal(missing, err)
	}
}

// gated is a block store that stands still while its gate is held.
type gated struct {
	blockstore.Blockstore
	gate sync.RWMutex
}

func (g *gated) Get(ctx context.Context, c cid.Cid) (blocks.Block, error) {
	g.gate.RLock()
	defer g.gate.RUnlock()
	return g.Blockstore.Get(ctx, c)
}

// An origin that does not answer for a second stays in the session, and the fetch ends with all blocks. Otherwise
// bitswap takes it out, and never asks for what is wanted while nobody is in the session.
func TestAnOriginThatPausesIsWaitedFor(t *testing.T) {
	f := peertest.NewForeign(t)
	store := &gated{Blockstore: f.Store.Blockstore}
	f.Store.Blockstore = store
	root, count, _, err := f.Store.AddTree(1, cid.DagCBOR, 100, 2, 1024)
	if err != nil {
		t.Fatal(err)
	}
	p := newTestPeer(t, newRoster())
	inSession := func() bool {
		tags := p.public.ConnManager().GetTagInfo(f.Host.ID())
		return tags != nil && slices.ContainsFunc(slices.Collect(maps.Keys(tags.Tags)), func(tag string) bool {
			return strings.HasPrefix(tag, "bs-ses-")
		})
	}
	type outcome struct {
		got dag.Result
		err error
	}
	ended := make(chan outcome, 1)
	go func() {
		got, err := fetch(t.Context(), p, root, dag.Limits{Renew: time.Hour}, f.Addrs()...)
		ended <- outcome{got, err}
	}()
	until(t, "blocks come", func() bool { n, _ := p.store.Puts(); return n > 0 })
	store.gate.Lock()
	until(t, "much is asked for", func() bool { return len(p.bitswap.GetWantlist()) >= 64 })
	for paused := time.Now(); time.Since(paused) < time.Second; <-time.After(stalePoll) {
		if !inSession() {
			t.Error("the origin was taken out of the session")
			break
		}
	}
	store.gate.Unlock()
	if o := <-ended; o.err != nil || o.got.Blocks != uint64(count) {
		t.Fatalf("%d of %d blocks: %v", o.got.Blocks, count, o.err)
	}
}

// A fetch right after one that failed gets the block that the origin has now, before bitswap repeats its wants. The
// first fetch wanted the same block. A pin that failed is tried again at once, by a new session that wants what the old one wanted.
func TestASessionRightAfterAnotherGetsTheSameBlock(t *testing.T) {
	f := peertest.NewForeign(t)
	p := newTestPeer(t, newRoster())
	late, err := peertest.Block(cid.Raw, []byte("late"))
	if err != nil {
		t.Fatal(err)
	}
	failed := dag.Limits{Idle: 300 * time.Millisecond}
	if _, err := fetch(t.Context(), p, late.Cid(), failed, f.Addrs()...); !errors.Is(err, dag.ErrNotFound) {
		t.Fatal(err)
	}
	if err := f.Store.Blockstore.Put(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, err := fetch(t.Context(), p, late.Cid(), dag.Limits{Renew: time.Hour}, f.Addrs()...); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took >= 30*time.Second { // what bitswap waits before it repeats a want that it believes sent
		t.Fatalf("took %s", took)
	}
}

// The connection to an origin is protected during the session, and not after it.
func TestOriginsStayConnectedDuringTheSession(t *testing.T) {
	f := peertest.NewForeign(t)
	p := newTestPeer(t, newRoster())
	s := p.Session(t.Context(), "one", f.Addrs())
	until(t, "the origin", func() bool { return p.public.Network().Connectedness(f.Host.ID()) == network.Connected })
	manager := p.public.ConnManager()
	if !manager.IsProtected(f.Host.ID(), "") {
		t.Error("the origin may be trimmed")
	}
	s.Close()
	if manager.IsProtected(f.Host.ID(), "") || p.gate.isOrigin(f.Host.ID()) {
		t.Error("the origin is protected after the session")
	}
}

// Nodes and other peers find content that a node has announced in the DHT of a private network.
func TestContentIsFoundByRouting(t *testing.T) {
	boot := newTestPeer(t, newRoster(), func(o *Options) { o.Routing = RoutingLAN })
	holder := newTestPeer(t, newRoster(), func(o *Options) { o.Routing, o.Bootstrap = RoutingLAN, boot.Addrs() })
	seeker := newTestPeer(t, newRoster(), func(o *Options) {
		o.Routing, o.Bootstrap, o.AllowPrivateOrigins = RoutingLAN, boot.Addrs(), false
	})
	until(t, "a routing table", func() bool {
		return holder.dht.RoutingTable().Size() > 0 && seeker.dht.RoutingTable().Size() > 0
	})
	root, count, _, err := holder.store.AddTree(1, cid.DagProtobuf, 5, 2, 100)
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Provide(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	if r, err := fetch(t.Context(), seeker, root, dag.Limits{}); err != nil || r.Blocks != count {
		t.Fatal(r, err)
	}

	// The same by the queue, and sought by somebody who is not Holdfast.
	other, _, _, err := holder.store.AddTree(2, cid.DagCBOR, 5, 2, 100)
	if err != nil {
		t.Fatal(err)
	}
	if !holder.Announce(other) {
		t.Fatal("no room in an empty queue")
	}
	f := peertest.NewForeignRouted(t, func(h host.Host) (routing.ContentDiscovery, error) {
		d, err := dht.New(h, dht.Mode(dht.ModeClient), dht.ProtocolExtension(lanExtension))
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { d.Close() })
		return d, nil
	})
	if err := f.Connect(t.Context(), boot.Addrs()[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Block(t.Context(), other); err != nil {
		t.Fatal(err)
	}
}

// A node with public routing and an unreachable bootstrap peer fetches from an origin. With routing off, Provide and
// Announce succeed.
func TestPublicRoutingWithoutANetworkDoesNotFail(t *testing.T) {
	f := peertest.NewForeign(t)
	p := newTestPeer(t, newRoster(), func(o *Options) {
		o.Routing = RoutingPublic
		o.Bootstrap = []string{"/ip4/127.0.0.1/tcp/9/p2p/12D3KooWP1Zc2bV5qR6b8YjZMpyuXrA7fGukvf93mjXKGAJ1NWSU"}
	})
	root, _, _, err := f.Store.AddTree(1, cid.DagProtobuf, 5, 2, 100)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fetch(t.Context(), p, root, dag.Limits{}, f.Addrs()...); err != nil {
		t.Fatal(err)
	}
	if off := newTestPeer(t, newRoster()); off.Provide(t.Context(), root) != nil || !off.Announce(root) {
		t.Fatal("routing off is not an error")
	}
}

const someID = "/p2p/12D3KooWP1Zc2bV5qR6b8YjZMpyuXrA7fGukvf93mjXKGAJ1NWSU"

// CheckOrigin refuses every address that is not public, unless private origins are allowed. The gater does not dial
// such an address of an origin. The gater checks again what a name has resolved to, also on a private network if a
// user named the peer.
func TestOriginsThatAreNotPublicAreRefused(t *testing.T) {
	for _, addr := range []string{
		"/ip4/127.0.0.1/tcp/4001", "/ip4/127.8.9.1/tcp/4001", "/ip4/0.0.0.0/tcp/4001", "/ip4/0.1.2.3/tcp/4001",
		"/ip4/10.1.2.3/tcp/4001", "/ip4/172.16.0.1/tcp/4001", "/ip4/172.31.255.255/tcp/4001", "/ip4/192.168.1.1/tcp/4001",
		"/ip4/100.64.0.1/tcp/4001", "/ip4/169.254.169.254/tcp/80", "/ip4/198.18.0.1/tcp/4001", "/ip4/198.19.255.1/tcp/4001",
		"/ip4/192.0.0.8/tcp/4001", "/ip4/192.0.2.1/tcp/4001", "/ip4/198.51.100.1/tcp/4001", "/ip4/203.0.113.1/tcp/4001",
		"/ip4/224.0.0.1/udp/4001/quic-v1", "/ip4/240.0.0.1/tcp/4001", "/ip4/255.255.255.255/tcp/4001", "/ip4/192.88.99.1/tcp/4001",
		"/ip6/::1/tcp/4001", "/ip6/::/tcp/4001", "/ip6/::ffff:127.0.0.1/tcp/4001", "/ip6/::ffff:8.8.8.8/tcp/4001",
		"/ip6/::127.0.0.1/tcp/4001", "/ip6/fe80::1/tcp/4001", "/ip6/fc00::1/tcp/4001", "/ip6/fd12::1/tcp/4001", "/ip6/ff02::1/tcp/4001",
		"/ip6/64:ff9b::7f00:1/tcp/4001", "/ip6/64:ff9b:1::7f00:1/tcp/4001", "/ip6/2002:7f00:1::/tcp/4001", "/ip6/2002:a00:1::1/tcp/4001",
		"/ip6/2001:db8::1/tcp/4001", "/ip6/2001::1/tcp/4001", "/ip6/2001:20::1/tcp/4001", "/ip6/3fff::1/tcp/4001", "/ip6/5f00::1/tcp/4001",
	} {
		if err := CheckOrigin(addr+someID, false); !errors.Is(err, ErrOriginRefused) {
			t.Errorf("%s: %v", addr, err)
		}
		if err := CheckOrigin(addr+someID, true); err != nil {
			t.Errorf("%s with private origins allowed: %v", addr, err)
		}
		// What a name resolved to is judged again before it is dialled, also
		// on a private network when a user named the peer.
		a, err := ma.NewMultiaddr(addr)
		if err != nil {
			t.Fatal(err)
		}
		if newPublicGater(false, false, nil).InterceptAddrDial("somebody", a) {
			t.Errorf("%s would be dialled", addr)
		}
		lan := newPublicGater(false, true, nil)
		lan.addOrigin("named", true)
		if lan.InterceptAddrDial("named", a) || !lan.InterceptAddrDial("found by routing", a) {
			t.Errorf("%s on a private network", addr)
		}
	}
}

// CheckOrigin refuses multiaddrs without a peer id, of relays, of other transports and of malformed kinds. It accepts
// TCP, QUIC and WebSocket addresses.
func TestOriginsOfOtherKindsAreRefused(t *testing.T) {
	for _, addr := range []string{
		"/ip4/8.8.8.8/tcp/4001", // no peer id
		"/ip4/8.8.8.8/tcp/0" + someID, "/ip4/8.8.8.8" + someID, "/ip4/8.8.8.8/udp/4001" + someID,
		"/ip4/8.8.8.8/udp/4001/webrtc-direct" + someID, "/ip4/8.8.8.8/udp/4001/quic-v1/webtransport" + someID,
		"/ip4/8.8.8.8/tcp/4001" + someID + "/p2p-circuit", "/ip4/8.8.8.8/tcp/4001" + someID + "/p2p-circuit" + someID,
		"/unix/run/docker.sock" + someID, "/ip4/8.8.8.8/tcp/80/http" + someID, "/ip6zone/eth0/ip6/2600::1/tcp/1" + someID,
		"/dnsaddr/example.org/tcp/4001" + someID, "/dns4/localhost" + someID, "", "x", "/ip4/8.8.8.8/tcp/4001/p2p/xyz",
		"/dns4/" + strings.Repeat("a", maxOriginLength) + "/tcp/1" + someID,
	} {
		for _, private := range []bool{false, true} {
			if err := CheckOrigin(addr, private); !errors.Is(err, ErrOriginRefused) {
				t.Errorf("%.80s: %v", addr, err)
			}
		}
	}
	for _, addr := range []string{
		"/ip4/8.8.8.8/tcp/4001", "/ip4/8.8.8.8/udp/4001/quic-v1", "/ip6/2606:4700::1111/tcp/4001", "/dns4/example.org/tcp/443/wss",
		"/dns/example.org/tcp/443/tls/ws", "/dns6/example.org/tcp/443/tls/sni/example.org/ws", "/ip4/8.8.8.8/tcp/80/ws", "/dnsaddr/example.org", "",
	} {
		if err := CheckOrigin(addr+someID, false); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

// A node does not dial an origin whose name resolves to loopback, and gives that as the reason. It finds this out
// after it has resolved the name: the listener behind it sees no connection.
func TestANameForLoopbackIsNotDialled(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	reached := make(chan struct{})
	go func() {
		if c, err := l.Accept(); err == nil {
			c.Close()
			close(reached)
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port
	p := newTestPeer(t, newRoster(), func(o *Options) { o.AllowPrivateOrigins = false })
	for _, form := range []string{"/dns4/localhost/tcp/%d", "/dns/localhost/tcp/%d/ws", "/dns4/localhost/tcp/%d/wss"} {
		origin := fmt.Sprintf(form, port) + someID
		s := p.Session(t.Context(), "one", []string{origin})
		until(t, "a reason", func() bool { return dialled(s) })
		if got := s.OriginErrors()[0]; got != origin+": origin refused: no public address behind it" || !s.AllRefused() {
			t.Errorf("%s, all refused: %t", got, s.AllRefused())
		}
		s.Close()
	}
	select {
	case <-reached:
		t.Fatal("loopback was dialled")
	default:
	}
}

// A failed dial counts as refused by this node's rules only if these rules refused all addresses or the peer. A name
// that a failing name server does not resolve is no refusal: it has no addresses, and libp2p says the same.
func TestARefusalIsOfAllAddresses(t *testing.T) {
	gated := swarm.TransportError{Cause: swarm.ErrGaterDisallowedConnection}
	for _, tc := range []struct {
		name string
		err  error
		want bool
	}{
		{"all are refused", &swarm.DialError{Cause: swarm.ErrNoGoodAddresses, DialErrors: []swarm.TransportError{gated, gated}}, true},
		{"the peer is refused", &swarm.DialError{Cause: swarm.ErrGaterDisallowedConnection}, true},
		{"the name is not resolved", &swarm.DialError{Cause: swarm.ErrNoGoodAddresses}, false},
		{"one is beyond this node", &swarm.DialError{Cause: swarm.ErrNoGoodAddresses, DialErrors: []swarm.TransportError{gated, {Cause: swarm.ErrDialRefusedBlackHole}}}, false},
		{"another error", context.DeadlineExceeded, false},
	} {
		if got := isRefusal(tc.err); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}

// AllRefused reports true while a session has origins, all of them are refused, and none has connected by itself.
// WhyRefused returns the reason for a refused origin and "" for another.
func TestWhetherAllOriginsAreRefused(t *testing.T) {
	f := peertest.NewForeign(t)
	id := "/p2p/" + f.Host.ID().String()
	refused, away := "/ip4/10.0.0.1/tcp/4001"+id, "/ip4/8.8.8.8/tcp/0"+someID
	public := "/ip4/8.8.8.8/tcp/4001" + someID
	p := newTestPeer(t, newRoster(), func(o *Options) { o.AllowPrivateOrigins = false })
	for _, tc := range []struct {
		name    string
		origins []string
		want    bool
	}{
		{"none", nil, false},
		{"one", []string{refused}, true},
		{"two", []string{refused, away}, true},
		{"one of two", []string{refused, public}, false},
	} {
		s := p.Session(t.Context(), "one", tc.origins)
		if got := s.AllRefused(); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
		s.Close()
	}
	if why := p.WhyRefused(refused); why != "origin refused: 10.0.0.1 is not a public address" || p.WhyRefused(public) != "" {
		t.Errorf("refused for %q, and a public one for %q", why, p.WhyRefused(public))
	}
	// Who is refused may come by itself.
	s := p.Session(t.Context(), "one", []string{refused})
	defer s.Close()
	if err := f.Host.Connect(t.Context(), libp2ppeer.AddrInfo{ID: p.id, Addrs: p.public.Addrs()}); err != nil {
		t.Fatal(err)
	}
	until(t, "it is there", func() bool { return !s.AllRefused() })
}

func FuzzCheckOrigin(f *testing.F) {
	f.Add("/ip4/8.8.8.8/tcp/4001" + someID)
	f.Add("/dns4/example.org/tcp/443/wss" + someID)
	f.Add("/ip6/::ffff:127.0.0.1/tcp/1" + someID)
	f.Fuzz(func(t *testing.T, text string) {
		if CheckOrigin(text, false) != nil {
			return
		}
		info, err := parseOrigin(text, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range info.Addrs {
			if ip, ok := ipOf(a); ok && (ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() || ip.Is4In6()) {
				t.Fatalf("%s passes", text)
			}
		}
	})
}

// Both peers are in this process, and the stores are in memory.
func BenchmarkFetchByBitswap(b *testing.B) {
	for name, listen := range map[string]string{"TCP": "/ip4/127.0.0.1/tcp/0", "QUIC": "/ip4/127.0.0.1/udp/0/quic-v1"} {
		b.Run(name, func(b *testing.B) {
			f := peertest.NewForeign(b, listen)
			root, _, size, err := f.Store.AddTree(1, cid.DagProtobuf, 16, 2, 1<<20)
			if err != nil {
				b.Fatal(err)
			}
			p := newTestPeer(b, newRoster())
			b.SetBytes(int64(size))
			b.ReportAllocs()
			before := hosttest.ProcessorTime(b)
			for b.Loop() {
				p.store = peertest.NewStore() // what is served is another, so nothing is here
				if _, err := fetch(b.Context(), p, root, dag.Limits{}, f.Addrs()[0]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((hosttest.ProcessorTime(b)-before).Milliseconds())/float64(b.N), "processor-ms/op")
		})
	}
}

// What a pin of one small block costs at the peer: a session with its origin
// connected already.
func BenchmarkSessionOfOneBlock(b *testing.B) {
	f := peertest.NewForeign(b)
	p := newTestPeer(b, newRoster())
	origins := f.Addrs()
	cids := addBlocks(b, f.Store, 1000, 1024)
	if err := f.Connect(b.Context(), p.Addrs()[0]); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	before := hosttest.ProcessorTime(b)
	n := 0
	for b.Loop() {
		s := p.Session(b.Context(), "one", origins)
		if _, err := s.GetBlock(b.Context(), cids[n%len(cids)]); err != nil {
			b.Fatal(err)
		}
		s.Close()
		n++
	}
	b.ReportMetric(float64((hosttest.ProcessorTime(b)-before).Microseconds())/float64(b.N), "processor-us/op")
}

// A good origin is parsed once, a private one is refused each time, and at most maxParsed are remembered.
func TestOriginsAreReadOnce(t *testing.T) {
	o := newOrigins(false)
	good := "/ip4/1.1.1.1/tcp/4001/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"
	first, err := o.parse(good)
	if err != nil {
		t.Fatal(err)
	}
	again, err := o.parse(good)
	if err != nil || again.ID != first.ID || &again.Addrs[0] != &first.Addrs[0] {
		t.Errorf("read again: %v, %v", again, err)
	}
	private := "/ip4/10.0.0.1/tcp/4001/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"
	for range 2 {
		if _, err := o.parse(private); !errors.Is(err, ErrOriginRefused) {
			t.Errorf("a private address: %v", err)
		}
	}
	for port := range 2 * maxParsed {
		if _, err := o.parse(fmt.Sprintf("/ip4/1.1.1.1/tcp/%d/p2p/%s", port+1, first.ID)); err != nil {
			t.Fatal(err)
		}
	}
	if n := o.parsed.Len(); n > maxParsed {
		t.Errorf("%d are remembered, at most %d", n, maxParsed)
	}
}
