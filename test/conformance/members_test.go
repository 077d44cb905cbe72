//go:build conformance

package conformance

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/multiformats/go-multiaddr"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// unknownProtocols are protocols that a libp2p host usually answers to
// anybody, and those that members speak among themselves.
var unknownProtocols = []protocol.ID{
	"/ipfs/id/1.0.0", "/ipfs/ping/1.0.0", "/ipfs/bitswap/1.2.0", "/ipfs/kad/1.0.0",
	"/meshsub/1.1.0", "/meshsub/1.2.0", "/floodsub/1.0.0",
	"/holdfast/raft/1", "/holdfast/forward/1", "/holdfast/blocks/1", "/holdfast/join/1",
}

// TestAnUnknownPeerOnTheClusterPortGetsNothing promises that a peer with an unknown key learns no protocol on the
// cluster port, opens no stream and is cut off.
func TestAnUnknownPeerOnTheClusterPortGetsNothing(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{})
	for _, n := range c.Nodes {
		host, err := libp2p.New(libp2p.NoListenAddrs, libp2p.DisableMetrics())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { host.Close() })
		a, err := multiaddr.NewMultiaddr(n.Status().Node.ClusterAddrs[0])
		if err != nil {
			t.Fatal(err)
		}
		info, err := peer.AddrInfoFromP2pAddr(a)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		// The connection may seem to stand for a moment: the node learns who
		// the unknown peer is only in the handshake.
		_ = host.Connect(ctx, *info)
		for _, id := range unknownProtocols {
			s, err := host.NewStream(ctx, info.ID, id)
			if err != nil {
				continue
			}
			// NewStream is lazy: only an answered byte would prove a stream.
			_ = s.SetDeadline(time.Now().Add(2 * time.Second))
			_, _ = s.Write([]byte{0})
			if got, err := s.Read(make([]byte, 1)); err == nil && got > 0 {
				t.Errorf("%s answers an unknown peer on %s", n.Name, id)
			}
			_ = s.Reset()
		}
		cancel()
		if known, err := host.Peerstore().GetProtocols(info.ID); err != nil || len(known) > 0 {
			t.Errorf("%s tells an unknown peer its protocols %v: %v", n.Name, known, err)
		}
		harness.Eventually(t, time.Minute, n.Name+" cuts the unknown peer off", func() (bool, error) {
			return host.Network().Connectedness(info.ID) != network.Connected, nil
		})
	}
}

// refusedWithin bounds how long a joiner may try before it gives up. A member
// cuts off whoever cannot prove the secret, which looks to the joiner like a
// member that is not up yet, so it tries for a minute.
const refusedWithin = 3 * time.Minute

// TestJoining promises that a node joins with an address and the secret or with a ticket, and that a wrong, used or
// expired one is refused with its reason and admits nobody.
func TestJoining(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Nodes: 2, ByTicket: true})
	first := c.Nodes[0]
	address := first.Status().Node.ClusterAddrs[0]
	t.Run("address and secret, from file or environment", func(t *testing.T) {
		c.Add(c.JoinArgs(false)...)
		c.Settle()
		secret, err := os.ReadFile(c.SecretFile())
		if err != nil {
			t.Fatal(err)
		}
		n := c.Prepare("--join", address)
		n.SetEnv("HOLDFAST_SECRET=" + strings.TrimSpace(string(secret)))
		n.Restart()
		c.Settle()
	})
	t.Run("joining twice changes nothing", func(t *testing.T) {
		before := first.Status()
		for _, n := range c.Nodes[1:] {
			n.Stop()
			n.Restart()
		}
		c.Settle()
		if after := first.Status(); len(after.Peers) != len(before.Peers) || after.ClusterID != before.ClusterID {
			t.Errorf("%+v, before %+v", after, before)
		}
	})
	members := len(first.Status().Peers)
	wrong := filepath.Join(t.TempDir(), "wrong.secret")
	secret, err := os.ReadFile(c.SecretFile())
	if err != nil {
		t.Fatal(err)
	}
	changed := []byte(string(secret))
	changed[0] = map[bool]byte{true: '1', false: '0'}[changed[0] == '0']
	if err := os.WriteFile(wrong, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	used := strings.TrimSpace(first.CLI("token"))
	c.Add("--join", used)
	c.Settle()
	members++
	expired := strings.TrimSpace(first.CLI("token", "--ttl", "1s"))
	harness.Pause(t.Context(), 2*time.Second) // it expires
	type attempt struct {
		*harness.Node
		code int
	}
	refused := map[string]attempt{}
	for name, tc := range map[string]struct {
		code int
		args []string
	}{
		"a wrong secret":       {1, []string{"--join", address, "--secret-file", wrong}},
		"no secret":            {2, []string{"--join", address}},
		"a ticket used before": {1, []string{"--join", used}},
		"an expired ticket":    {1, []string{"--join", expired}},
		"one of two addresses": {1, []string{"--join", withDeadAddress(t, expired)}},
		"a changed ticket":     {2, []string{"--join", used[:len(used)-4] + "AAAA"}},
		"no ticket":            {2, []string{"--join", "garbage"}},
	} {
		refused[name] = attempt{c.Prepare(tc.args...), tc.code}
		refused[name].Restart()
	}
	tells := map[string][]string{
		"a wrong secret":       {"the secret may be wrong"},
		"a ticket used before": {"ticket may have been used"},
		"an expired ticket":    {"the ticket has expired at"},
		"one of two addresses": {"the cluster does not admit this node", "the ticket has expired at"},
	}
	for name, n := range refused {
		t.Run(name, func(t *testing.T) {
			harness.Eventually(t, refusedWithin, n.Name+" gives up", func() (bool, error) { return !n.Running(), nil })
			if code := n.ExitCode(); code != n.code || !strings.Contains(n.Log(), "\nholdfast: ") && !strings.HasPrefix(n.Log(), "holdfast: ") {
				t.Errorf("exit code %d and the log %q", code, n.Log())
			}
			for _, part := range tells[name] {
				if !strings.Contains(n.Log(), part) {
					t.Errorf("A57: the log does not name %q: %s", part, n.Log())
				}
			}
			if got := len(first.Status().Peers); got != members {
				t.Errorf("%d members, want %d", got, members)
			}
		})
	}
	if log := membersLog(c, members); !strings.Contains(log, "refused at the cluster port") || !strings.Contains(log, "addr=/ip4/127.0.0.1/tcp/") {
		t.Errorf("A57: no member logged that somebody was refused: %s", log)
	}
}

