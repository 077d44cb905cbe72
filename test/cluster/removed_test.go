package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clustercontent "github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/cluster/node"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/holdfast-ipfs/holdfast/consensus"
	"github.com/holdfast-ipfs/holdfast/consensus/transport"
)

// TestARemovedNodeComesBackWithATicketOnly promises that a node that was removed while it was down ends at its start,
// and comes back with a ticket only.
// Nobody tells it, for Raft has let go of it: it asks. It is a new member with its old identity: its log and its
// state are given up, its blocks are not (A14).
func TestARemovedNodeComesBackWithATicketOnly(t *testing.T) {
	t.Parallel() // it mostly waits
	nodes := three(t)
	content := make([]byte, 1<<20)
	_, _ = rand.Read(content)
	root, _, err := nodes[0].Content().Add(t.Context(), bytes.NewReader(content), clustercontent.Layout{})
	if err != nil {
		t.Fatal(err)
	}
	operator, err := nodes[0].Accounts().Operator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nodes[0].Pins().Create(t.Context(), operator.ID, pins.Request{CID: root.String()}); err != nil {
		t.Fatal(err)
	}
	gone := nodes[2]
	s, err := gone.Members().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := s.Node.ID
	if err := gone.stop(); err != nil {
		t.Fatal(err)
	}
	await(t, "removed", func() bool { return nodes[0].Members().Remove(t.Context(), id, true) == nil })

	// It starts with an address and the secret, as it did the first time.
	logger := slog.New(slog.DiscardHandler)
	n, err := node.Open(t.Context(), node.Options{Config: gone.config, Version: "test", Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = n.Run(ctx)
	if cerr := n.Close(); cerr != nil {
		t.Error(cerr)
	}
	if !errors.Is(err, node.ErrRemoved) || !strings.Contains(err.Error(), "ticket") {
		t.Fatalf("a removed node ended with %v", err)
	}
	wantsTicket(t, gone.config)
	ticket := ticketOf(t, nodes[1])
	stale := gone.config
	stale.Cluster.Join = []string{"holdfast1.bm8gdGlja2V0"}
	if why := refused(t, stale); !strings.Contains(why, "ticket") {
		t.Errorf("with what is no ticket: %s", why)
	}
	spent, _ := members.ParseTicket(ticket)
	spent.Secret = bytes.Repeat([]byte{1}, len(spent.Secret))
	// An address beside it, with the secret, is no way back either.
	for _, beside := range [][]string{nil, gone.config.Cluster.Join} {
		stale.Cluster.Join = append([]string{spent.String()}, beside...)
		if why := refused(t, stale); !strings.Contains(why, "was removed") || !strings.Contains(why, "admit") {
			t.Errorf("with a ticket that admits nobody, and %v: %s", beside, why)
		}
	}

	again := gone.config
	again.Cluster.Join, again.Cluster.SecretFile = []string{ticket}, ""
	back := run(t, again)
	await(t, "a voter again", func() bool {
		s, err := nodes[0].Members().Status(t.Context())
		for _, p := range s.Peers {
			if p.ID == id && p.Role == "voter" && len(s.Peers) == 3 {
				return err == nil
			}
		}
		return false
	})
	if _, err := os.Stat(filepath.Join(back.dir, "removed")); err == nil {
		t.Error("a member again says that it was removed")
	}
	read(t, back, root.String(), content)
	key, err := back.Accounts().CreateKey(t.Context(), "operator@localhost", "", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nodes[0].Accounts().Authenticate(t.Context(), key.Token); err != nil {
		t.Errorf("a key of the node that came back: %v", err)
	}

	// It is a member again, so the spent ticket is ignored, and its state is the others'.
	if err := back.stop(); err != nil {
		t.Fatal(err)
	}
	back = run(t, again)
	await(t, "the same state", func() bool {
		there, a, err1 := nodes[0].Replica().StateHash(t.Context())
		here, b, err2 := back.Replica().StateHash(t.Context())
		return err1 == nil && err2 == nil && there == here && a == b
	})
}

// TestAMemberThatWentDownWhileItJoinedStarts promises that a node that went down at any step of its join starts again
// and gets ready. Its ticket is spent, and will not admit it again. It asks whether it is a member as long as it has
// not written down that it is, and from then on gives nothing up any more, whatever it says of an earlier removal.
func TestAMemberThatWentDownWhileItJoinedStarts(t *testing.T) {
	t.Parallel() // it mostly waits
	nodes := three(t)
	ticket := ticketOf(t, nodes[0])
	n := start(t, filepath.Join(t.TempDir(), "node4"), ticket, "")
	for _, tc := range []struct {
		name    string
		removed []byte   // what lies in the file of that name; nil: there is none
		without []string // what is not in its folder yet
	}{
		{"before it wrote down that it is admitted", []byte("left\n"), []string{"members.json", "state", "raft"}},
		{"before it forgot its removal", []byte("left\n"), nil},
		{"then, and what it knows of the members cannot be read", []byte("left\n"), nil},
		{"cut off, and took itself for removed", []byte{}, nil},
		{"with the secret only, as a new node", nil, []string{"members.json", "state", "raft"}},
	} {
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
		if tc.removed != nil {
			if err := os.WriteFile(filepath.Join(n.dir, "removed"), tc.removed, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range tc.without {
			if err := os.RemoveAll(filepath.Join(n.dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		if strings.HasSuffix(tc.name, "cannot be read") {
			if err := os.Truncate(filepath.Join(n.dir, membersFile), 0); err != nil {
				t.Fatal(err)
			}
		}
		opened, err := node.Open(t.Context(), node.Options{Config: n.config, Version: "test", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatalf("one that went down %s: %v", tc.name, err)
		}
		for _, name := range []string{"removed", "aside"} {
			if _, err := os.Stat(filepath.Join(n.dir, name)); err == nil {
				t.Errorf("one that went down %s has %s", tc.name, name)
			}
		}
		n = serve(t, opened, n.config)
		await(t, "ready", func() bool { return n.Ready() == nil })
	}
}

// TestARemovedNodeThatDidNotGetInJoinsLater promises that a removed node whose join was cut off joins later with a
// ticket, and only so. It has given up what it had when it asks to join.
func TestARemovedNodeThatDidNotGetInJoinsLater(t *testing.T) {
	t.Parallel() // it mostly waits
	nodes := three(t)
	gone := nodes[2]
	s, err := gone.Members().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.stop(); err != nil {
		t.Fatal(err)
	}
	await(t, "removed", func() bool { return nodes[0].Members().Remove(t.Context(), s.Node.ID, true) == nil })
	removed := filepath.Join(gone.dir, "removed")
	if err := os.WriteFile(removed, nil, 0o600); err != nil { // as Run leaves it
		t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	nowhere := gone.config
	nowhere.Cluster.Join = []string{members.Ticket{Secret: make([]byte, 32), Addrs: []string{"/ip4/127.0.0.1/tcp/1/p2p/" + string(s.Node.ID)}}.String()}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		n, err := node.Open(ctx, node.Options{Config: nowhere, Version: "test", Logger: logger})
		if err == nil {
			err = errors.Join(errors.New("it has joined"), n.Close())
		}
		ended <- err
	}()
	await(t, "it has left", func() bool {
		said, err := os.ReadFile(removed)
		return err == nil && len(said) > 0
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	wantsTicket(t, gone.config)
	ticket := ticketOf(t, nodes[0])
	again := gone.config
	again.Cluster.Join, again.Cluster.SecretFile = []string{ticket}, ""
	run(t, again)
}

// ticketOf returns a ticket of a node's cluster.
func ticketOf(t *testing.T, n *running) string {
	t.Helper()
	ticket, err := n.Members().CreateTicket(t.Context(), time.Hour, func(b []byte) { _, _ = rand.Read(b) })
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

// wantsTicket wants a removed node to be refused, with a word that it takes a ticket.
func wantsTicket(t *testing.T, c config.Config) {
	t.Helper()
	if why := refused(t, c); !strings.Contains(why, "removed") || !strings.Contains(why, "ticket") {
		t.Errorf("without a ticket: %s", why)
	}
}

// unasked is a network on which other members are asked for nothing while closed is open.
type unasked struct {
	consensus.Network
	closed chan struct{}
}

// Dial implements consensus.Network.
func (u unasked) Dial(ctx context.Context, id, protocol string) (net.Conn, error) {
	select {
	case <-u.closed:
	default:
		if protocol == transport.ForwardProtocol {
			return nil, errCut
		}
	}
	return u.Network.Dial(ctx, id, protocol)
}

// TestTheOnlyVoterIsRemovedBeforeTheOtherVotes promises that the other member leads after the only voter was removed
// before the other could vote. So a cluster of one moves to another machine. Until the other one has caught up and
// votes, it needs the member that was removed.
func TestTheOnlyVoterIsRemovedBeforeTheOtherVotes(t *testing.T) {
	t.Parallel() // it mostly waits
	base, ready := t.TempDir(), make(chan struct{})
	first := start(t, filepath.Join(base, "node1"), "", "", func(o *node.Options) {
		o.RaftNetwork = func(n consensus.Network) consensus.Network { return unasked{n, ready} }
	})
	s, err := first.Members().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second := start(t, filepath.Join(base, "node2"), s.Node.ClusterAddrs[0], filepath.Join(first.dir, node.SecretFile))
	await(t, "removed", func() bool { return first.Members().Remove(t.Context(), s.Node.ID, false) == nil })
	await(t, "the other one knows", func() bool { return len(second.Members().Nodes()) == 1 })
	<-time.After(members.LeaveGrace + 2*time.Second) // it takes that long to catch up
	close(ready)
	await(t, "the other one leads", func() bool {
		s, err := second.Members().Status(t.Context())
		return err == nil && s.Leader == s.Node.ID
	})
	if err := first.stop(); err != nil && !errors.Is(err, node.ErrRemoved) {
		t.Error(err)
	}
}

// TestAJoinerIsToldThatNobodyCanAdmitIt promises that a joiner whose ticket is good is told
// that the cluster has no majority, and not that it reaches nobody or shows something wrong.
func TestAJoinerIsToldThatNobodyCanAdmitIt(t *testing.T) {
	t.Parallel() // it mostly waits
	nodes := three(t)
	ticket := ticketOf(t, nodes[0])
	for _, n := range nodes[1:] {
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	log, ended := new(lines), make(chan error, 1)
	go func() {
		_, err := node.Open(ctx, node.Options{
			Config: settings(filepath.Join(t.TempDir(), "node4"), ticket, ""), Version: "test", Logger: slog.New(slog.NewTextHandler(log, nil)),
		})
		ended <- err
	}()
	await(t, "it tells why it waits", func() bool { return strings.Contains(log.String(), "not joined yet") })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if !strings.Contains(log.String(), "can admit nobody now") {
		t.Error(log.String())
	}
}
