package cluster

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/node"
	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// named returns the settings of a node that tells others its address by a DNS name.
func named(t *testing.T, dir string) (c config.Config, announced string) {
	t.Helper()
	c = settings(dir, "", "")
	port := harness.FreePort(t)
	c.Peer.ClusterListen = []string{fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", port)}
	announced = fmt.Sprintf("/dns4/localhost/tcp/%d", port)
	c.Peer.ClusterAnnounce = []string{announced}
	return c, announced
}

// TestANodeJoinsByAFileAndAName promises that a new node waits for the file with its ticket, and joins with it at the DNS
// name in it. The members reach each other by the names that they announce, also after a restart and without the file.
func TestANodeJoinsByAFileAndAName(t *testing.T) {
	t.Parallel() // it mostly waits
	base := t.TempDir()
	one, at := named(t, filepath.Join(base, "node1"))
	first := run(t, one)
	two, at2 := named(t, filepath.Join(base, "node2"))
	two.Cluster.JoinFile = filepath.Join(base, "ticket")
	log := new(lines)
	type result struct {
		node *node.Node
		err  error
	}
	opened := make(chan result, 1)
	go func() {
		n, err := node.Open(t.Context(), node.Options{Config: two, Version: "test", Logger: slog.New(slog.NewTextHandler(log, nil))})
		opened <- result{n, err}
	}()
	await(t, "it waits for the file", func() bool { return strings.Contains(log.String(), "waiting for the file") })
	ticket, err := first.Members().CreateTicket(t.Context(), time.Hour, func(b []byte) { _, _ = rand.Read(b) })
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(two.Cluster.JoinFile, []byte("\n"+ticket+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := <-opened
	if r.err != nil {
		t.Fatal(r.err)
	}
	second := serve(t, r.node, two)
	await(t, "the second node is ready", func() bool { return second.Ready() == nil })
	s, err := second.Members().Status(t.Context())
	if err != nil || len(s.Peers) != 2 {
		t.Fatalf("%d members, %v", len(s.Peers), err)
	}
	for _, p := range s.Peers {
		want := at
		if p.ID == s.Node.ID {
			want = at2
		}
		if want += "/p2p/" + string(p.ID); !slices.Equal(p.ClusterAddrs, []string{want}) {
			t.Errorf("%s is at %v, want %s", p.Name, p.ClusterAddrs, want)
		}
	}

	if err := second.stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(two.Cluster.JoinFile); err != nil {
		t.Fatal(err)
	}
	run(t, two)
}
