//go:build conformance

package conformance

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// Sizes of the first light.
const (
	lightPerPeer = 150     // files of each of the two foreign peers
	lightBytes   = 300_000 // of one file: more than one block
	lightClients = 16      // that post at the same time
	lightWithin  = 4 * time.Minute
)

// acknowledged is what the cluster has promised to keep.
type acknowledged struct {
	mu   sync.Mutex
	pins map[string]harness.Offered // by request id
}

// TestForeignPeersUnderstandEachOther promises that the foreign peers fetch from each other, so that a failure
// elsewhere is not theirs.
func TestForeignPeersUnderstandEachOther(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	var peers []harness.Foreign
	for _, start := range foreignPeers() {
		peers = append(peers, start(t))
	}
	for i, from := range peers {
		to := peers[(i+1)%len(peers)]
		f := from.AddRandom(1, 1_500_000)[0]
		got, err := to.Fetch(f.CID, from.Origins())
		if err != nil || got.SHA256 != f.SHA256 {
			t.Errorf("%T from %T: %+v: %v", to, from, got, err)
		}
	}
}

// TestFirstLight promises that 300 files of two foreign peers, pinned through all nodes while the leader is killed,
// are read everywhere after a restart of all, without the peers and without one node.
func TestFirstLight(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{})
	boxo, helia := harness.StartBoxo(t), harness.StartHelia(t, jsDir)
	token := c.Nodes[0].UserKey("light@example.org").Token

	kept := postUnderFire(t, c, token, []harness.Foreign{boxo, helia})
	waitAllPinned(t, c, token, kept)
	before := sameLists(t, c, token, kept)

	t.Log("all nodes restart")
	for _, n := range c.Nodes {
		n.Stop()
	}
	for _, n := range c.Nodes {
		n.Restart()
	}
	c.Settle()
	if after := sameLists(t, c, token, kept); !slices.EqualFunc(after, before, samePin) {
		t.Fatal("the list changed with the restart")
	}
	t.Log("the foreign peers go")
	boxo.Close()
	helia.Close()
	readEverywhere(t, c.Nodes, kept, 10)
	t.Log("one node dies")
	c.Nodes[2].Kill()
	readEverywhere(t, c.Nodes[:2], kept, 15)
}

