package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
)

func startPeer(t *testing.T, o peerOptions) *foreignPeer {
	t.Helper()
	o.Listen = []string{"/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"}
	p, err := openPeer(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// A foreign peer fetches a file from another one over each of its addresses.
func TestAPeerFetchesWhatAnotherOffers(t *testing.T) {
	giver, taker := startPeer(t, peerOptions{}), startPeer(t, peerOptions{})
	data := randomBytes(3<<20 + 7)
	root, err := giver.AddFile(t.Context(), bytes.NewReader(data), 64<<10)
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range giver.Addrs() {
		got, err := taker.Fetch(t.Context(), root, []string{addr})
		if err != nil {
			t.Fatalf("over %s: %v", addr, err)
		}
		if !bytes.Equal(got.File, data) {
			t.Fatalf("over %s: %d bytes that are not the %d of the file", addr, len(got.File), len(data))
		}
	}
}

// A foreign peer fetches all blocks of a DAG of every codec.
func TestDAGsOfEveryCodecAreFetchedWhole(t *testing.T) {
	giver, taker := startPeer(t, peerOptions{}), startPeer(t, peerOptions{})
	for codec, code := range codecNames {
		root, count, err := giver.AddDAG(t.Context(), codec, 3, 2)
		if err != nil {
			t.Fatalf("%s: %v", codec, err)
		}
		if root.Type() != code || count != 9+3+1 {
			t.Errorf("%s: codec 0x%x and %d blocks, want 0x%x and 13", codec, root.Type(), count, code)
		}
		got, err := taker.Fetch(t.Context(), root, giver.Addrs())
		if err != nil || got.Blocks != count {
			t.Errorf("%s: fetched %d of %d blocks: %v", codec, got.Blocks, count, err)
		}
	}
}

// cutShort fetches until a short deadline and wants the fetch to fail.
func cutShort(t *testing.T, from *foreignPeer, root cid.Cid, within time.Duration) fetched {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	got, err := startPeer(t, peerOptions{}).Fetch(ctx, root, from.Addrs())
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the fetch ended with %v, want the deadline", err)
	}
	return got
}

// A foreign peer that hangs is reached, and gives no block.
func TestAHangingPeerIsReachedButGivesNothing(t *testing.T) {
	p := startPeer(t, peerOptions{Hang: true})
	root, err := p.AddFile(t.Context(), strings.NewReader("never given"), 1024)
	if err != nil {
		t.Fatal(err)
	}
	if got := cutShort(t, p, root, 2*time.Second); got.Blocks != 0 {
		t.Errorf("%d blocks came", got.Blocks)
	}
}

// A foreign peer that vanishes gives at least one block, and no more than its share.
func TestAVanishingPeerGivesItsShareAndNoMore(t *testing.T) {
	const share = 5
	came := 0
	for within := 2 * time.Second; came == 0 && within <= time.Minute; within *= 2 { // a busy machine needs longer
		p := startPeer(t, peerOptions{VanishAfter: share})
		root, err := p.AddFile(t.Context(), bytes.NewReader(randomBytes(20*1024)), 1024)
		if err != nil {
			t.Fatal(err)
		}
		came = cutShort(t, p, root, within).Blocks
	}
	if came == 0 || came > share {
		t.Errorf("%d blocks came, want 1 to %d", came, share)
	}
}

// The control interface of a foreign peer refuses bad requests with 422, and makes files of random content.
func TestControlRefusesWhatItCannotDo(t *testing.T) {
	p := startPeer(t, peerOptions{})
	srv := httptest.NewServer(newControl(p))
	defer srv.Close()
	for path, body := range map[string]string{
		"/add?size=-1":                        "",
		"/add?size=1&count=many":              "",
		"/dag?codec=dag-xml":                  "",
		"/dag?codec=dag-pb&width=999&depth=9": "",
		"/fetch":                              "{",
	} {
		resp, err := http.Post(srv.URL+path, "", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	resp, err := http.Post(srv.URL+"/add?size=1000&count=3", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var files []file
	if err := json.NewDecoder(resp.Body).Decode(&files); err != nil || len(files) != 3 || files[0].CID == files[1].CID {
		t.Errorf("three random files: %+v %v", files, err)
	}
}
