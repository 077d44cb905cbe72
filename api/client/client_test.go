package client

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// The client stores, reads, lists and removes objects with any valid key, with a token and with a key pair.
func TestObjectsAreStoredReadListedAndRemoved(t *testing.T) {
	for _, credentials := range []string{"token", "key pair"} {
		t.Run(credentials, func(t *testing.T) {
			c := newCluster(t, 2)
			client := c.client(func(o *Options) {
				if credentials == "key pair" {
					o.Token, o.AccessKey, o.SecretKey = "", "key", "secret"
				}
			})
			keys := []string{"a", "a b+c%20", "dir/../x", "dir//y", "nul-free \x01\x7f", "~!'()*", "é/ü"}
			for _, key := range keys {
				o, err := client.Upload(t.Context(), "bucket", key, strings.NewReader("bytes of "+key), UploadOptions{
					ContentType: "text/plain", Metadata: map[string]string{"colour": "blue"},
				})
				if err != nil || o.BLAKE3 == "" || o.Size != int64(len("bytes of "+key)) {
					t.Fatalf("%q: %+v, %v", key, o, err)
				}
				head, err := client.Head(t.Context(), "bucket", key)
				if err != nil || head.ContentType != "text/plain" || head.Metadata["colour"] != "blue" || head.Size != o.Size || head.ETag != o.ETag {
					t.Errorf("%q: %+v, %v", key, head, err)
				}
				for _, verify := range []bool{false, true} {
					var b bytes.Buffer
					if _, err := client.Download(t.Context(), "bucket", key, &b, DownloadOptions{Verify: verify}); err != nil || b.String() != "bytes of "+key {
						t.Errorf("%q, verify %t: %q, %v", key, verify, b.String(), err)
					}
				}
			}
			var listed []string
			for o, err := range client.List(t.Context(), "bucket", ListOptions{Recursive: true}) {
				if err != nil {
					t.Fatal(err)
				}
				listed = append(listed, o.Key)
			}
			if !slices.Equal(listed, keys) {
				t.Errorf("listed %q", listed)
			}
			for _, key := range keys {
				if err := client.Remove(t.Context(), "bucket", key); err != nil {
					t.Error(err)
				}
			}
			if _, err := client.Head(t.Context(), "bucket", "a"); !errors.Is(err, ErrNotFound) {
				t.Errorf("removed: %v", err)
			}
		})
	}
}

// New refuses options without a usable endpoint or with contradicting credentials, with ErrOptions.
func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	const good = "https://node:9000"
	for _, o := range []Options{
		{},
		{Endpoints: []string{""}},
		{Endpoints: []string{"ftp://node"}},
		{Endpoints: []string{good + "/path"}},
		{Endpoints: []string{"https://u:p@node"}},
		{Endpoints: []string{good}, AccessKey: "a"},
		{Endpoints: []string{good}, AccessKey: "a", SecretKey: "b", Token: "t"},
	} {
		if _, err := New(o); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestAListContinuesOnAnotherNode promises that a list has each key once although requests for pages fail in
// between.
func TestAListContinuesOnAnotherNode(t *testing.T) {
	c := newCluster(t, 2)
	var want []string
	for i := range 20 {
		key := fmt.Sprintf("key%02d", i)
		c.store("bucket/"+key, []byte("x"))
		want = append(want, key)
	}
	for _, n := range c.nodes {
		n.breaks(func(w http.ResponseWriter, r *http.Request) bool { // every second page fails
			if r.URL.Query().Get("continuation-token") == "" || c.number("continuation-token")%2 == 0 {
				return false
			}
			refuse(w, http.StatusInternalServerError, "InternalError")
			return true
		})
	}
	var got []string
	for o, err := range c.client().List(t.Context(), "bucket", ListOptions{Prefix: "key", Recursive: true}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, o.Key)
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %q", got)
	}
}

