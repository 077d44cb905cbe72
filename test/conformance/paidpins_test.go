//go:build conformance

package conformance

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/x402test"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// paidFor is how long the content of TestPaidPins is paid for that ends in it. All of it is fetched and
// renewed in this time.
const paidFor = 45 * time.Second

// maxBytes is the header with the size that a paid pin pays for.
const maxBytes = "X-Holdfast-Max-Bytes"

// pinBody returns the body of a request for a pin of a file that a foreign peer provides.
func (g *gate) pinBody(f harness.Offered, from *harness.Boxo) string {
	g.Helper()
	body, err := json.Marshal(harness.Pin{CID: f.CID, Name: "paid", Origins: from.Addrs})
	if err != nil {
		g.Fatal(err)
	}
	return string(body)
}

// payPin pays for a pin and returns its answer.
func (g *gate) payPin(url, body string, ttl time.Duration, size int) harness.PinStatus {
	g.Helper()
	r := g.pay(http.MethodPost, url+"/pins", body, nil, "X-Holdfast-TTL", fmt.Sprint(int(ttl.Seconds())), maxBytes, fmt.Sprint(size))
	st := g.paidPin(&r, http.StatusAccepted)
	if until := r.Header.Get("X-Holdfast-Until"); st.Info["pinned_until"] != until || until == "" || r.Header.Get("X-Holdfast-Owner") != g.payer.Address() {
		g.Errorf("a paid pin answers %v with %v", st.Info, r.Header)
	}
	return st
}

// paidPin returns the pin of an answer that has a status.
func (g *gate) paidPin(r *paidReply, status int) (st harness.PinStatus) {
	g.Helper()
	if r.StatusCode != status {
		g.Fatalf("%d %s, want %d", r.StatusCode, r.body, status)
	}
	if err := harness.DecodeStrict([]byte(r.body), &st); err != nil {
		g.Fatal(err)
	}
	return st
}

// becomes waits until a node shows a paid pin with a status.
func (g *gate) becomes(url, id, status string) (st harness.PinStatus) {
	g.Helper()
	harness.Eventually(g.T, pinnedWithin, "the paid pin is "+status, func() (bool, error) {
		r := g.send(http.MethodGet, url+"/pins/"+id, "")
		st = g.paidPin(&r, http.StatusOK)
		return st.Status == status, fmt.Errorf("%+v", st)
	})
	return st
}

// pinPayments returns the state and the transaction of the payments for a pin, as a node lists them.
func (g *gate) pinPayments(n *harness.Node, id string) (rows []string) {
	g.Helper()
	for _, p := range g.payments(n) {
		if p.Pin == id {
			rows = append(rows, p.Kind+" "+p.State+" "+p.Transaction)
		}
	}
	return rows
}

// pins returns the number of all pins of the cluster.
func (g *gate) pins(n *harness.Node) (all float64) {
	for name, value := range n.Metrics() {
		if strings.HasPrefix(name, "holdfast_pins{") {
			all += value
		}
	}
	return all
}

// TestPaidPins promises that programs pay for pins as for objects: a payment counts once, the paid size bounds the
// content, and a pin ends on all nodes. Stock clients pin through one node, and another one shows the settlement and
// holds the content of a foreign peer. A renewal keeps the content of a pin. After the end the content of pins and of
// objects is collected on all nodes.
func TestPaidPins(t *testing.T) {
	t.Parallel() // it mostly waits
	g := startGate(t, facilitatorWithin)
	source := harness.StartBoxo(t)
	t.Run("stock clients", func(t *testing.T) { g.on(t).stockPins(source) })
	t.Run("content that is too large", func(t *testing.T) { g.on(t).largePins(source) })
	t.Run("one payment on three nodes", func(t *testing.T) { g.on(t).pinsOnce(source) })
	g.pinsEnd(source)
}

