//go:build conformance

package conformance

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// waitedOut is less than the 60 s of a wait that ends only with its time. A change ends it at once, and on a busy
// machine later.
const waitedOut = 55 * time.Second

// waitPin is GET /pins/{id}?wait=within.
func waitPin(t *testing.T, c *harness.PinsClient, id, within string) (st harness.PinStatus, took time.Duration, err error) {
	t.Helper()
	began := time.Now()
	r, err := c.Do(t.Context(), http.MethodGet, "/pins/"+id+"?"+url.Values{"wait": {within}}.Encode(), nil, nil)
	if err == nil && r.Status != http.StatusOK {
		err = errors.New(string(r.Body))
	}
	if err == nil {
		err = harness.DecodeStrict(r.Body, &st)
	}
	return st, time.Since(began), err
}

// TestProgressIsToldByEveryNode promises that every node tells the progress of a pin, whether it fetches or not, and
// ends a wait with the change (rows 14 to 16 and 63 to 65).
func TestProgressIsToldByEveryNode(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Replication: 1, Env: []string{"HOLDFAST_TRACKER_IDLE_TIMEOUT=10s", "HOLDFAST_TRACKER_ATTEMPTS=2"}})
	s := newService(t, c, "progress@example.org")
	t.Run("14 every node tells of attempts, in text", func(t *testing.T) {
		s := s.as(t)
		id := s.post(harness.Pin{CID: nowhere().String()}).RequestID
		for _, n := range c.Nodes {
			client := n.As(t).Pins(s.token)
			harness.Eventually(t, pinnedWithin, n.Name+" tells how far the fetch is", func() (bool, error) {
				st, err := client.Get(t.Context(), id)
				if err != nil {
					return false, err
				}
				for _, key := range []string{"attempts", "bytes_fetched", "blocks_fetched"} {
					if _, err := strconv.Atoi(st.Info[key]); err != nil {
						return false, errors.New(key + ": " + st.Info[key] + " of a pin that is " + st.Status)
					}
				}
				return strings.Contains(st.Info["status_details"], "so far"), errors.New(st.Info["status_details"])
			})
		}
		s.delete(id)
	})
	t.Run("a wait ends with the change, on every node", func(t *testing.T) {
		s := s.as(t)
		source := harness.StartBoxo(t)
		pin := harness.Pin{CID: source.AddRandom(1, 300_000)[0].CID, Origins: source.Addrs}
		id := s.post(pin).RequestID
		for _, n := range c.Nodes {
			client := n.As(t).Pins(s.token)
			for range 100 { // each answer is a change, and there are few
				st, took, err := waitPin(t, client, id, "60s")
				if err != nil || took >= waitedOut {
					t.Fatalf("%s: %s after %s: %v", n.Name, st.Status, took, err)
				}
				if st.Status == "pinned" {
					break
				}
			}
			st, took, err := waitPin(t, client, id, "60s")
			if err != nil || st.Status != "pinned" || took >= waitedOut {
				t.Errorf("%s: settled, and %s after %s: %v", n.Name, st.Status, took, err)
			}
			if st.Info["bytes_fetched"] != "" || st.Info["dag_size"] == "" {
				t.Errorf("16: pinned with %v", st.Info)
			}
		}
	})
	t.Run("a wait ends when the pin goes, and with its time", func(t *testing.T) {
		s := s.as(t)
		id := s.post(harness.Pin{CID: nowhere().String()}).RequestID
		client := s.next()
		gone := make(chan error, 1)
		go func() {
			for {
				r, err := client.Do(t.Context(), http.MethodGet, "/pins/"+id+"?wait=60s", nil, nil)
				if err == nil && r.Status == http.StatusOK {
					continue // it had another change
				}
				if err == nil && (r.Status != http.StatusNotFound || r.Reason() != "NOT_FOUND") {
					err = errors.New(string(r.Body))
				}
				gone <- err
				return
			}
		}()
		if _, took, err := waitPin(t, s.next(), id, "50ms"); err != nil || took >= waitedOut {
			t.Errorf("a short wait took %s: %v", took, err)
		}
		s.delete(id)
		if err := <-gone; err != nil {
			t.Error(err)
		}
	})
}
