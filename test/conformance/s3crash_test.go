//go:build conformance

package conformance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/xml"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// Sizes of the puts.
const (
	crashWriters     = 8
	crashPuts        = 1000 // acknowledged, multipart uploads included
	crashKills       = 6
	crashKillsLong   = 60
	crashMultiparts  = 5 // every which write is one
	crashLargest     = 1 << 20
	crashPartBytes   = 300_000
	crashDown        = 500 * time.Millisecond
	crashSettledSoon = 2 * time.Minute
)

// TestNodesDieUnderPuts promises that every acknowledged object is whole on every node after nodes were killed under
// puts, and that no block is left when all is deleted. It kills the node that receives, one that keeps a copy and the
// one that leads, at random moments of a thousand puts and completed uploads. Nothing is listed that cannot be read.
func TestNodesDieUnderPuts(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Env: []string{
		"HOLDFAST_S3_MIN_PART_SIZE=100KiB", "HOLDFAST_API_ACCOUNT_RATE=0", "HOLDFAST_API_ADDRESS_RATE=0",
	}})
	o := newObjects(t, c, "crash@example.org")
	c.Leader().CLI("user", "quota", "crash@example.org", "unlimited")
	s := &putLoad{objects: o, bucket: "/crash" + randomName(), sent: map[string][sha256.Size]byte{}, acked: map[string]bool{}}
	o.ok(http.StatusOK, http.MethodPut, s.bucket, nil)

	ctx, stop := context.WithCancel(t.Context())
	var writers errgroup.Group
	for w := range crashWriters {
		writers.Go(func() error { return s.write(ctx, w) })
	}
	kills := crashKills
	if *longFlag {
		kills = crashKillsLong
	}
	for i := range kills {
		s.awaitAcked(t, (i+1)*crashPuts/(kills+1))
		var victim *harness.Node
		if i%3 == 2 {
			victim = c.Leader()
		} else {
			victim = c.Followers()[i%2]
		}
		victim.Kill()
		harness.Pause(ctx, crashDown)
		victim.Restart()
		c.Settle()
	}
	s.awaitAcked(t, crashPuts)
	stop()
	if err := writers.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d sent, %d acknowledged, %d kills", len(s.sent), len(s.acked), kills)

	for _, n := range c.Nodes {
		s.wholeOn(t, n)
	}
	s.deleteAll(t)
	harness.Eventually(t, crashSettledSoon, "no node keeps a block of what was deleted", func() (bool, error) {
		var left []error // of all, for where it is tells why
		for _, n := range c.Nodes {
			st, err := n.StatusNow()
			if err != nil {
				return false, err
			}
			for _, p := range st.Peers {
				if p.UsedBytes != 0 {
					left = append(left, fmt.Errorf("%s says that %s keeps %d bytes", n.Name, p.ID, p.UsedBytes))
				}
			}
		}
		return len(left) == 0, errors.Join(left...)
	})
}

// putLoad is a load of puts through all nodes.
type putLoad struct {
	*objects
	bucket string
	next   atomic.Int64

	// mu guards the fields below.
	mu    sync.Mutex
	sent  map[string][sha256.Size]byte // by key; one key is sent once
	acked map[string]bool
}

func (s *putLoad) awaitAcked(t *testing.T, want int) {
	t.Helper()
	harness.Eventually(t, fireWithin, fmt.Sprintf("%d puts are acknowledged", want), func() (bool, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.acked) >= want, fmt.Errorf("%d are", len(s.acked))
	})
}

// write puts objects until ctx ends. It returns what no client should see.
func (s *putLoad) write(ctx context.Context, seed int) error {
	r := rand.New(rand.NewPCG(uint64(seed), 7))
	for ctx.Err() == nil {
		i := s.next.Add(1)
		key := fmt.Sprintf("k/%05d", i)
		data := make([]byte, 1+r.IntN(crashLargest)>>r.IntN(10))
		for j := range data {
			data[j] = byte(r.Uint32())
		}
		n := s.cluster.Nodes[r.IntN(len(s.cluster.Nodes))]
		multipart := i%crashMultiparts == 0
		if multipart {
			data = append(data, make([]byte, crashPartBytes)...)
		}
		s.mu.Lock()
		s.sent[key] = sha256.Sum256(data)
		s.mu.Unlock()
		var err error
		if multipart {
			err = s.upload(key, data, r)
		} else {
			err = s.expect(n, http.MethodPut, s.bucket+"/"+key, data, nil)
		}
		if err == nil {
			s.mu.Lock()
			s.acked[key] = true
			s.mu.Unlock()
			continue
		}
		var wrong *wrongAnswer
		if errors.As(err, &wrong) {
			return err
		}
		harness.Pause(ctx, fireRetry)
	}
	return nil
}