func (g *gate) stockPins(source *harness.Boxo) {
	const size, amount = "400000", "3815" // ceil(400,000 / 2^20 * 10,000) for one hour
	a, b := g.urls[0], g.c.Nodes[1]
	for i, f := range source.AddRandom(2, 300_000) {
		version := fmt.Sprint(i + 1)
		before := b.Metrics()
		r := g.stock(version, http.MethodPost, a+"/pins", "3600", g.pinBody(f, source), size)
		if r.Status != http.StatusAccepted || !slices.Equal(r.Statuses, []int{402, 202}) || !r.Paid.Success || r.Paid.Network != networks[version] ||
			!strings.EqualFold(r.Paid.Payer, g.payer.Address()) {
			g.Fatalf("version %s: %+v", version, r)
		}
		last := g.f.Transfers()[len(g.f.Transfers())-1]
		if last.Transaction != r.Paid.Transaction || last.Value != amount || !strings.EqualFold(last.To, payTo) {
			g.Errorf("version %s settled %+v", version, last)
		}
		made := g.paidPin(&paidReply{&http.Response{StatusCode: r.Status}, r.Body}, http.StatusAccepted)
		seen := g.becomes(g.urls[1], made.RequestID, "pinned")
		until, err := time.Parse(time.RFC3339, r.Until)
		if left := time.Until(until); err != nil || seen.Info["pinned_until"] != r.Until || left < 50*time.Minute || left > time.Hour+time.Minute {
			g.Errorf("version %s: the end is %q, and %v on another node", version, r.Until, seen.Info)
		}
		if seen.Pin.CID != f.CID || seen.Pin.Name != "paid" || !slices.Equal(seen.Pin.Origins, source.Addrs) {
			g.Errorf("version %s: another node shows %+v", version, seen.Pin)
		}
		if got, want := g.pinPayments(b, made.RequestID), "pin paid "+r.Paid.Transaction; !slices.Equal(got, []string{want}) {
			g.Errorf("version %s: another node lists %q, want %q", version, got, want)
		}
		after := b.Metrics()
		for name, more := range map[string]float64{
			`holdfast_payments_total{state="paid"}`: 1,
			`holdfast_payments_amount{asset="0x036cbd53842c5426634e7929541ec2318f3dcf7e",network="base-sepolia",state="paid"}`: 3815,
		} {
			if got := after[name] - before[name]; got != more {
				g.Errorf("version %s: %s rose by %g on another node, want %g", version, name, got, more)
			}
		}
		if got := b.Get(f.CID); !f.Matches(got) {
			g.Errorf("version %s: another node reads %d other bytes", version, len(got))
		}
	}
	for _, size := range []string{"0", "-1", "1e3", "1 MiB"} {
		if r := g.send(http.MethodPost, a+"/pins", `{"cid":"`+nowhere().String()+`"}`, maxBytes, size); r.StatusCode != http.StatusBadRequest || r.code() != "BAD_REQUEST" {
			g.Errorf("%s: %s: %d %s", maxBytes, size, r.StatusCode, r.body)
		}
	}
}

func (g *gate) largePins(source *harness.Boxo) {
	const bound = 100_000
	before := usedBytes(g.T, g.c)
	f := source.AddRandom(1, 6<<20)[0]
	made := g.payPin(g.urls[0], g.pinBody(f, source), time.Hour, bound)
	seen := g.becomes(g.urls[1], made.RequestID, "failed")
	if why := seen.Info["status_details"]; !strings.Contains(why, fmt.Sprintf("larger than the %d bytes that the request permits", bound)) {
		g.Errorf("content that is too large: %v", seen.Info)
	}
	if got := g.pinPayments(g.c.Nodes[1], made.RequestID); len(got) != 1 || !strings.HasPrefix(got[0], "pin paid 0x") {
		g.Errorf("its payment is %q", got)
	}
	freed(g.T, g.c, before, pinnedWithin, "what arrived of content that is too large is freed")
}

