//go:build conformance

package conformance

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// notForPeople matches what a program says to a programmer.
var notForPeople = regexp.MustCompile(`context (deadline|canceled)|goroutine|%!|0x[0-9a-f]{6}|<nil>|panic`)

// freedSlack is how much a node may use more after a failure than before it:
// bookkeeping, not content.
const freedSlack = 1 << 20

// usedBytes returns what every node says that it stores, by node id.
func usedBytes(t *testing.T, c *harness.Cluster) map[string]int64 {
	t.Helper()
	used := map[string]int64{}
	for _, n := range c.Nodes {
		s := n.Status()
		if self, ok := s.Member(s.Node.ID); ok {
			used[self.ID] = self.UsedBytes
		}
	}
	return used
}

// freed waits until no node stores more than it did before.
func freed(t *testing.T, c *harness.Cluster, before map[string]int64, within time.Duration, what string) {
	t.Helper()
	harness.Eventually(t, within, what, func() (bool, error) {
		for id, now := range usedBytes(t, c) {
			if now > before[id]+freedSlack {
				return false, fmt.Errorf("%s stores %d bytes, %d before", id, now, before[id])
			}
		}
		return true, nil
	})
}

// TestContentThatCannotBeFetched promises that a pin whose content does not come fails in bounded time, with a reason
// for people, and leaves nothing behind. Only the account that named an origin is told about it.
func TestContentThatCannotBeFetched(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Env: someFetch})
	s := newService(t, c, "failures@example.org")
	const size, chunk = 24 << 20, 256 << 10
	silent := silentListener(t)
	for _, tc := range []struct {
		name  string
		offer func(t *testing.T) harness.Pin
	}{
		{"nobody has it", func(*testing.T) harness.Pin {
			return harness.Pin{CID: nowhere().String()}
		}},
		{"the provider vanishes half way", func(t *testing.T) harness.Pin {
			p := harness.StartBoxo(t, "-vanish-after", "40")
			return harness.Pin{CID: p.AddRandomChunked(1, size, chunk)[0].CID, Origins: p.Addrs}
		}},
		{"the origin never answers for a block", func(t *testing.T) harness.Pin {
			p := harness.StartBoxo(t, "-hang")
			return harness.Pin{CID: p.AddRandom(1, size)[0].CID, Origins: p.Addrs}
		}},
		{"the origin accepts connections and says nothing", func(*testing.T) harness.Pin {
			return harness.Pin{CID: nowhere().String(), Origins: []string{silent}}
		}},
		{"the origin is not there", func(t *testing.T) harness.Pin {
			p := harness.StartBoxo(t)
			addrs := p.Addrs
			p.Close()
			return harness.Pin{CID: nowhere().String(), Origins: addrs}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s.as(t)
			before := usedBytes(t, c)
			id := s.post(tc.offer(t)).RequestID
			st, err := harness.WaitStatus(t.Context(), s.next(), id, "failed", 3*time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			details := st.Info["status_details"]
			t.Logf("status_details: %s", details)
			if len(details) < 20 || notForPeople.MatchString(details) {
				t.Errorf("%q is no reason that a person understands", details)
			}
			freed(t, c, before, pinnedWithin, "the partial blocks are freed")
			// 65: a failed pin may be tried again by a replacement.
			source := harness.StartBoxo(t)
			f := source.AddRandom(1, 100_000)[0]
			s.pinned(s.replace(id, harness.Pin{CID: f.CID, Origins: source.Addrs}).RequestID)
		})
	}
	t.Run("what is said of an origin is for who named it", func(t *testing.T) {
		s, other := s.as(t), newService(t, c, "stranger@example.org")
		pin := harness.Pin{CID: nowhere().String(), Origins: []string{silent}}
		mine := s.post(pin).RequestID
		pin.Origins = nil
		others := other.post(pin).RequestID
		for _, of := range []struct {
			service *service
			id      string
			named   bool
		}{{s, mine, true}, {other, others, false}} {
			st, err := harness.WaitStatus(t.Context(), of.service.next(), of.id, "failed", 3*time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if details := st.Info["status_details"]; strings.Contains(details, silent) != of.named {
				t.Errorf("who named the origin is %v and is told %q", of.named, details)
			}
		}
	})
}

// silentListener returns the multiaddr of a TCP port that takes connections and
// never says a word.
func silentListener(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var open []net.Conn
		for {
			conn, err := ln.Accept()
			if err != nil {
				break
			}
			open = append(open, conn)
		}
		for _, conn := range open {
			conn.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-ended })
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return "/ip4/127.0.0.1/tcp/" + port + "/p2p/12D3KooWNrbHpKYDmTUXFRQBnnvJ7aMLUCGNCAio2P3AW2N3LNB9"
}

