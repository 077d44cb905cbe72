//go:build conformance

package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// quotaRaces is how often writers race for what is left of an allowance.
const (
	quotaRaces     = 40
	quotaRacesLong = 1000
	quotaWriters   = 8
	// chargedWithin is how long a failed pin may be charged: 10 s (P6), and what a busy machine needs.
	chargedWithin = time.Minute
)

// Accounts of TestQuota.
const rich, poor = "rich@example.org", "poor@example.org"

// userRow is what `user ls --json` says of an account.
type userRow struct {
	Email          string  `json:"email"`
	AllowanceBytes *uint64 `json:"allowance_bytes"`
	StoredBytes    uint64  `json:"stored_bytes"`
	ComingBytes    uint64  `json:"coming_bytes"`
	Credits        uint64  `json:"credits"`
}

func user(t *testing.T, n *harness.Node, email string) userRow {
	t.Helper()
	var rows []userRow
	if err := json.Unmarshal([]byte(n.CLI("user", "ls", "--json")), &rows); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Email == email {
			return r
		}
	}
	t.Fatalf("%s is not among %+v", email, rows)
	return userRow{}
}

func allow(n *harness.Node, email string, bytes uint64) {
	n.CLI("user", "quota", email, strconv.FormatUint(bytes, 10))
}

// refusedForFunds tells whether a request met 409 INSUFFICIENT_FUNDS.
func refusedForFunds(err error) bool {
	var refused *harness.APIError
	return errors.As(err, &refused) && refused.Status == http.StatusConflict && refused.Reason == "INSUFFICIENT_FUNDS"
}

// TestQuota promises that what an account has pinned and keeps as objects never exceeds its allowance, whichever
// nodes it asks (rows 103 to 106, 29 and 56, A52, A54, P6).
func TestQuota(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{})
	payer, s := newService(t, c, rich), newService(t, c, poor)
	at := c.Nodes[1]
	if got := user(t, at, poor).AllowanceBytes; got == nil || *got != 524_288_000 {
		t.Fatalf("a new account may store %v", got)
	}
	at.CLI("user", "quota", rich, "unlimited")
	source := harness.StartBoxo(t)
	var known []string
	for _, f := range source.AddRandom(quotaWriters+1, 300_000) {
		payer.pinned(payer.post(harness.Pin{CID: f.CID, Origins: source.Addrs}).RequestID)
		known = append(known, f.CID)
	}
	each := user(t, at, rich).StoredBytes / uint64(len(known))
	if each < 300_000 {
		t.Fatalf("%d bytes are charged for 300,000", each)
	}

	harness.Eventually(t, pinnedWithin, "all copies are made, and counted", func() (bool, error) {
		used := usedBytes(t, c)
		for _, bytes := range used {
			if bytes < int64(each)*int64(len(known)) {
				return false, fmt.Errorf("%v", used)
			}
		}
		return true, nil
	})

	q := &quotas{cluster: c, at: at, source: source, poor: s, known: known, each: each}
	t.Run("known content", q.knownContent)
	t.Run("unknown content", q.unknownContent)
	t.Run("races", q.races)
	t.Run("records", q.records)
	t.Run("objects", q.objects)
	t.Run("accounts", q.accounts)
}

// quotas is what the parts of TestQuota share.
type quotas struct {
	cluster *harness.Cluster
	at      *harness.Node
	source  *harness.Boxo
	poor    *service // whose allowance is changed
	known   []string // pinned by another account
	each    uint64   // bytes of one of them
}

// knownContent: what is pinned by another account already is judged at once.
func (q *quotas) knownContent(t *testing.T) {
	at, known, each := q.at.As(t), q.known, q.each
	s := q.poor.as(t)
	allow(at, poor, each+each/2)
	first := s.post(harness.Pin{CID: known[0]})
	again := s.post(harness.Pin{CID: known[0]}) // is charged once
	if _, err := s.next().Post(t.Context(), harness.Pin{CID: known[1]}); !refusedForFunds(err) {
		t.Errorf("more than the allowance: %v", err)
	}
	if _, err := s.next().Replace(t.Context(), again.RequestID, harness.Pin{CID: known[1]}); !refusedForFunds(err) {
		t.Errorf("in the place of a pin that frees nothing: %v", err)
	}
	s.get(again.RequestID) // is there still
	s.delete(first.RequestID)
	replaced := s.replace(again.RequestID, harness.Pin{CID: known[1]})
	s.pinned(replaced.RequestID)
	if got := user(t, at, poor).StoredBytes; got != each {
		t.Errorf("after a replacement %d bytes are charged, not %d", got, each)
	}
	s.delete(replaced.RequestID)
	if got := user(t, at, poor); got.StoredBytes+got.ComingBytes != 0 {
		t.Errorf("with all deleted: %+v", got)
	}
}