func (g *gate) pinsOnce(source *harness.Boxo) {
	f := source.AddRandom(1, 1000)[0]
	body := g.pinBody(f, source)
	transfers, pins := len(g.f.Transfers()), g.pins(g.c.Nodes[1])
	name, value := g.sign(g.send(http.MethodPost, g.urls[0]+"/pins", body), g.payer, nil)
	replies := make([]paidReply, len(g.urls))
	var all sync.WaitGroup
	for i, url := range g.urls {
		all.Go(func() { replies[i] = g.send(http.MethodPost, url+"/pins", body, name, value) })
	}
	all.Wait()
	var won []string
	for i := range replies {
		switch r := &replies[i]; {
		case r.StatusCode == http.StatusAccepted:
			won = append(won, g.paidPin(r, http.StatusAccepted).RequestID)
		case r.StatusCode != http.StatusPaymentRequired || r.code() != "nonce_already_used":
			g.Errorf("node %d answers %d %s", i, r.StatusCode, r.body)
		}
	}
	if len(won) != 1 || len(g.f.Transfers()) != transfers+1 {
		g.Fatalf("%d requests won with one payment, and %d transfers", len(won), len(g.f.Transfers())-transfers)
	}
	g.becomes(g.urls[2], won[0], "pinned")
	for i, url := range g.urls {
		if r := g.send(http.MethodPost, url+"/pins", `{"cid":"`+nowhere().String()+`"}`, name, value); r.StatusCode != http.StatusPaymentRequired || r.code() != "nonce_already_used" {
			g.Errorf("the payment again, for another pin on node %d: %d %s", i, r.StatusCode, r.body)
		}
	}
	poor := x402test.NewKey()
	if r := g.pay(http.MethodPost, g.urls[1]+"/pins", body, func(o *x402test.Order) { o.Key = poor }); r.StatusCode != http.StatusPaymentRequired || r.code() != x402test.ReasonFunds {
		g.Errorf("without funds: %d %s", r.StatusCode, r.body)
	}
	if got := g.pins(g.c.Nodes[1]) - pins; got != 1 || len(g.f.Transfers()) != transfers+1 {
		g.Errorf("one payment made %g pins and %d transfers", got, len(g.f.Transfers())-transfers)
	}
}

// pinsEnd pays for two pins and an object that end, and renews one of the pins. The leader is killed
// before the ends.
func (g *gate) pinsEnd(source *harness.Boxo) {
	const large, small = 4 << 20, 300_000
	before := usedBytes(g.T, g.c)
	ends, renewed := source.AddRandom(1, large)[0], source.AddRandom(1, small)[0]
	content := make([]byte, large)
	_, _ = rand.Read(content) // never fails
	begin := time.Now()
	gone := g.payPin(g.urls[0], g.pinBody(ends, source), paidFor, large+large/8)
	old := g.payPin(g.urls[1], g.pinBody(renewed, source), paidFor, small+small/8)
	if r := g.pay(http.MethodPut, g.urls[2]+"/ending/object", string(content), nil, "X-Holdfast-TTL", fmt.Sprint(int(paidFor.Seconds()))); r.StatusCode != http.StatusOK {
		g.Fatalf("%d %s", r.StatusCode, r.body)
	}
	g.becomes(g.urls[2], gone.RequestID, "pinned")
	g.becomes(g.urls[2], old.RequestID, "pinned")
	// Not counted from before, which may hold some blocks of the content that was too large.
	stored(g.T, g.c, 2*large)
	source.Close() // the renewal fetches nothing
	again := g.payPin(g.urls[1], g.pinBody(renewed, source), time.Hour, small+small/8)
	g.becomes(g.urls[0], again.RequestID, "pinned")
	if took := time.Since(begin); took > paidFor {
		g.Fatalf("the renewal came %v after the payment for %v", took, paidFor)
	}
	killed := g.c.Leader()
	killed.Kill()
	g.haveEnded(gone.RequestID, old.RequestID)
	if now := time.Now(); now.Before(begin.Add(paidFor - time.Second)) {
		g.Errorf("the pins ended %v after their payment for %v", now.Sub(begin), paidFor)
	}
	killed.Restart()
	if err := killed.WaitReady(g.Context()); err != nil {
		g.Fatal(err)
	}
	g.haveEnded(gone.RequestID, old.RequestID)
	freed(g.T, g.c, before, 2*pinnedWithin, "the content of the pin and of the object that ended is collected on all nodes")
	for _, n := range g.c.Nodes {
		if st := g.becomes(paidURL(n), again.RequestID, "pinned"); st.Info["pinned_until"] != again.Info["pinned_until"] {
			g.Errorf("the renewed pin lasts until %v on %s, want %v", st.Info, n.Name, again.Info)
		}
		if got := n.Get(renewed.CID); !renewed.Matches(got) {
			g.Errorf("%s reads %d other bytes of the renewed pin", n.Name, len(got))
		}
	}
	if got := g.pinPayments(killed, gone.RequestID); len(got) != 1 || !strings.HasPrefix(got[0], "pin paid 0x") {
		g.Errorf("the receipt of a pin that ended is %q", got)
	}
}

