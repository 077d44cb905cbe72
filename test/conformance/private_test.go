//go:build conformance

package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"

	"github.com/holdfast-ipfs/holdfast/peer/dag"
	"github.com/holdfast-ipfs/holdfast/peer/peertest"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// patientFetch lets a fetch wait for a block long enough to look at it, also on a busy machine.
var patientFetch = []string{
	"HOLDFAST_TRACKER_IDLE_TIMEOUT=25s",
	"HOLDFAST_TRACKER_ATTEMPTS=1",
}

// TestUnknownPeersGetOnlyPinnedContent promises that a node serves a block to unknown peers while it is part of
// content that is pinned as a whole, and at no other time (A59, for pins).
func TestUnknownPeersGetOnlyPinnedContent(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Nodes: 1, Env: patientFetch})
	s := newService(t, c, "private@example.org")
	n := c.Nodes[0]
	peer := newUnknownPeer(t)

	t.Run("an import that no pin holds", func(t *testing.T) {
		root := importWithoutPin(t, n, []byte("not for everybody"))
		if peer.sees(t, n, root) {
			t.Error("an unknown peer gets what was imported and never pinned")
		}
		if got := n.As(t).Get(root.String()); string(got) != "not for everybody" {
			t.Errorf("the operator reads %q", got)
		}
	})

	foreign := peertest.NewForeign(t)
	root, held, lack := incomplete(t, foreign, 1)
	id := s.post(harness.Pin{CID: root.String(), Origins: foreign.Addrs()}).RequestID
	t.Run("a fetch under way", func(t *testing.T) {
		harness.Eventually(t, pinnedWithin, "all but one block has come", func() (bool, error) {
			return n.Metrics()["holdfast_blocks_stored"] >= float64(len(held)+1), nil
		})
		// That a fetch has begun is told when it lasts.
		if _, err := harness.WaitStatus(t.Context(), s.next(), id, "pinning", pinnedWithin); err != nil {
			t.Fatal(err)
		}
		for _, c := range append(held, root) {
			if peer.sees(t, n, c) {
				t.Errorf("an unknown peer gets %s of a fetch that is not complete", c)
			}
		}
		if st := s.as(t).get(id); st.Status != "pinning" {
			t.Fatalf("the pin is %s already", st.Status)
		}
	})
	if err := foreign.Offer(t.Context(), lack); err != nil {
		t.Fatal(err)
	}
	s.pinned(id)
	t.Run("a pin", func(t *testing.T) {
		for _, c := range append(held, root, lack.Cid()) {
			if !peer.sees(t, n, c) {
				t.Errorf("an unknown peer does not get %s, which is pinned", c)
			}
		}
	})
	s.delete(id)
	t.Run("after the pin", func(t *testing.T) {
		harness.Eventually(t, pinnedWithin, "the blocks are not served any more", func() (bool, error) {
			for _, c := range append(held, root, lack.Cid()) {
				if peer.given(t, n, c) {
					return false, fmt.Errorf("%s is served", c)
				}
			}
			return true, nil
		})
	})
	t.Run("a pin that fails", func(t *testing.T) {
		root, held, _ := incomplete(t, foreign, 2)
		id := s.as(t).post(harness.Pin{CID: root.String(), Origins: foreign.Addrs()}).RequestID
		if _, err := harness.WaitStatus(t.Context(), s.next(), id, "failed", pinnedWithin); err != nil {
			t.Fatal(err)
		}
		for _, c := range append(held, root) {
			if peer.sees(t, n, c) {
				t.Errorf("an unknown peer gets %s of a pin that failed", c)
			}
		}
	})
}

// incomplete returns a DAG of which the foreign peer lacks one block, and the blocks
// below the root that it has.
func incomplete(t *testing.T, f *peertest.Foreign, seed uint64) (root cid.Cid, held []cid.Cid, lack blocks.Block) {
	t.Helper()
	root, _, _, err := f.Store.AddTree(seed, cid.DagCBOR, 6, 1, 20_000)
	if err != nil {
		t.Fatal(err)
	}
	err = dag.Walk(t.Context(), f.Store, root, dag.Limits{}, func(b blocks.Block) error {
		if !b.Cid().Equals(root) {
			held, lack = append(held, b.Cid()), b
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Store.DeleteBlock(t.Context(), lack.Cid()); err != nil {
		t.Fatal(err)
	}
	return root, held[:len(held)-1], lack
}

// importWithoutPin gives a file to the operator's API, as `holdfast add` does,
// but does not pin it.
func importWithoutPin(t *testing.T, n *harness.Node, data []byte) cid.Cid {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(n.Dir, "holdfast.sock"))
	}}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, Timeout: 90 * time.Second}
	resp, err := client.Post("http://node/content", "application/octet-stream", bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var added struct {
		CID string `json:"cid"`
	}
	if err := json.Unmarshal(body, &added); err != nil {
		t.Fatalf("%v in %d %s", err, resp.StatusCode, body)
	}
	root, err := cid.Decode(added.CID)
	if err != nil {
		t.Fatalf("%v in %d %s", err, resp.StatusCode, body)
	}
	return root
}
