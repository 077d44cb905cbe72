// Package cluster runs several whole nodes in one process and drives their use cases
// without HTTP. That also shows that a node has no global state.
//
// Imports: cluster/node, its use cases, config, storage/blocks to look into a store
// that is closed.
// Never:   cmd, api.
package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/cluster/node"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/holdfast-ipfs/holdfast/consensus"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/test/harness"
	"github.com/prometheus/client_golang/prometheus"
)

// patience bounds every wait of these tests.
const patience = 2 * time.Minute

// running is a node that runs until the test ends, or stop is called.
type running struct {
	*node.Node
	dir    string
	config config.Config
	stop   func() error

	metrics *prometheus.Registry
}

func start(t *testing.T, dir, join, secretFile string, tune ...func(*node.Options)) *running {
	t.Helper()
	return run(t, settings(dir, join, secretFile), tune...)
}

func run(t *testing.T, c config.Config, tune ...func(*node.Options)) *running {
	t.Helper()
	metrics := prometheus.NewRegistry()
	n := opened(t, c, metrics, tune)
	r := serve(t, n, c)
	r.metrics = metrics
	await(t, "ready "+c.Node.Name, func() bool { return n.Ready() == nil })
	return r
}

// opened opens a node with options of its own.
func opened(t *testing.T, c config.Config, metrics prometheus.Registerer, tune []func(*node.Options)) *node.Node {
	t.Helper()
	opts := node.Options{Config: c, Version: "test", Registerer: metrics, Logger: slog.New(slog.DiscardHandler)}
	for _, change := range tune {
		change(&opts)
	}
	n, err := node.Open(t.Context(), opts)
	if err != nil {
		t.Fatalf("open %s: %v", c.Data, err)
	}
	return n
}

// runAgain runs a node until it is ready or has found its state broken, and starts it anew
// then, as whatever runs it does.
func runAgain(t *testing.T, c config.Config, tune ...func(*node.Options)) *running {
	t.Helper()
	n := opened(t, c, prometheus.NewRegistry(), tune)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	await(t, "ready, or ended", func() bool { return n.Ready() == nil || len(ended) > 0 })
	cancel()
	if err := errors.Join(<-ended, n.Close()); err != nil && !errors.Is(err, consensus.ErrBroken) {
		t.Fatalf("%s has ended: %v", c.Data, err)
	}
	return run(t, c, tune...)
}

// serve runs an open node until the test ends, or stop is called.
func serve(t *testing.T, n *node.Node, c config.Config) *running {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	stopped := false
	r := &running{Node: n, dir: c.Data, config: c}
	r.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return errors.Join(<-ended, n.Close())
	}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("stop %s: %v", c.Data, err)
		}
	})
	return r
}

// await polls until cond holds.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	awaitFor(t, patience, what, cond)
}

// awaitFor is await with a bound of its own.
func awaitFor(t *testing.T, within time.Duration, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within) // also in a cleanup
	defer cancel()
	if err := harness.Poll(ctx, 20*time.Millisecond, func() (bool, error) { return cond(), nil }); err != nil {
		t.Fatalf("%s: not within %v", what, within)
	}
}

// three starts a cluster of three nodes.
func three(t *testing.T, tune ...func(*node.Options)) []*running {
	t.Helper()
	base := t.TempDir()
	first := start(t, filepath.Join(base, "node1"), "", "", tune...)
	s, err := first.Members().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(first.dir, node.SecretFile)
	nodes := []*running{first}
	for _, name := range []string{"node2", "node3"} {
		nodes = append(nodes, start(t, filepath.Join(base, name), s.Node.ClusterAddrs[0], secret, tune...))
	}
	for _, n := range nodes {
		await(t, "all are voters", func() bool {
			s, err := n.Members().Status(t.Context())
			voters := 0
			for _, p := range s.Peers {
				if p.Role == "voter" {
					voters++
				}
			}
			return err == nil && voters == 3
		})
	}
	return nodes
}