// paidURL returns the address of a node's paid gateway, which a restart changes.
func paidURL(n *harness.Node) string { return "http://" + n.Status().Node.Paid }

// haveEnded waits until no running node has the pins, and none serves the object of pinsEnd.
func (g *gate) haveEnded(ids ...string) {
	g.Helper()
	harness.Eventually(g.T, paidFor+pinnedWithin, "paid content has ended on every node", func() (bool, error) {
		for _, n := range g.c.Live() {
			url := paidURL(n)
			for _, id := range ids {
				if r := g.send(http.MethodGet, url+"/pins/"+id, ""); r.StatusCode != http.StatusNotFound || r.code() != "NOT_FOUND" {
					return false, fmt.Errorf("pin on %s: %d %s", n.Name, r.StatusCode, r.body)
				}
			}
			if r := g.send(http.MethodGet, url+"/ending/object", ""); r.StatusCode != http.StatusGone {
				return false, fmt.Errorf("object on %s: %d, %d bytes", n.Name, r.StatusCode, len(r.body))
			}
		}
		return true, nil
	})
}

// TestAKilledNodeLearnsATransactionThatNobodyToldIt promises that a node that is killed between a settlement and its
// answer learns the transaction when the authorization has ended, and that nothing is paid twice. After the restart
// each node lists the payment as one that may have been settled, with all that an operator needs to find it.
func TestAKilledNodeLearnsATransactionThatNobodyToldIt(t *testing.T) {
	t.Parallel()
	g := startGate(t, facilitatorWithin)
	a, others, transfers := g.c.Nodes[0], g.c.Nodes[1:], len(g.f.Transfers())
	url := paidURL(a) + "/unanswered/object"
	ends := time.Now().Add(30 * time.Second) // the facilitator takes nothing in the last 6 s, and the machine may be busy
	name, value := g.sign(g.send(http.MethodPut, url, "content"), g.payer, func(o *x402test.Order) {
		o.Change = func(a *x402test.Authorization) { a.ValidBefore = fmt.Sprint(ends.Unix()) }
	})
	g.f.Behave(x402test.Behaviour{SettleDelay: time.Minute}) // the payment is settled before the delay
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader("content"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(name, value)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if resp, err := http.DefaultClient.Do(r); err == nil { // it gets no answer
			_ = resp.Body.Close()
		}
	}()
	harness.Eventually(t, paidWithin, "the payment is settled", func() (bool, error) {
		return len(g.f.Transfers()) > transfers, errors.New("nothing is settled")
	})
	a.Kill()
	<-ended
	g.f.Behave(x402test.Behaviour{})
	a.Restart()
	g.c.Settle()
	settled := g.f.Transfers()[transfers]
	listed := func(what string, fits func(p *listedPayment) bool) {
		t.Helper()
		for _, n := range append(others, a) {
			harness.Eventually(t, endedWithin, what+" on "+n.Name, func() (bool, error) {
				rows := g.payments(n)
				for i := range rows {
					if p := &rows[i]; p.Object == "unanswered/object" {
						known := strings.EqualFold(p.Payer, g.payer.Address()) && strings.EqualFold(p.Nonce, settled.Nonce) && p.Amount == settled.Value && p.Network == "base-sepolia"
						return p.State == "refundable" && known && fits(p), fmt.Errorf("%+v", *p)
					}
				}
				return false, errors.New("no row")
			})
		}
	}
	listed("a payment that may have been settled", func(p *listedPayment) bool {
		return strings.Contains(p.Reason, "may have been settled") && p.Transaction == "" || p.Transaction == settled.Transaction
	})
	listed("its transaction", func(p *listedPayment) bool {
		return p.Transaction == settled.Transaction && strings.Contains(p.Reason, "was settled")
	})
	if open := a.Metrics()["holdfast_payments_unanswered"]; open != 0 || len(g.f.Transfers()) != transfers+1 {
		t.Errorf("%g settlements without an answer, %d transfers", open, len(g.f.Transfers())-transfers)
	}
	if r := g.send(http.MethodGet, paidURL(others[0])+"/unanswered/object", ""); r.StatusCode != http.StatusNotFound {
		t.Errorf("the object: %d %s", r.StatusCode, r.body)
	}
}

