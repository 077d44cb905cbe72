package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/cluster/node"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// freeAddrs are addresses of loopback at which nobody listens.
func freeAddrs(t *testing.T, n int) (addrs []string) {
	t.Helper()
	for range n {
		addrs = append(addrs, fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", harness.FreePort(t)))
	}
	return addrs
}

// TestAllMembersMovedAtOnceFindEachOther promises that members whose addresses have all changed find each other by
// --join, which names one other for each, and join nothing anew. What members know of each other's addresses is wrong
// for all of them.
func TestAllMembersMovedAtOnceFindEachOther(t *testing.T) {
	nodes := three(t)
	first, err := nodes[0].Members().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]string, len(nodes))
	for i, n := range nodes {
		s, err := n.Members().Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = string(s.Node.ID)
	}
	other := start(t, filepath.Join(t.TempDir(), "other"), "", "") // a cluster of its own
	strange, err := other.Members().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		// hints are what a node is told, by where the nodes are now and who they are.
		hints func(at []string, i int) []string
	}{
		{"each is told of one other: a ring", func(at []string, i int) []string { return []string{at[(i+1)%3]} }},
		{"two are told of one", func(at []string, i int) []string {
			if i == 0 {
				return nil
			}
			return at[:1]
		}},
		{"among hints that lead nowhere, by an old ticket", func(at []string, i int) []string {
			nobody := freeAddrs(t, 1)[0]
			old := members.Ticket{Secret: bytes.Repeat([]byte{7}, 32), Addrs: []string{nobody + "/p2p/" + ids[(i+1)%3], at[(i+2)%3]}}
			return []string{
				strange.Node.ClusterAddrs[0], strange.Node.Addrs[0], // another cluster's
				strings.Split(strange.Node.ClusterAddrs[0], "/p2p/")[0] + "/p2p/" + ids[(i+1)%3], // there is somebody else
				at[i], // its own
				old.String(),
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			log := new(lines)
			addrs := freeAddrs(t, len(nodes))
			at := make([]string, len(nodes))
			for i := range nodes {
				at[i] = addrs[i] + "/p2p/" + ids[i]
				if err := nodes[i].stop(); err != nil {
					t.Fatal(err)
				}
			}
			for i, n := range nodes {
				c := n.config
				c.Peer.ClusterListen, c.Cluster.Join, c.Cluster.SecretFile = addrs[i:i+1], tc.hints(at, i), ""
				opened, err := node.Open(t.Context(), node.Options{Config: c, Version: "test", Logger: slog.New(slog.NewTextHandler(log, nil))})
				if err != nil {
					t.Fatalf("node %d: %v", i+1, err)
				}
				nodes[i] = serve(t, opened, c)
			}
			for _, n := range nodes {
				await(t, "ready", func() bool { return n.Ready() == nil })
				await(t, "the new addresses in the file of members", func() bool { return atAddrs(n.dir, at) == nil })
				s, err := n.Members().Status(t.Context())
				if err != nil || s.ClusterID != first.ClusterID || len(s.Peers) != len(nodes) {
					t.Errorf("it is in the cluster %s of %d, %v", s.ClusterID, len(s.Peers), err)
				}
			}
			if joined := strings.Count(log.String(), "node joined"); joined > 0 {
				t.Errorf("%d joined anew", joined)
			}
			if strings.Contains(tc.name, "nowhere") {
				return
			}
			if n := strings.Count(log.String(), "no member of this cluster found"); n > 6*len(nodes) {
				t.Errorf("%d lines of hints that are not answered yet", n)
			}
		})
	}
}

// atAddrs says what is wrong when the file of members in a folder does not name these
// addresses, each with the id of its member.
func atAddrs(dir string, at []string) error {
	b, err := os.ReadFile(filepath.Join(dir, membersFile))
	if err != nil {
		return err
	}
	var file struct {
		Members []struct {
			Addrs []string `json:"cluster_addrs"`
		} `json:"members"`
	}
	if err := json.Unmarshal(b, &file); err != nil {
		return err
	}
	var got []string
	for _, m := range file.Members {
		got = append(got, m.Addrs...)
	}
	for _, addr := range at {
		if !slices.Contains(got, addr) {
			return fmt.Errorf("%s is not among %v", addr, got)
		}
	}
	return nil
}

// TestAMemberWithAStaleAddressHintStarts promises that a member with an address hint at which nobody answers runs on,
// and neither ends nor joins anything anew.
func TestAMemberWithAStaleAddressHintStarts(t *testing.T) {
	nodes := three(t)
	for _, n := range nodes {
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
	}
	known := map[string]string{}
	for _, name := range []string{node.SecretFile, identityFile} {
		b, err := os.ReadFile(filepath.Join(nodes[0].dir, name))
		if err != nil {
			t.Fatal(err)
		}
		known[name] = string(b)
	}
	log := new(lines)
	c := nodes[0].config
	s := freeAddrs(t, 1)[0]
	c.Cluster.Join, c.Cluster.SecretFile = []string{s + "/p2p/12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA"}, ""
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n, err := node.Open(ctx, node.Options{Config: c, Version: "test", Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	await(t, "the hint is told of", func() bool { return strings.Count(log.String(), "no member of this cluster found") > 0 })
	select {
	case err := <-ended:
		t.Fatalf("it ended with %v", err)
	default:
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	for name, before := range known {
		if now, err := os.ReadFile(filepath.Join(c.Data, name)); err != nil || string(now) != before {
			t.Errorf("%s has changed: %v", name, err)
		}
	}
}
