package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/protocol/identify"
	quictransport "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/multiformats/go-multistream"
	"go.uber.org/goleak"

	"github.com/holdfast-ipfs/holdfast/peer/peertest"
	"github.com/holdfast-ipfs/holdfast/storage/datastore"
)

const testProtocol = "/holdfast/test/1"

// roster is the membership that test peers ask.
type roster struct {
	mu      sync.Mutex
	members map[string]bool
	joiners map[string]bool
}

func newRoster() *roster {
	return &roster{members: make(map[string]bool), joiners: make(map[string]bool)}
}

func (r *roster) set(id string, member bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members[id] = member
}

func (r *roster) setJoiner(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.joiners[id] = true
}

func (r *roster) isMember(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.members[id]
}

func (r *roster) isJoiner(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.joiners[id]
}

// testPeer is a Peer with its store.
type testPeer struct {
	*Peer
	store *peertest.Store
}

// newDatastores returns those of a folder until the test ends.
func newDatastores(tb testing.TB, dir string) Datastores {
	tb.Helper()
	folder := datastore.Open(dir, datastore.Options{})
	tb.Cleanup(func() {
		if err := folder.Close(); err != nil {
			tb.Error(err)
		}
	})
	return folder
}

// testOptions returns those of a peer on loopback that has no blocks.
func testOptions(tb testing.TB, r *roster) Options {
	tb.Helper()
	key, err := NewKey()
	if err != nil {
		tb.Fatal(err)
	}
	return Options{
		Datastores:          newDatastores(tb, tb.TempDir()),
		Key:                 key,
		Listen:              []string{"/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"},
		ClusterListen:       []string{"/ip4/127.0.0.1/tcp/0"},
		Members:             r.isMember,
		Joiners:             r.isJoiner,
		Blocks:              peertest.NewStore(),
		AllowPrivateOrigins: true,
	}
}

// newTestPeer opens a peer on loopback and runs it until the test ends.
func newTestPeer(tb testing.TB, r *roster, adapt ...func(*Options)) testPeer {
	tb.Helper()
	store := peertest.NewStore()
	opts := testOptions(tb, r)
	opts.Blocks = store
	for _, a := range adapt {
		a(&opts)
	}
	p, err := Open(tb.Context(), opts)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
		if err := p.Close(); err != nil {
			tb.Error(err)
		}
	})
	return testPeer{p, store}
}

// newCluster opens n peers that are members of each other.
func newCluster(tb testing.TB, n int, adapt ...func(*Options)) ([]testPeer, *roster) {
	tb.Helper()
	r := newRoster()
	peers := make([]testPeer, n)
	for i := range peers {
		peers[i] = newTestPeer(tb, r, adapt...)
		r.set(peers[i].ID(), true)
	}
	for _, p := range peers {
		for _, q := range peers {
			p.SetMember(q.ID(), q.ClusterAddrs())
		}
	}
	return peers, r
}

// until waits for a condition that another goroutine brings about.
func until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			tb.Fatal("in vain waited for: " + what)
		case <-tick.C:
		}
	}
}

// newUnknownPeer returns a libp2p host that knows nobody's secret.
func newUnknownPeer(tb testing.TB, key []byte) host.Host {
	tb.Helper()
	options := []libp2p.Option{libp2p.NoListenAddrs, libp2p.DisableMetrics()}
	if key != nil {
		priv, _, err := parseKey(key)
		if err != nil {
			tb.Fatal(err)
		}
		options = append(options, libp2p.Identity(priv))
	}
	h, err := libp2p.New(options...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { h.Close() })
	return h
}

func target(tb testing.TB, addrs []string) libp2ppeer.AddrInfo {
	tb.Helper()
	info, err := parseMemberAddr(addrs[0])
	if err != nil {
		tb.Fatal(err)
	}
	return info
}