// unknownContent: what turns out to be too large fails and leaves nothing (A54).
func (q *quotas) unknownContent(t *testing.T) {
	c, at, source := q.cluster.As(t), q.at.As(t), q.source.As(t)
	s := q.poor.as(t)
	allow(at, poor, 40<<20)
	before := usedBytes(t, c)
	for _, size := range []int{41 << 20, 130 << 20} {
		f := source.AddRandomChunked(1, size, 256<<10)[0]
		p := s.post(harness.Pin{CID: f.CID, Origins: source.Addrs})
		p, err := harness.WaitStatus(t.Context(), s.next(), p.RequestID, "failed", pinnedWithin)
		if err != nil {
			t.Fatal(err)
		}
		if why := p.Info["status_details"]; !strings.Contains(why, "free storage") {
			t.Errorf("%d bytes: %q", size, why)
		}
		harness.Eventually(t, chargedWithin, "nothing is charged or kept of it", func() (bool, error) {
			row := user(t, at, poor)
			now := usedBytes(t, c)
			for id, was := range before {
				if now[id] > was+freedSlack {
					return false, fmt.Errorf("node %s stores %d bytes, %d before", id, now[id], was)
				}
			}
			return row.StoredBytes+row.ComingBytes == 0, fmt.Errorf("%+v", row)
		})
	}
	f := source.AddRandomChunked(1, 60<<20, 256<<10)[0]
	at.CLI("user", "grant", poor, "1", "--posting", "one")
	at.CLI("user", "grant", poor, "1", "--posting", "one")
	p := s.post(harness.Pin{CID: f.CID, Origins: source.Addrs})
	s.pinned(p.RequestID)
	if row := user(t, at, poor); row.Credits != 1 || row.StoredBytes < 60<<20 || row.ComingBytes != 0 {
		t.Errorf("with credits: %+v", row)
	}
	s.delete(p.RequestID)
}

// races: writers on three nodes want what is left of an allowance at the same time.
func (q *quotas) races(t *testing.T) {
	c, at, known, each := q.cluster.As(t), q.at.As(t), q.known, q.each
	const racer = "racer@example.org"
	s := newService(t, c, racer)
	allow(at, racer, 2*each+each/2)
	rounds := quotaRaces
	if *longFlag {
		rounds = quotaRacesLong
	}
	for round := range rounds {
		var all sync.WaitGroup
		got := make([]harness.PinStatus, quotaWriters)
		errs := make([]error, quotaWriters)
		for i := range quotaWriters {
			client := c.Nodes[i%len(c.Nodes)].Pins(s.token)
			all.Go(func() { got[i], errs[i] = client.Post(t.Context(), harness.Pin{CID: known[i]}) })
		}
		all.Wait()
		var taken []string
		for i, err := range errs {
			switch {
			case err == nil:
				taken = append(taken, got[i].RequestID)
			case !refusedForFunds(err):
				t.Fatal(err)
			}
		}
		if len(taken) != 2 {
			t.Fatalf("round %d: %d of %d writers got a place for two", round, len(taken), quotaWriters)
		}
		if round == rounds-1 {
			if row := user(t, at, racer); row.StoredBytes != 2*each {
				t.Errorf("%+v, and two pins of %d bytes", row, each)
			}
		}
		for _, id := range taken {
			s.delete(id)
		}
	}
	if row := user(t, at, racer); row.StoredBytes+row.ComingBytes != 0 {
		t.Errorf("with all deleted: %+v", row)
	}
}

// accounts: what is left when an account is removed.
func (q *quotas) accounts(t *testing.T) {
	c, at, source, known := q.cluster.As(t), q.at.As(t), q.source.As(t), q.known
	const leaver = "leaver@example.org"
	s := newService(t, c, leaver)
	before := usedBytes(t, c)
	f := source.AddRandomChunked(1, 4<<20, 256<<10)[0]
	s.pinned(s.post(harness.Pin{CID: f.CID, Origins: source.Addrs}).RequestID)
	at.CLIWithInput("another good password\n", "user", "passwd", leaver)
	at.CLI("user", "rm", leaver)
	for i, n := range c.Nodes {
		var refused *harness.APIError
		if _, err := n.Pins(s.token).Post(t.Context(), harness.Pin{CID: f.CID}); !errors.As(err, &refused) || refused.Status != http.StatusUnauthorized {
			t.Errorf("node %d: a key of an account that is gone: %v", i+1, err)
		}
	}
	freed(t, c, before, pinnedWithin, "its content is gone")
	for _, args := range [][]string{{"user", "rm", leaver}, {"user", "quota", leaver, "1"}, {"user", "rm", "operator@localhost"}} {
		if r := at.TryCLI("", args...); r.Code != 1 || strings.Count(r.Stderr, "\n") != 1 {
			t.Errorf("%v: %+v", args, r)
		}
	}
	s = newService(t, c, leaver) // the address is free again
	s.post(harness.Pin{CID: known[0]})
}