// endedWithin is how long the node may take to learn a transaction: the rest of the authorization, the margin
// after it, and its passes.
const endedWithin = 4 * time.Minute

// TestAKilledNodeKnowsItsSettlements promises that a payment is refundable with its transaction after a node that
// could not commit its settlement was killed. The node was told of the settlement, and had no majority.
func TestAKilledNodeKnowsItsSettlements(t *testing.T) {
	t.Parallel()
	g := startGate(t, time.Minute) // the answer of the facilitator is in time
	// The leader would have the commit in its log, and commit it after the restart.
	a, settles, transfers := g.c.Followers()[0], g.f.Calls("/settle"), len(g.f.Transfers())
	journal := filepath.Join(a.Dir, "settlements")
	url := paidURL(a) + "/killed/object"
	name, value := g.sign(g.send(http.MethodPut, url, "content"), g.payer, nil)
	alone := make(chan struct{})
	g.f.Behave(x402test.Behaviour{Hold: alone}) // until there is no majority
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader("content"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(name, value)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if resp, err := http.DefaultClient.Do(r); err == nil { // it gets no answer
			_ = resp.Body.Close()
		}
	}()
	harness.Eventually(t, paidWithin, "the payment is being settled", func() (bool, error) {
		return g.f.Calls("/settle") > settles, errors.New("nobody has asked")
	})
	for _, n := range harness.Without(g.c.Nodes, a) {
		n.Kill()
	}
	close(alone)
	harness.Eventually(t, paidWithin, "the settlement is on the disk", func() (bool, error) {
		text, err := os.ReadFile(journal)
		all := g.f.Transfers()
		return err == nil && len(all) > transfers && strings.Contains(string(text), all[transfers].Transaction), err
	})
	a.Kill()
	<-ended
	for _, n := range g.c.Nodes {
		n.Restart()
	}
	g.c.Settle()
	all := g.f.Transfers()
	if len(all) != transfers+1 {
		t.Fatalf("%d transfers", len(all)-transfers)
	}
	harness.Eventually(t, pinnedWithin, "the settlement is recorded", func() (bool, error) {
		rows := g.payments(g.c.Nodes[1])
		for _, p := range rows {
			if p.Object == "killed/object" {
				return p.State == "refundable" && p.Transaction == all[transfers].Transaction, fmt.Errorf("%+v", p)
			}
		}
		return false, fmt.Errorf("no row in %+v", rows)
	})
	if r := g.send(http.MethodGet, paidURL(g.c.Nodes[2])+"/killed/object", ""); r.StatusCode != http.StatusNotFound {
		t.Errorf("the object: %d %s", r.StatusCode, r.body)
	}
}