// The addresses of both hosts of a peer end with the id of its key and have the ports that the system has given.
func TestOnePeerHasOneIdentityOnBothHosts(t *testing.T) {
	p := newTestPeer(t, newRoster())
	if id, err := IDOf(p.opts.Key); err != nil || id != p.ID() {
		t.Fatal(id, err)
	}
	public, cluster := p.Addrs(), p.ClusterAddrs()
	if len(public) != 2 || len(cluster) != 1 {
		t.Fatalf("addresses %v and %v", public, cluster)
	}
	for _, a := range append(public, cluster...) {
		if !strings.HasSuffix(a, "/p2p/"+p.ID()) || strings.Contains(a, "/0/") {
			t.Errorf("address %s", a)
		}
	}
}

// Close ends Run and leaves no goroutine, and a second Close succeeds.
func TestCloseLeavesNoGoroutines(t *testing.T) {
	all := newDatastores(t, t.TempDir())
	before := goleak.IgnoreCurrent()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	p, err := Open(t.Context(), Options{
		Key:           key,
		Listen:        []string{"/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"},
		ClusterListen: []string{"/ip4/127.0.0.1/tcp/0"},
		Routing:       RoutingLAN,
		Datastores:    all,
		Members:       func(string) bool { return false },
		Blocks:        peertest.NewStore(),
	})
	if err != nil {
		t.Fatal(err)
	}
	run := make(chan error)
	go func() { run <- p.Run(context.Background()) }()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := <-run; err != nil { // Close ends Run too
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

// Open refuses bad options and ports that are taken with an error that names the fault, and returns no peer.
func TestOpenRefusesBadOptions(t *testing.T) {
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	busy := fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", taken.Addr().(*net.TCPAddr).Port)
	good := Options{Key: key, Members: func(string) bool { return false }, Blocks: peertest.NewStore()}
	for _, tc := range []struct {
		name  string
		adapt func(*Options)
		want  string
	}{
		{"no members", func(o *Options) { o.Members = nil }, "Members"},
		{"bad key", func(o *Options) { o.Key = []byte("x") }, "private key"},
		{"unknown routing", func(o *Options) { o.Routing = "magic" }, `"magic"`},
		{"bad listen address", func(o *Options) { o.Listen = []string{"127.0.0.1:4001"} }, "127.0.0.1:4001"},
		{"cluster port taken", func(o *Options) { o.ClusterListen = []string{busy} }, busy},
		{"public port taken", func(o *Options) { o.Listen = []string{busy} }, busy},
		{"bootstrap without an id", func(o *Options) { o.Bootstrap = []string{busy} }, "bootstrap"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			opts := good
			tc.adapt(&opts)
			p, err := Open(t.Context(), opts)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("%v, want something about %s", err, tc.want)
			}
			if p != nil {
				t.Fatal("a peer besides the error")
			}
		})
	}
}

// A stream between members carries bytes both ways, names both members and keeps its deadline. It can be closed for
// writing alone. A closed listener accepts nothing, and a dial of its protocol fails.
func TestStreamsBetweenMembers(t *testing.T) {
	peers, _ := newCluster(t, 2)
	a, b := peers[0], peers[1]
	l, err := b.Listen(testProtocol)
	if err != nil {
		t.Fatal(err)
	}
	out, err := a.Dial(t.Context(), b.ID(), testProtocol)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if out.RemoteAddr().String() != b.ID() || in.RemoteAddr().String() != a.ID() || l.Addr().String() != b.ID() {
		t.Fatal(out.RemoteAddr(), in.RemoteAddr(), l.Addr())
	}

	if err := in.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var timeout net.Error
	if _, err := in.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("read past its deadline: %v", err)
	}
	if err := in.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}

	if _, err := io.WriteString(out, "ping"); err != nil {
		t.Fatal(err)
	}
	if err := out.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(in); err != nil || string(got) != "ping" {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := io.WriteString(in, "pong"); err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(out); err != nil || string(got) != "pong" {
		t.Fatalf("%q, %v", got, err)
	}

	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := a.Dial(t.Context(), b.ID(), testProtocol); err == nil {
		t.Fatal("dialled a protocol that nobody listens to")
	}
}