// withDeadAddress returns a ticket that also names an address at which nobody listens, as
// those of members on other machines do that listen on loopback too.
func withDeadAddress(t *testing.T, ticket string) string {
	t.Helper()
	kind, body, _ := strings.Cut(ticket, ".")
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	addrs, ok := fields["a"].([]any)
	if !ok {
		t.Fatalf("no addresses in %s", raw)
	}
	id := addrs[0].(string)
	fields["a"] = append(addrs, "/ip4/127.0.0.1/tcp/1"+id[strings.Index(id, "/p2p/"):])
	if raw, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	return kind + "." + base64.RawURLEncoding.EncodeToString(raw)
}

// membersLog returns what all that were members of a cluster of so many logged.
func membersLog(c *harness.Cluster, members int) string {
	var all strings.Builder
	for _, n := range c.Nodes[:members] {
		all.WriteString(n.Log())
	}
	return all.String()
}

// TestContentSurvivesANode promises that content with two copies on three nodes is read on every node, with any one
// node dead, and after a member has been removed for good.
func TestContentSurvivesANode(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Replication: 2})
	s := newService(t, c, "copies@example.org")
	source := harness.StartBoxo(t)
	files := source.AddRandom(6, 1_500_000)
	for _, f := range files {
		st := s.pinned(s.post(harness.Pin{CID: f.CID, Origins: source.Addrs}).RequestID)
		if n := holders(st); n != 2 {
			t.Errorf("20: %d nodes are delegates of two copies: %v", n, st.Delegates)
		}
	}
	source.Close()
	read := func(nodes []*harness.Node) {
		t.Helper()
		for _, f := range files {
			for _, n := range nodes {
				if !f.Matches(n.Get(f.CID)) {
					t.Errorf("%s gives other bytes for %s", n.Name, f.CID)
				}
			}
		}
	}
	read(c.Nodes)
	for _, dead := range c.Nodes {
		dead.Kill()
		read(harness.Without(c.Nodes, dead))
		dead.Restart()
		c.Settle()
	}

	removed := c.Followers()[0]
	id := removed.Status().Node.ID
	removed.Kill()
	member, _ := c.Live()[0].Status().Member(id)
	missed := member.Pins // on record
	if missed == 0 {
		t.Errorf("a node of three holds none of %d files that have two copies", len(files))
	}
	underReplicated(t, c, missed)
	leader := c.Leader()
	leader.CLI("peers", "rm", id, "--force")
	harness.Eventually(t, time.Minute, "two members are left", func() (bool, error) {
		for _, n := range c.Live() {
			st, err := n.StatusNow()
			if err != nil || len(st.Peers) != 2 {
				return false, fmt.Errorf("%s sees %d: %w", n.Name, len(st.Peers), err)
			}
		}
		return true, nil
	})
	read(c.Live())
	underReplicated(t, c, 0)
	if st := s.post(harness.Pin{CID: nowhere().String()}); holders(st) == 0 {
		t.Errorf("%+v", st)
	}
	removed.Restart()
	// The removed node may run or end, but it is no member.
	harness.Pause(t.Context(), 5*time.Second)
	if n := len(leader.Status().Peers); n != 2 {
		t.Errorf("the removed node is back: %d members", n)
	}
}

// underReplicated waits until every node that lives says, in its status and its
// metrics, that so many roots lack copies.
func underReplicated(t *testing.T, c *harness.Cluster, want int64) {
	t.Helper()
	harness.Eventually(t, time.Minute, fmt.Sprintf("A19: %d roots lack copies", want), func() (bool, error) {
		for _, n := range c.Live() {
			s, err := n.StatusNow()
			if err != nil {
				return false, err
			}
			metric := n.Metrics()["holdfast_roots_under_replicated"]
			if got := s.Pins.UnderReplicated; got != want || metric != float64(want) {
				return false, fmt.Errorf("%s says %d, its metric %v", n.Name, got, metric)
			}
		}
		return true, nil
	})
}

// holders counts the nodes among the delegates.
func holders(s harness.PinStatus) int {
	nodes := map[string]bool{}
	for _, d := range s.Delegates {
		nodes[d[strings.LastIndexByte(d, '/')+1:]] = true
	}
	return len(nodes)
}