// TestThreeNodesInOneProcessKeepAFile promises that a pin puts a file on all three nodes,
// which each gives back, also after a restart, and that nothing of it is left once the pin is
// deleted.
func TestThreeNodesInOneProcessKeepAFile(t *testing.T) {
	t.Parallel() // it mostly waits
	nodes := three(t)
	want := make([]byte, 5<<20+123)
	_, _ = rand.Read(want)
	root, size, err := nodes[0].Content().Add(t.Context(), bytes.NewReader(want), content.Layout{})
	if err != nil || size != uint64(len(want)) {
		t.Fatalf("add: %d bytes, %v", size, err)
	}
	operator, err := nodes[1].Accounts().Operator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pin, err := nodes[1].Pins().Create(t.Context(), operator.ID, pins.Request{CID: root.String()})
	if err != nil || pin.Status != state.Queued || len(pin.Delegates) == 0 {
		t.Fatalf("create: %+v, %v", pin, err)
	}
	await(t, "held on all three", func() bool {
		s, err := nodes[2].Members().Status(t.Context())
		held := uint64(0)
		for _, p := range s.Peers {
			held += p.Roots
		}
		return err == nil && held == 3
	})
	for _, n := range nodes {
		got, err := n.Pins().Get(t.Context(), operator.ID, pin.ID)
		if err != nil || got.Status != state.Pinned {
			t.Fatalf("%s: %s, %v", n.config.Node.Name, got.Status, err)
		}
		read(t, n, root.String(), want)
		if pinned, live := n.gauge(t, "holdfast_pins", "pinned"), n.gauge(t, "holdfast_blocks_live_bytes", ""); pinned != 1 || live < float64(len(want)) {
			t.Errorf("%s: metrics say %v pins and %v bytes", n.config.Node.Name, pinned, live)
		}
	}

	if err := nodes[0].stop(); err != nil {
		t.Fatal(err)
	}
	again := nodes[0].config
	again.Cluster.Join = nil // a member already
	read(t, run(t, again), root.String(), want)
	if err := nodes[1].Pins().Delete(t.Context(), operator.ID, pin.ID); err != nil {
		t.Fatal(err)
	}
	await(t, "nothing is held", func() bool {
		s, err := nodes[2].Members().Status(t.Context())
		var used uint64
		for _, p := range s.Peers {
			used += p.Roots + p.UsedBytes
		}
		return err == nil && used == 0
	})
}

// gauge reads a metric, with the status if there is one.
func (r *running) gauge(t *testing.T, name, status string) float64 {
	t.Helper()
	families, err := r.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (status == "" || m.GetLabel()[0].GetValue() == status) {
				return m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// read checks that a node reads the file whole, and from its middle.
func read(t *testing.T, n *running, root string, want []byte) {
	t.Helper()
	f, size, err := n.Content().Open(t.Context(), root)
	if err != nil || size != uint64(len(want)) {
		t.Fatalf("%s: open: %d bytes, %v", n.config.Node.Name, size, err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	middle := int64(len(want) / 2)
	if _, err := f.Seek(middle, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(f)
	if err != nil || !bytes.Equal(got, want[middle:]) {
		t.Fatalf("%s: %d bytes from the middle differ, %v", n.config.Node.Name, len(got), err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if got, err = io.ReadAll(f); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s: %d bytes differ, %v", n.config.Node.Name, len(got), err)
	}
}

// TestAFounderTakesTheSecretThatItIsGiven promises that the first node founds a cluster with the secret that it is
// given, and a second one joins by the same secret and an address. So all nodes may have one file of settings. As
// members both start with any other secret.
func TestAFounderTakesTheSecretThatItIsGiven(t *testing.T) {
	t.Parallel() // it mostly waits
	base := t.TempDir()
	const given = "000102030405060708090a0b0c0d0e0f10" // of another length than one that a founder makes
	with := func(secret string) func(*node.Options) {
		return func(o *node.Options) { o.Config.Cluster.Secret = secret }
	}
	first := start(t, filepath.Join(base, "node1"), "", "", with(given))
	s, err := first.Members().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second := start(t, filepath.Join(base, "node2"), s.Node.ClusterAddrs[0], "", with(given))
	for _, n := range []*running{first, second} {
		if text, err := os.ReadFile(filepath.Join(n.dir, node.SecretFile)); err != nil || string(text) != given+"\n" {
			t.Errorf("%s keeps %q, %v", n.config.Node.Name, text, err)
		}
	}
	key, err := second.Accounts().CreateKey(t.Context(), "operator@localhost", "", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Accounts().Authenticate(t.Context(), key.Token); err != nil {
		t.Errorf("a key that the other node has made: %v", err)
	}
	if err := second.stop(); err != nil {
		t.Fatal(err)
	}
	start(t, second.dir, s.Node.ClusterAddrs[0], "", with("ffffffffffffffffffffffffffffffff"))
}

// TestANodeWithAWrongSecretDoesNotJoin promises that a node with another secret is not let
// in, and that the members stay as they were.
func TestANodeWithAWrongSecretDoesNotJoin(t *testing.T) {
	t.Parallel() // it mostly waits
	base := t.TempDir()
	first := start(t, filepath.Join(base, "node1"), "", "")
	s, err := first.Members().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	c.Data = filepath.Join(base, "outsider")
	c.Peer.Listen, c.Peer.ClusterListen = nil, []string{"/ip4/127.0.0.1/tcp/0"}
	c.Peer.Routing = config.RoutingOff
	c.Cluster.Join = s.Node.ClusterAddrs[:1]
	c.Cluster.Secret = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	n, err := node.Open(ctx, node.Options{Config: c, Version: "test", Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		t.Fatal("joined with a wrong secret", n.Close())
	}
	if s, err = first.Members().Status(t.Context()); err != nil || len(s.Peers) != 1 {
		t.Fatalf("members: %v, %v", s.Peers, err)
	}
}