// Close ends a Write that the other member does not read, over TCP and over QUIC. The other member sees that the
// stream was cut. Raft waits for its streams when it stops, and a snapshot has a deadline of many minutes.
func TestCloseEndsAWrite(t *testing.T) {
	quicOnly := func(o *Options) {
		o.ClusterListen = []string{"/ip4/127.0.0.1/udp/0/quic-v1"}
		o.ClusterOptions = []HostOption{libp2p.Transport(quictransport.NewTransport)}
	}
	for name, adapt := range map[string]func(*Options){"tcp": func(*Options) {}, "quic": quicOnly} {
		t.Run(name, func(t *testing.T) {
			peers, _ := newCluster(t, 2, adapt)
			a, b := peers[0], peers[1]
			l, err := b.Listen(testProtocol)
			if err != nil {
				t.Fatal(err)
			}
			out, err := a.Dial(t.Context(), b.ID(), testProtocol)
			if err != nil {
				t.Fatal(err)
			}
			wrote := make(chan error, 1)
			go func() {
				_, err := out.Write(make([]byte, 64<<20)) // more than any window
				wrote <- err
			}()
			in, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			if err := in.SetReadDeadline(time.Now().Add(3 * time.Minute)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(in, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			if err := out.Close(); err != nil {
				t.Error(err)
			}
			select {
			case err := <-wrote:
				if err == nil {
					t.Error("wrote what nobody read")
				}
			case <-time.After(time.Minute):
				t.Error("Close left a Write that does not end")
			}
			if _, err := out.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
				t.Errorf("a Write after Close: %v", err)
			}
			var timeout net.Error
			if _, err := io.Copy(io.Discard, in); err == nil || errors.As(err, &timeout) && timeout.Timeout() {
				t.Errorf("the other side did not see that the stream was cut off: %v", err)
			}
		})
	}
}

// Dial refuses this node itself, and refuses a peer that is no member with ErrNotMember.
func TestDialRefusesThisNodeAndWhoIsNoMember(t *testing.T) {
	peers, r := newCluster(t, 2)
	if _, err := peers[0].Dial(t.Context(), peers[0].ID(), testProtocol); err == nil {
		t.Fatal("dialled itself")
	}
	r.set(peers[1].ID(), false)
	if _, err := peers[0].Dial(t.Context(), peers[1].ID(), testProtocol); !errors.Is(err, ErrNotMember) {
		t.Fatal(err)
	}
}

// A member may hold 200 streams of one protocol to another member. libp2p's own limits would reset the 76th.
func TestMembersMayOpenManyStreams(t *testing.T) {
	const many = 200
	peers, _ := newCluster(t, 2)
	l, err := peers[1].Listen(testProtocol)
	if err != nil {
		t.Fatal(err)
	}
	for i := range many {
		c, err := peers[0].Dial(t.Context(), peers[1].ID(), testProtocol)
		if err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		defer c.Close()
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write([]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		var b [1]byte
		if _, err := io.ReadFull(c, b[:]); err != nil || b[0] != byte(i) {
			t.Fatalf("stream %d: %v", i, err)
		}
	}
}

// Run connects each member with each other, and Forget cuts a removed member, which cannot connect again.
func TestRunConnectsMembersAndForgetCutsThem(t *testing.T) {
	peers, r := newCluster(t, 3)
	for _, p := range peers {
		for _, q := range peers {
			if p.ID() != q.ID() {
				until(t, "a connection", func() bool { return p.Connected(q.ID()) })
			}
		}
	}
	gone := peers[2]
	r.set(gone.ID(), false)
	for _, p := range peers[:2] {
		p.Forget(gone.ID())
	}
	for _, p := range peers[:2] {
		until(t, "the end of a removed member's connection", func() bool { return !p.Connected(gone.ID()) })
	}
	if err := gone.cluster.Connect(t.Context(), target(t, peers[0].ClusterAddrs())); err == nil {
		until(t, "the cut", func() bool { return !gone.Connected(peers[0].ID()) })
	}
}

// A node reaches a member at an address hint, and takes nobody else at that address for the member. At most
// maxMemberAddrs hints of a member are remembered, and Forget drops them.
func TestAMemberIsFoundByAnAddressHint(t *testing.T) {
	r := newRoster()
	a, b, c := newTestPeer(t, r), newTestPeer(t, r), newTestPeer(t, r)
	for _, p := range []testPeer{a, b, c} {
		r.set(p.ID(), true)
	}
	moved := strings.Replace(c.ClusterAddrs()[0], c.ID(), b.ID(), 1) // where another member is
	a.SetMember(b.ID(), []string{moved})
	for _, bad := range []string{"", "/ip4/127.0.0.1/tcp/1", "/p2p/" + b.ID()} {
		if err := a.AddrHint(bad); err == nil {
			t.Errorf("%q is taken for an address of a member", bad)
		}
	}
	if err := a.AddrHint(moved); err != nil {
		t.Fatal(err)
	}
	if err := a.AddrHint("/ip4/127.0.0.1/tcp/1/p2p/" + newID(t)); err != nil { // no member: nobody dials it
		t.Fatal(err)
	}
	if err := a.dialMember(t.Context(), b.id); err == nil || a.Connected(b.ID()) {
		t.Error("somebody else was taken for the member")
	}
	if err := a.AddrHint(b.ClusterAddrs()[0]); err != nil {
		t.Fatal(err)
	}
	a.SetMember(b.ID(), []string{moved, moved}) // what the state says does not end a hint
	until(t, "the connection", func() bool { return a.Connected(b.ID()) })
	if a.Connected(c.ID()) {
		t.Error("a member was connected whose address nobody told")
	}
	for i := range 2 * maxMemberAddrs {
		if err := a.AddrHint(fmt.Sprintf("/ip4/192.0.2.%d/tcp/1/p2p/%s", i, c.ID())); err != nil {
			t.Fatal(err)
		}
	}
	a.Forget(b.ID())
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.addrHints[c.id]) > maxMemberAddrs || len(a.addrHints[b.id])+len(a.told[b.id]) > 0 {
		t.Errorf("%d and %d hints are remembered", len(a.addrHints[c.id]), len(a.addrHints[b.id]))
	}
}

// newID is that of a peer that does not run.
func newID(t *testing.T) string {
	t.Helper()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	id, err := IDOf(key)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Every address of a member that concurrent calls of AddrHint and SetMember give is known for its dials.
func TestWhatIsToldAtOnceOfAMemberIsAllKnown(t *testing.T) {
	r := newRoster()
	p := newTestPeer(t, r)
	id := newID(t)
	remote, err := libp2ppeer.Decode(id)
	if err != nil {
		t.Fatal(err)
	}
	const hinted = 4
	for round := range 500 {
		at := func(i int) string { return fmt.Sprintf("/ip4/192.0.2.%d/tcp/%d/p2p/%s", i, round+1, id) }
		var told sync.WaitGroup
		for range 3 { // as for several addresses of --join, behind which each member tells of all
			told.Go(func() {
				for i := range hinted {
					if err := p.AddrHint(at(i)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		told.Go(func() { p.SetMember(id, []string{at(hinted)}) })
		told.Wait()
		if known := len(p.cluster.Peerstore().Addrs(remote)); known != hinted+1 {
			t.Fatalf("round %d: %d addresses are known, want %d", round, known, hinted+1)
		}
		p.Forget(id)
	}
}

// The cluster port cuts an unknown peer after the handshake, opens no protocol for it and tells it none. A peer with
// the key of a wrong secret is cut in the same way.
func TestUnknownPeersSeeNothingOfTheCluster(t *testing.T) {
	peers, r := newCluster(t, 2)
	p := peers[0]
	if _, err := p.Listen(testProtocol); err != nil {
		t.Fatal(err)
	}
	if _, err := p.ListenJoin(); err != nil {
		t.Fatal(err)
	}
	_, joiner, err := JoinKey([]byte("right secret"))
	if err != nil {
		t.Fatal(err)
	}
	r.setJoiner(joiner)
	wrong, _, err := JoinKey([]byte("wrong secret"))
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string][]byte{"random key": nil, "key of a wrong secret": wrong} {
		t.Run(name, func(t *testing.T) {
			h := newUnknownPeer(t, key)
			to := target(t, p.ClusterAddrs())
			_ = h.Connect(t.Context(), to) // with TLS the dialler may learn of the cut only later
			until(t, "the cut", func() bool { return h.Network().Connectedness(to.ID) != network.Connected })
			if known, err := h.Peerstore().GetProtocols(to.ID); err != nil || len(known) != 0 {
				t.Fatalf("the unknown peer learned %v, %v", known, err)
			}
			for _, proto := range append(p.cluster.Mux().Protocols(), joinProtocol) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				s, err := h.NewStream(ctx, to.ID, proto)
				if err == nil {
					_, err = s.Write([]byte("x"))
				}
				if err == nil {
					_, err = s.Read(make([]byte, 1))
				}
				cancel()
				if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%s: %v", proto, err)
				}
			}
		})
	}
	if _, _, err := DialJoin(t.Context(), []byte("wrong secret"), p.ClusterAddrs()[0]); err == nil {
		t.Fatal("joined with a wrong secret")
	}
	if conns := p.cluster.Network().Peers(); len(conns) > 1 {
		t.Fatalf("connections stayed: %v", conns)
	}
}

// A peer with the key of a valid ticket gets a join stream at the cluster port and no other protocol. DialJoin fails
// with ErrNoJoin at a public port and with ErrOtherNode, which names the node's id, at another node than the named
// one.
func TestJoinersGetTheJoinStreamOnly(t *testing.T) {
	secret := []byte("correct horse battery staple")
	peers, r := newCluster(t, 2)
	p := peers[0]
	key, id, err := JoinKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	r.setJoiner(id)
	if _, err := p.Listen(testProtocol); err != nil {
		t.Fatal(err)
	}
	l, err := p.ListenJoin()
	if err != nil {
		t.Fatal(err)
	}
	out, end, err := DialJoin(t.Context(), secret, p.ClusterAddrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if in.RemoteAddr().String() != id || out.RemoteAddr().String() != p.ID() {
		t.Fatal(in.RemoteAddr(), out.RemoteAddr())
	}
	if _, err := io.WriteString(out, "let me in"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 9)
	if _, err := io.ReadFull(in, got); err != nil || string(got) != "let me in" {
		t.Fatalf("%q, %v", got, err)
	}
	out.Close()
	if err := end.Close(); err != nil {
		t.Fatal(err)
	}

	// The public port is none to join at, and that is another reason than a wrong secret.
	for _, addr := range p.Addrs() { // of TCP and of QUIC
		if _, _, err := DialJoin(t.Context(), secret, addr); !errors.Is(err, ErrNoJoin) || errors.Is(err, ErrJoinRefused) {
			t.Errorf("joining at the public port: %v", err)
		}
	}

	// A node that is not the one that is named is told by its id.
	named, _, _ := strings.Cut(p.ClusterAddrs()[0], "/p2p/")
	if _, _, err := DialJoin(t.Context(), secret, named+"/p2p/"+peers[1].ID()); !errors.Is(err, ErrOtherNode) || !strings.Contains(err.Error(), p.ID()) {
		t.Errorf("joining at another node than the one that is named: %v", err)
	}

	// With the same key and a host of its own, nothing else opens.
	h := newUnknownPeer(t, key)
	to := target(t, p.ClusterAddrs())
	h.Peerstore().AddAddrs(to.ID, to.Addrs, peerstore.PermanentAddrTTL)
	others := slices.DeleteFunc(p.cluster.Mux().Protocols(), func(id protocol.ID) bool { return id == joinProtocol })
	if !slices.Contains(others, identify.ID) || !slices.Contains(others, blocksProtocol) || !slices.Contains(others, testProtocol) {
		t.Fatalf("the test misses protocols: %v", others)
	}
	for _, proto := range others {
		s, err := openStream(t.Context(), h, to.ID, string(proto))
		if !errors.As(err, new(multistream.ErrNotSupported[protocol.ID])) {
			t.Errorf("%s: %v, %v", proto, s, err)
		}
	}
	if known, err := h.Peerstore().GetProtocols(to.ID); err != nil || len(known) != 0 {
		t.Errorf("the joiner learned %v, %v", known, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := DialJoin(t.Context(), secret, p.ClusterAddrs()[0]); err == nil {
		t.Error("joined where nobody listens")
	}
}

// JoinKey derives the id that other versions derive from the same secret, and another id from another secret. It
// refuses an empty secret. It is a format: nodes of different versions must derive the same id.
func TestJoinKeyDependsOnTheSecretAlone(t *testing.T) {
	_, a, err := JoinKey([]byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	// A format: nodes of different versions must derive the same id.
	if want := "12D3KooWP1Zc2bV5qR6b8YjZMpyuXrA7fGukvf93mjXKGAJ1NWSU"; a != want {
		t.Errorf("id %s, want %s", a, want)
	}
	_, b, err := JoinKey([]byte("secret2"))
	if err != nil || a == b {
		t.Fatal(b, err)
	}
	if _, _, err := JoinKey(nil); err == nil {
		t.Fatal("a key of no secret")
	}
}

// Gossip of up to MaxGossip bytes reaches all members, and gossip of a removed member reaches none. The removed
// member is still connected. Publish refuses larger gossip and what the validator refuses.
func TestGossipReachesMembersOnly(t *testing.T) {
	peers, r := newCluster(t, 3)
	var topics []*Topic
	for _, p := range peers {
		topic, err := p.Topic("load", func(_ string, data []byte) bool { return !bytes.HasPrefix(data, []byte("bad")) })
		if err != nil {
			t.Fatal(err)
		}
		topics = append(topics, topic)
	}
	for _, topic := range topics {
		until(t, "everyone to listen", func() bool { return len(topic.Members()) == 2 })
	}
	if err := topics[0].Publish(t.Context(), make([]byte, MaxGossip+1)); !errors.Is(err, ErrGossipTooLarge) {
		t.Fatal(err)
	}
	if err := topics[0].Publish(t.Context(), []byte("bad sample")); err == nil {
		t.Fatal("published what the validator refuses")
	}
	large := peertest.Bytes(1, MaxGossip)
	if err := topics[0].Publish(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	for _, topic := range topics[1:] {
		from, data, err := topic.Next(t.Context())
		if err != nil || from != peers[0].ID() || !bytes.Equal(data, large) {
			t.Fatal(from, len(data), err)
		}
	}
	// A removed member is still connected here, but nobody takes its word.
	r.set(peers[2].ID(), false)
	if err := topics[2].Publish(t.Context(), []byte("I am still here")); err != nil {
		t.Fatal(err)
	}
	if err := topics[1].Publish(t.Context(), []byte("sample")); err != nil {
		t.Fatal(err)
	}
	if from, data, err := topics[0].Next(t.Context()); err != nil || from != peers[1].ID() || string(data) != "sample" {
		t.Fatal(from, string(data), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := topics[0].Next(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}