// TestANodeThatIsDownIsPassedOver promises that no request fails when one node is dead, that
// few are tried there, and that it is used again when it is back.
func TestANodeThatIsDownIsPassedOver(t *testing.T) {
	c := newCluster(t, 3)
	client := c.client()
	cut := func(w http.ResponseWriter, _ *http.Request) bool {
		panic(http.ErrAbortHandler)
	}
	c.nodes[1].breaks(cut)
	const count = 60
	for i := range count {
		if _, err := client.Upload(t.Context(), "bucket", fmt.Sprint(i), strings.NewReader("x"), UploadOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if tried := c.number("PUT 1 "); tried == 0 || tried > count/3 {
		t.Errorf("the dead node got %d of %d requests", tried, count)
	}
	c.nodes[1].breaks(nil)
	for c.nodes[1].successes() == 0 {
		if _, err := client.Head(t.Context(), "bucket", "0"); err != nil {
			t.Fatal(err)
		}
	}
}

// successes returns the number of HEAD requests that reached the node.
func (n *fakeNode) successes() int { return n.c.number(fmt.Sprintf("HEAD %d ", n.number)) }

// TestPausesOfNodes promises that requests alternate between nodes, that a node pauses as long as Retry-After
// asks for, within bounds, and that a node that failed gets one request after its pause.
func TestPausesOfNodes(t *testing.T) {
	a, b := &node{endpoint: "a"}, &node{endpoint: "b"}
	s := &nodes{list: []*node{a, b}}
	now := time.Unix(1000, 0)
	picks := func(want *node, wait time.Duration) {
		t.Helper()
		if n, d := s.pick(now); n != want || d != wait {
			t.Errorf("picked %s after %s, want %s after %s", n.endpoint, d, want.endpoint, wait)
		}
	}
	picks(a, 0)
	picks(b, 0)
	picks(a, 0)
	s.failed(b, now, 3*time.Second)
	picks(a, 0)
	picks(a, 0)
	s.failed(a, now, 5*time.Second)
	picks(b, 3*time.Second)
	now = now.Add(3 * time.Second)
	picks(b, 0)
	s.failed(b, now, time.Hour) // cut to a minute
	picks(a, 2*time.Second)
	now = now.Add(2 * time.Minute)
	s.failed(a, now, 0)
	s.failed(a, now, 0)
	if pause := a.paused.Sub(now); pause < firstPause || pause > 2*firstPause {
		t.Errorf("a pause of %s after two failures", pause)
	}
	now = now.Add(time.Minute)
	picks(a, 0) // finds out whether it is back
	picks(b, 0)
	picks(b, 0)
	s.worked(a)
	picks(a, 0)
	for range 100 {
		s.failed(a, now, 0)
	}
	if pause := a.paused.Sub(now); pause > longestPause {
		t.Errorf("a pause of %s", pause)
	}
}

// TestRefusalsAreNotRepeated promises that the client sends one request if the answer is one that every node
// would give.
func TestRefusalsAreNotRepeated(t *testing.T) {
	c := newCluster(t, 3)
	client := c.client(func(o *Options) { o.Token = "wrong" })
	_, err := client.Head(t.Context(), "bucket", "key")
	var refused *Error
	if !errors.Is(err, ErrDenied) || !errors.As(err, &refused) || refused.Status != http.StatusForbidden || c.number("HEAD") != 1 {
		t.Errorf("%v after %d requests", err, c.number("HEAD"))
	}
	if _, err := client.Upload(t.Context(), "bucket", "key", strings.NewReader("x"), UploadOptions{}); !errors.As(err, &refused) || refused.Code != "AccessDenied" {
		t.Errorf("%v", err)
	}
	for _, word := range []string{"put s3://bucket/key", "AccessDenied", "as the test wants", "http://127.0.0.1"} {
		if !strings.Contains(refused.Error(), word) {
			t.Errorf("%q does not say %q", refused, word)
		}
	}
}
