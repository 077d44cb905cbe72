package cluster

import (
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/cluster/node"
)

// TestAMemberComesBackUnderALeaderThatJoinedMeanwhile promises that a member that was away gets ready under a leader
// that joined meanwhile. Its own state does not have that leader, which alone could tell it.
func TestAMemberComesBackUnderALeaderThatJoinedMeanwhile(t *testing.T) {
	t.Parallel() // it mostly waits
	nodes := three(t)
	known, err := nodes[0].Members().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	away := nodes[2]
	if err := away.stop(); err != nil {
		t.Fatal(err)
	}
	base := t.TempDir()
	nodes = nodes[:2]
	for _, name := range []string{"node4", "node5"} {
		nodes = append(nodes, start(t, filepath.Join(base, name), known.Node.ClusterAddrs[0], filepath.Join(nodes[0].dir, node.SecretFile)))
	}
	await(t, "those that joined vote", func() bool {
		s, err := nodes[2].Members().Status(t.Context())
		return err == nil && !slices.ContainsFunc(s.Peers, func(p members.Peer) bool { return p.Role != "voter" })
	})
	// Of the old ones one is left, which hands over to who has its newest entries: one that joined.
	if err := nodes[0].stop(); err != nil {
		t.Fatal(err)
	}
	await(t, "one that joined leads", func() bool {
		s, err := nodes[2].Members().Status(t.Context())
		if err != nil {
			return false
		}
		if slices.ContainsFunc(known.Peers, func(p members.Peer) bool { return p.ID == s.Leader }) {
			_ = nodes[1].Replica().HandOver(t.Context())
			return false
		}
		return s.Leader != ""
	})
	opened, err := node.Open(t.Context(), node.Options{Config: away.config, Version: "test", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	back := serve(t, opened, away.config)
	await(t, "ready", func() bool { return back.Ready() == nil })
	if s, err := back.Members().Status(t.Context()); err != nil || len(s.Peers) != 5 {
		t.Errorf("it knows %d members, %v", len(s.Peers), err)
	}
}
