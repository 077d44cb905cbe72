//go:build conformance

package conformance

import (
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// jsDir has the JavaScript clients, the packages that they need, and the specification that the
// public suite reads.
const jsDir = "testdata/js"

// foreignPeers start the IPFS implementations of others: Boxo and Helia, and Kubo in the long
// form.
func foreignPeers() map[string]func(*testing.T) harness.Foreign {
	peers := map[string]func(*testing.T) harness.Foreign{
		"boxo":  func(t *testing.T) harness.Foreign { return harness.StartBoxo(t) },
		"helia": func(t *testing.T) harness.Foreign { return harness.StartHelia(t, jsDir) },
	}
	if *longFlag {
		peers["kubo"] = func(t *testing.T) harness.Foreign { return harness.StartKubo(t) }
	}
	return peers
}

// longFlag asks for all tests in their full length.
var longFlag = flag.Bool("long", false, "all tests, in their full length")

// longForm leaves a test to `make conformance-long`: of loads, kills and waiting, whose promise a
// cheaper test holds too, and of foreign programs that take long to build or to start.
func longForm(t *testing.T) {
	t.Helper()
	if !*longFlag {
		t.Skip("in the long form: make conformance-long")
	}
}

// shortFetch makes fetches of content that nobody has fail in seconds.
var shortFetch = []string{
	"HOLDFAST_TRACKER_IDLE_TIMEOUT=4s",
	"HOLDFAST_TRACKER_ATTEMPTS=1",
}

// someFetch is shortFetch where other content has to come in the only attempt, also on a busy machine.
var someFetch = []string{
	"HOLDFAST_TRACKER_IDLE_TIMEOUT=10s",
	"HOLDFAST_TRACKER_ATTEMPTS=1",
}

// pinnedWithin bounds how long small content may take to be pinned.
const pinnedWithin = 2 * time.Minute

// service is one account's view of a cluster: every call goes to the next
// node, so what follows a write is read on another node than it was written.
type service struct {
	t       *testing.T
	cluster *harness.Cluster
	token   string
	turn    *atomic.Int64
}

func newService(t *testing.T, c *harness.Cluster, email string) *service {
	t.Helper()
	return &service{t: t, cluster: c, token: c.Nodes[0].UserKey(email).Token, turn: &atomic.Int64{}}
}

// as returns the same service in a subtest.
func (s *service) as(t *testing.T) *service {
	return &service{t: t, cluster: s.cluster.As(t), token: s.token, turn: s.turn}
}

// next returns a client of the next running node.
func (s *service) next() *harness.PinsClient {
	live := s.cluster.Live()
	return live[int(s.turn.Add(1))%len(live)].Pins(s.token)
}

func (s *service) post(p harness.Pin) harness.PinStatus {
	s.t.Helper()
	st, err := s.next().Post(s.t.Context(), p)
	if err != nil {
		s.t.Fatalf("post %+v: %v", p, err)
	}
	return st
}

func (s *service) get(id string) harness.PinStatus {
	s.t.Helper()
	st, err := s.next().Get(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

func (s *service) replace(id string, p harness.Pin) harness.PinStatus {
	s.t.Helper()
	st, err := s.next().Replace(s.t.Context(), id, p)
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

func (s *service) delete(id string) {
	s.t.Helper()
	if err := s.next().Delete(s.t.Context(), id); err != nil {
		s.t.Fatal(err)
	}
}

// list returns one page; pairs are names and values of the query.
func (s *service) list(pairs ...string) harness.PinResults {
	s.t.Helper()
	q := query(pairs...)
	r, err := s.next().List(s.t.Context(), q)
	if err != nil {
		s.t.Fatalf("list %s: %v", q.Encode(), err)
	}
	return r
}

// all returns every pin of the account, newest first.
func (s *service) all() []harness.PinStatus {
	s.t.Helper()
	pins, err := s.next().ListAll(s.t.Context(), nil, 1000)
	if err != nil {
		s.t.Fatal(err)
	}
	return pins
}

// raw sends a body as it is.
func (s *service) raw(method, path, body string) harness.Response {
	s.t.Helper()
	r, err := s.next().Do(s.t.Context(), method, path, nil, []byte(body))
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// pinned waits until the pin is pinned.
func (s *service) pinned(id string) harness.PinStatus {
	s.t.Helper()
	st, err := harness.WaitPinned(s.t.Context(), s.next(), id, pinnedWithin)
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

func query(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Add(pairs[i], pairs[i+1])
	}
	return q
}

// nowhere returns a CID of random bytes that no peer has.
func nowhere() cid.Cid {
	data := make([]byte, 32)
	_, _ = rand.Read(data) // never fails
	hash, err := multihash.Sum(data, multihash.SHA2_256, -1)
	if err != nil {
		panic(fmt.Sprintf("sha2-256: %v", err)) // cannot happen
	}
	return cid.NewCidV1(cid.Raw, hash)
}

// object decodes a JSON object into its members.
func object(t *testing.T, data []byte) map[string]json.RawMessage {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return m
}

// ids returns the request ids of pins, in their order.
func ids(pins []harness.PinStatus) []string {
	out := make([]string, len(pins))
	for i, p := range pins {
		out[i] = p.RequestID
	}
	return out
}
