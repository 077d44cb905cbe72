//go:build conformance

package conformance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p"
	dht "github.com/libp2p/go-libp2p-kad-dht"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// findWithin bounds one question to the DHT.
const findWithin = 3 * time.Second

// newDHT returns a peer of the DHT of private networks that is no Holdfast node.
func newDHT(t *testing.T, mode dht.ModeOpt, boot ...peer.AddrInfo) *dht.IpfsDHT {
	t.Helper()
	h, err := libp2p.New(libp2p.ListenAddrStrings("/ip4/127.0.0.1/tcp/0"), libp2p.DisableMetrics())
	if err != nil {
		t.Fatal(err)
	}
	d, err := dht.New(h, dht.Mode(mode), dht.ProtocolExtension("/lan"), dht.BootstrapPeers(boot...))
	if err == nil {
		err = d.Bootstrap(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.Close()
		_ = h.Close()
	})
	return d
}

// bootDHT returns where such a network begins, and its address for --bootstrap.
func bootDHT(t *testing.T) (at peer.AddrInfo, address string) {
	t.Helper()
	h := newDHT(t, dht.ModeServer).Host()
	return peer.AddrInfo{ID: h.ID(), Addrs: h.Addrs()}, h.Addrs()[0].String() + "/p2p/" + h.ID().String()
}

// TestRootsAreFoundThroughTheDHT promises that a peer that knows nothing but a CID finds and fetches pinned content
// and objects of public buckets, and nothing private (acceptance row 195).
func TestRootsAreFoundThroughTheDHT(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	at, address := bootDHT(t)
	c := harness.Start(t, harness.Options{Args: []string{
		"--routing", "lan", "--bootstrap", address,
	}})
	s, o := newService(t, c, "pins@example.org"), newObjects(t, c, "objects@example.org")
	source := harness.StartBoxo(t)

	closed, open := "/closed"+randomName(), "/open"+randomName()
	o.ok(http.StatusOK, http.MethodPut, closed, nil)
	o.ok(http.StatusOK, http.MethodPut, open, nil, "x-amz-acl", "public-read")
	secret, shown := harness.RandomBytes(1<<20+1), harness.RandomBytes(2<<20+5)
	private, _ := dashed(t, o, closed+"/secret", secret)
	public, leaves := dashed(t, o, open+"/shown", shown)
	file := source.AddRandom(1, 700_000)[0]
	s.pinned(s.post(harness.Pin{CID: file.CID, Origins: source.Addrs}).RequestID)

	seeker := newDHT(t, dht.ModeClient, at)
	holders := func(root cid.Cid) (found []peer.AddrInfo, err error) {
		ctx, cancel := context.WithTimeout(t.Context(), findWithin)
		defer cancel()
		found, err = seeker.FindProviders(ctx, root)
		return slices.DeleteFunc(found, func(i peer.AddrInfo) bool {
			return !slices.ContainsFunc(c.Nodes, func(n *harness.Node) bool { return publicOf(t, n).ID == i.ID })
		}), err
	}
	found := func(root cid.Cid) (all []peer.AddrInfo) {
		harness.Eventually(t, pinnedWithin, "all nodes that hold "+root.String()+" are found", func() (bool, error) {
			var err error
			all, err = holders(root)
			return err == nil && len(all) == len(c.Nodes), errors.Join(fmt.Errorf("%d are found", len(all)), err)
		})
		return all
	}
	foreign := harness.StartBoxo(t)
	fetched := func(root cid.Cid, right func(harness.Offered) bool) {
		var from []string
		for _, i := range found(root) {
			for _, a := range i.Addrs {
				from = append(from, a.String()+"/p2p/"+i.ID.String())
			}
		}
		if got, err := foreign.Fetch(root.String(), from); err != nil || !right(got) {
			t.Errorf("fetched from %s: %+v, %v", from, got, err)
		}
	}
	pinned, err := cid.Decode(file.CID)
	if err != nil {
		t.Fatal(err)
	}
	source.Close() // nobody else has it
	fetched(pinned, func(got harness.Offered) bool { return got.SHA256 == file.SHA256 })
	fetched(public, func(got harness.Offered) bool { return got.Matches(shown) })
	for _, k := range []cid.Cid{leaves[0], private} { // roots alone are announced, and not this one
		if all, err := holders(k); err != nil || len(all) > 0 {
			t.Errorf("%d nodes announce %s, %v", len(all), k, err)
		}
	}
	o.setPublic(closed, true)
	fetched(private, func(got harness.Offered) bool { return got.Matches(secret) })
}

// dashed puts an object of several blocks and returns its root and its leaves.
func dashed(t *testing.T, o *objects, path string, data []byte) (root cid.Cid, leaves []cid.Cid) {
	t.Helper()
	root, all := dagOf(t, data)
	if put := o.callOn(o.cluster.Nodes[0], http.MethodPut, path, data); put.Status != http.StatusOK || put.Header.Get("X-Holdfast-Cid") != root.String() {
		t.Fatalf("%d %s, root %s", put.Status, put.Body, root)
	}
	return root, slices.DeleteFunc(all, root.Equals)
}

// TestRootsThatWaitAreAnnouncedByTheNextStart promises that a node that ends before it has reached the DHT announces
// at its next start what it had to announce.
func TestRootsThatWaitAreAnnouncedByTheNextStart(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Nodes: 1, Args: []string{"--routing", "lan"}})
	s, n := newService(t, c, "pins@example.org"), c.Nodes[0]
	source := harness.StartBoxo(t)
	file := source.AddRandom(1, 1_000)[0]
	s.pinned(s.post(harness.Pin{CID: file.CID, Origins: source.Addrs}).RequestID)
	root, err := cid.Decode(file.CID)
	if err != nil {
		t.Fatal(err)
	}
	waiting := func() string {
		n.Stop()
		b, err := os.ReadFile(filepath.Join(n.Dir, "waiting"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return string(b)
	}
	again := func() {
		n.Restart()
		if err := n.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if got := waiting(); got != string(root.Hash()) {
			t.Errorf("a node that reached nobody keeps %q, want the multihash of %s", got, root)
		}
		again()
	}
	n.Stop()
	at, address := bootDHT(t)
	n.AddArgs("--bootstrap", address)
	again()
	seeker := newDHT(t, dht.ModeClient, at)
	harness.Eventually(t, pinnedWithin, "the node is found", func() (bool, error) {
		ctx, cancel := context.WithTimeout(t.Context(), findWithin)
		defer cancel()
		found, err := seeker.FindProviders(ctx, root)
		return len(found) > 0, err
	})
	harness.Eventually(t, pinnedWithin, "nothing is left to announce", func() (bool, error) {
		if waiting() == "" {
			return true, nil
		}
		again() // it was stopped in the middle
		return false, errors.New("it waits still")
	})
}