// wrongAnswer is one that a node must not give when another one dies.
type wrongAnswer struct{ error }

// expect sends one request, whose answer may be none, or 503.
func (s *putLoad) expect(n *harness.Node, method, path string, body []byte, into any) error {
	r, err := s.tryOn(n, method, path, body)
	switch {
	case err != nil:
		return err
	case r.Status == http.StatusServiceUnavailable:
		return errors.New("not now")
	case r.Status != http.StatusOK:
		return &wrongAnswer{fmt.Errorf("%s %s through %s: %d %s", method, path, n.Name, r.Status, r.Body)}
	case into == nil:
		return nil
	}
	if err := xml.Unmarshal(r.Body, into); err != nil {
		return &wrongAnswer{err}
	}
	return nil
}

// upload sends data in two parts, each step through another node.
func (s *putLoad) upload(key string, data []byte, r *rand.Rand) error {
	node := func() *harness.Node { return s.cluster.Nodes[r.IntN(len(s.cluster.Nodes))] }
	path := s.bucket + "/" + key
	var up initiated
	if err := s.expect(node(), http.MethodPost, path+"?uploads", nil, &up); err != nil {
		return err
	}
	path += "?uploadId=" + up.UploadId
	parts := [][]byte{data[:crashPartBytes], data[crashPartBytes:]}
	for i, part := range parts {
		if err := s.expect(node(), http.MethodPut, fmt.Sprintf("%s&partNumber=%d", path, i+1), part, nil); err != nil {
			return err
		}
	}
	return s.expect(node(), http.MethodPost, path, harness.CompletionOf(parts...), nil)
}

// keys lists the bucket through one node.
func (s *putLoad) keys(t *testing.T, n *harness.Node) (all []string) {
	t.Helper()
	for token := ""; ; {
		path := s.bucket + "?list-type=2&max-keys=300"
		if token != "" {
			path += "&continuation-token=" + escapeKey(token)
		}
		page := into[listResult](t, s.callOn(n, http.MethodGet, path, nil))
		all = append(all, page.keys()...)
		if !page.IsTruncated {
			return all
		}
		token = page.NextContinuationToken
	}
}

// wholeOn reads everything that one node lists.
func (s *putLoad) wholeOn(t *testing.T, n *harness.Node) {
	t.Helper()
	listed := map[string]bool{}
	for _, key := range s.keys(t, n) {
		listed[key] = true
		want, sent := s.sent[key]
		if !sent {
			t.Errorf("%s lists %s, which nobody sent", n.Name, key)
			continue
		}
		r := s.callOn(n, http.MethodGet, s.bucket+"/"+key, nil)
		if r.Status != http.StatusOK || sha256.Sum256(r.Body) != want {
			t.Errorf("%s answers %d and %d bytes for %s (acknowledged: %v)", n.Name, r.Status, len(r.Body), key, s.acked[key])
		}
	}
	for key := range s.acked {
		if !listed[key] {
			t.Errorf("%s was acknowledged, and %s does not list it", key, n.Name)
		}
	}
}

// deleteAll empties the bucket, of uploads too, and removes it.
func (s *putLoad) deleteAll(t *testing.T) {
	t.Helper()
	n := s.cluster.Leader()
	keys := s.keys(t, n)
	for len(keys) > 0 {
		page := keys[:min(1000, len(keys))]
		keys = keys[len(page):]
		var body bytes.Buffer
		body.WriteString("<Delete><Quiet>true</Quiet>")
		for _, k := range page {
			fmt.Fprintf(&body, "<Object><Key>%s</Key></Object>", k)
		}
		body.WriteString("</Delete>")
		s.ok(http.StatusOK, http.MethodPost, s.bucket+"?delete", body.Bytes())
	}
	s.ok(http.StatusNoContent, http.MethodDelete, s.bucket, nil)
}