// postUnderFire posts every file from concurrent clients, kills the leader
// half way and starts it again, and returns the acknowledged pins. A client
// that gets no answer or a 5xx tries the next node with the same content, as
// the specification tells clients to.
func postUnderFire(t *testing.T, c *harness.Cluster, token string, peers []harness.Foreign) map[string]harness.Offered {
	t.Helper()
	type work struct {
		file    harness.Offered
		origins []string
	}
	var all []work
	for i := range peers {
		for _, f := range peers[i].AddRandom(lightPerPeer, lightBytes) {
			all = append(all, work{f, peers[i].Origins()})
		}
	}
	leader := c.Leader()
	acks := acknowledged{pins: map[string]harness.Offered{}}
	var done atomic.Int64
	half := make(chan struct{})
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(lightClients + 1)
	g.Go(func() error {
		select {
		case <-half:
			t.Logf("killing the leader %s", leader.Name)
			leader.Kill()
		case <-ctx.Done():
		}
		return nil
	})
	for i, w := range all {
		g.Go(func() error {
			id, err := postSomewhere(ctx, c, token, i, harness.Pin{CID: w.file.CID, Name: w.file.SHA256, Origins: w.origins})
			if err != nil {
				return err
			}
			acks.mu.Lock()
			acks.pins[id] = w.file
			acks.mu.Unlock()
			if int(done.Add(1)) == len(all)/2 {
				close(half)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if leader.Running() {
		t.Fatal("the leader was not killed: the test shows nothing")
	}
	leader.Restart()
	c.Settle()
	if len(acks.pins) != len(all) {
		t.Fatalf("%d request ids for %d acknowledged posts", len(acks.pins), len(all))
	}
	return acks.pins
}

// retryEvery is the pause between a client's tries, and giveUpAfter its
// patience.
const (
	retryEvery  = 100 * time.Millisecond
	giveUpAfter = time.Minute
)

// postSomewhere posts to the i-th node and goes on to the next on failure.
func postSomewhere(ctx context.Context, c *harness.Cluster, token string, i int, p harness.Pin) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, giveUpAfter)
	defer cancel()
	var st harness.PinStatus
	var fatal error
	err := harness.Poll(ctx, retryEvery, func() (bool, error) {
		var err error
		st, err = c.Nodes[i%len(c.Nodes)].Pins(token).Post(ctx, p)
		i++
		if err != nil && !harness.Retryable(err) {
			fatal = err
			return true, nil
		}
		return err == nil, err
	})
	if fatal != nil {
		err = fatal
	}
	return st.RequestID, err
}

func waitAllPinned(t *testing.T, c *harness.Cluster, token string, kept map[string]harness.Offered) {
	t.Helper()
	harness.Eventually(t, lightWithin, "every acknowledged pin is pinned", func() (bool, error) {
		pins, err := c.Nodes[0].Pins(token).ListAll(t.Context(), url.Values{"status": {"pinned"}}, 1000)
		if err != nil {
			return false, err
		}
		left := len(kept)
		for _, p := range pins {
			if _, ok := kept[p.RequestID]; ok {
				left--
			}
		}
		failed, err := c.Nodes[0].Pins(token).List(t.Context(), url.Values{"status": {"failed"}, "limit": {"1"}})
		if err == nil && failed.Count > 0 {
			t.Fatalf("%d pins failed, one of them: %v", failed.Count, failed.Results[0].Info)
		}
		return left == 0, fmt.Errorf("%d are not; %w", left, err)
	})
}

// sameLists wants the same full list from every node, newest first, with every
// acknowledged pin in it once.
func sameLists(t *testing.T, c *harness.Cluster, token string, kept map[string]harness.Offered) []harness.PinStatus {
	t.Helper()
	var first []harness.PinStatus
	for i, n := range c.Nodes {
		// A post whose answer was lost may have created a pin that nobody
		// knows of. It is on the list too, and may still be fetched, so
		// only what is final is compared.
		list, err := n.Pins(token).ListAll(t.Context(), nil, 97)
		if err != nil {
			t.Fatalf("%s: %v", n.Name, err)
		}
		seen := map[string]int{}
		for j, p := range list {
			seen[p.RequestID]++
			if j > 0 && p.Created >= list[j-1].Created {
				t.Fatalf("%s: %s stands after %s", n.Name, p.Created, list[j-1].Created)
			}
		}
		for id := range kept {
			if seen[id] != 1 {
				t.Errorf("%s lists the acknowledged pin %s %d times", n.Name, id, seen[id])
			}
		}
		if i == 0 {
			first = list
		} else if !slices.EqualFunc(list, first, samePin) {
			t.Errorf("%s lists %d pins, %s %d, and they differ", n.Name, len(list), c.Nodes[0].Name, len(first))
		}
	}
	return first
}

// samePin compares what never changes in a pin that has been pinned.
func samePin(a, b harness.PinStatus) bool {
	return a.RequestID == b.RequestID && a.Created == b.Created && a.Pin.CID == b.Pin.CID && a.Pin.Name == b.Pin.Name
}

// readEverywhere reads every n-th kept file on each of the nodes.
func readEverywhere(t *testing.T, nodes []*harness.Node, kept map[string]harness.Offered, every int) {
	t.Helper()
	i := 0
	for _, f := range kept {
		if i++; i%every != 0 {
			continue
		}
		for _, n := range nodes {
			if !f.Matches(n.Get(f.CID)) {
				t.Errorf("%s gives other bytes for %s", n.Name, f.CID)
			}
		}
	}
}

// TestUnknownPeersFetchPinnedContent promises that any IPFS implementation fetches pinned content from each node.
func TestUnknownPeersFetchPinnedContent(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{})
	origin := harness.StartBoxo(t)
	s := newService(t, c, "open@example.org")
	f := origin.AddRandom(1, 2_500_000)[0]
	s.pinned(s.post(harness.Pin{CID: f.CID, Origins: origin.Addrs}).RequestID)
	origin.Close()
	for name, start := range foreignPeers() {
		for _, n := range c.Nodes {
			got, err := start(t).Fetch(f.CID, n.Status().Node.Addrs)
			if err != nil || got.SHA256 != f.SHA256 {
				t.Errorf("%s from %s: %+v: %v", name, n.Name, got, err)
			}
		}
	}
}