// TestDeletingFreesTheContent promises that every node frees the blocks of content when its last pin ends.
func TestDeletingFreesTheContent(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{})
	s := newService(t, c, "free@example.org")
	source := harness.StartBoxo(t)
	before := usedBytes(t, c)
	f := source.AddRandom(1, 20<<20)[0]
	id := s.pinned(s.post(harness.Pin{CID: f.CID, Origins: source.Addrs}).RequestID).RequestID
	harness.Eventually(t, pinnedWithin, "every node tells what it holds", func() (bool, error) {
		for id, now := range usedBytes(t, c) {
			if now < before[id]+int64(f.Size) {
				return false, fmt.Errorf("%s uses %d bytes, before %d", id, now, before[id])
			}
		}
		return true, nil
	})
	s.delete(id)
	freed(t, c, before, pinnedWithin, "every node has freed it")
}

// refuseWithin is how long a node without a majority may think before it
// refuses.
const refuseWithin = 10 * time.Second

// TestWithoutAMajorityNothingIsAnswered promises that a node without a majority refuses reads and writes, believes no
// revoked or unknown key, and works again when the others are back (acceptance row 266). It kills two of three nodes.
func TestWithoutAMajorityNothingIsAnswered(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Env: shortFetch})
	s := newService(t, c, "minority@example.org")
	id := s.post(harness.Pin{CID: nowhere().String()}).RequestID
	// What is refused with 503 may be done when a majority is back: these two
	// are not looked at again.
	deleted, replaced := s.post(harness.Pin{CID: nowhere().String()}).RequestID, s.post(harness.Pin{CID: nowhere().String()}).RequestID
	last := c.Nodes[0]
	revoked := last.Key("minority@example.org")
	if _, err := last.Pins(revoked.Token).Get(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	c.Nodes[1].CLI("key", "revoke", revoked.ID)
	c.Nodes[1].Kill()
	c.Nodes[2].Kill()
	client := last.Pins(s.token)
	var asking sync.WaitGroup // all at once: each waits for a majority
	refused := func(what string, call func() error) {
		asking.Go(func() {
			start := time.Now()
			err := call()
			var api *harness.APIError
			if !errors.As(err, &api) || api.Status != http.StatusServiceUnavailable || api.RetryAfter <= 0 || api.Reason != "SERVICE_UNAVAILABLE" {
				t.Errorf("102: %s: %v (%+v)", what, err, api)
			}
			if took := time.Since(start); took > refusedSoon {
				t.Errorf("%s was refused after %s", what, took)
			}
		})
	}
	refused("a write", func() error { _, err := client.Post(t.Context(), harness.Pin{CID: nowhere().String()}); return err })
	refused("a read", func() error { _, err := client.Get(t.Context(), id); return err })
	refused("a list", func() error { _, err := client.List(t.Context(), nil); return err })
	refused("a delete", func() error { return client.Delete(t.Context(), deleted) })
	refused("a replacement", func() error {
		_, err := client.Replace(t.Context(), replaced, harness.Pin{CID: nowhere().String()})
		return err
	})
	for name, token := range map[string]string{"a revoked key": revoked.Token, "a key that never was": "x" + s.token} {
		asking.Go(func() {
			r, err := last.Pins(token).Do(t.Context(), http.MethodGet, "/pins/"+id, nil, nil)
			if err != nil || r.Status != http.StatusUnauthorized && r.Status != http.StatusServiceUnavailable {
				t.Errorf("266: %s without a majority: %d %.300s: %v", name, r.Status, r.Body, err)
			}
		})
	}
	asking.Wait()
	harness.Eventually(t, time.Minute, "/readyz says 503", func() (bool, error) {
		resp, err := http.Get(last.URL() + "/readyz")
		if err != nil {
			return false, err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode == http.StatusServiceUnavailable, errors.Join(err, resp.Body.Close())
	})
	c.Nodes[1].Restart()
	c.Nodes[2].Restart()
	c.Settle()
	if st := s.get(id); st.RequestID != id {
		t.Errorf("%+v", st)
	}
	if r, err := last.Pins(revoked.Token).Do(t.Context(), http.MethodGet, "/pins/"+id, nil, nil); err != nil || r.Status != http.StatusUnauthorized {
		t.Errorf("266: a revoked key, later: %d %.300s: %v", r.Status, r.Body, err)
	}
}
