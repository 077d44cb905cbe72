//go:build conformance

package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/x402test"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// Figures of the paid gateway of these tests.
const (
	payTo      = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
	paidChain  = 84532
	paidWithin = 2 * time.Minute // for what the leader does by itself, also on a busy machine
)

// facilitatorWithin is paid.timeout of these tests. The facilitator answers at once, and on a busy machine later.
const facilitatorWithin = 5 * time.Second

// gate is a cluster whose nodes all have a paid gateway, with a facilitator.
type gate struct {
	*testing.T

	c     *harness.Cluster
	f     *x402test.Facilitator
	urls  []string
	payer *x402test.Key
}

// startGate starts a gate whose nodes wait so long for an answer of the facilitator.
func startGate(t *testing.T, timeout time.Duration) *gate {
	t.Helper()
	f, err := x402test.Start("base-sepolia", paidChain)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	c := harness.Start(t, harness.Options{Settings: fmt.Sprintf(
		"[paid]\nlisten = \"127.0.0.1:0\"\npay_to = %q\nnetwork = \"base-sepolia\"\nfacilitator = %q\nmin_ttl = \"1s\"\ntimeout = %q\n", payTo, f.URL, timeout)})
	g := &gate{T: t, c: c, f: f, payer: x402test.NewKey()}
	for _, n := range c.Nodes {
		at := n.Status().Node.Paid
		if at == "" || strings.HasSuffix(at, ":0") {
			t.Fatalf("%s serves the paid gateway at %q", n.Name, at)
		}
		g.urls = append(g.urls, "http://"+at)
	}
	f.Fund(g.payer.Address(), 100_000_000)
	for _, url := range g.urls { // a node that has just started sells nothing until it knows the agreed time
		harness.Eventually(t, paidWithin, "the first object", func() (bool, error) {
			r := g.pay(http.MethodPut, url+"/first/object", "x", nil)
			return r.StatusCode == http.StatusOK, fmt.Errorf("%d %s", r.StatusCode, r.body)
		})
	}
	return g
}

// paidReply is an answer with its body.
type paidReply struct {
	*http.Response

	body string
}

func (g *gate) send(method, url, body string, headers ...string) paidReply {
	g.Helper()
	r, err := http.NewRequestWithContext(g.Context(), method, url, strings.NewReader(body))
	if err != nil {
		g.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		g.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		g.Fatal(err)
	}
	return paidReply{resp, string(text)}
}

// sign returns the header of a payment for what an answer requires, in version 1.
func (g *gate) sign(r paidReply, key *x402test.Key, change func(*x402test.Order)) (name, value string) {
	g.Helper()
	need, err := x402test.ReadRequired(1, r.Header, []byte(r.body))
	if err != nil || r.StatusCode != http.StatusPaymentRequired {
		g.Fatalf("%d %s: %v", r.StatusCode, r.body, err)
	}
	o := &x402test.Order{Key: key, Required: need, ChainID: paidChain}
	if change != nil {
		change(o)
	}
	if name, value, err = o.Pay(); err != nil {
		g.Fatal(err)
	}
	return name, value
}

// pay sends a request, pays for it and sends it again.
func (g *gate) pay(method, url, body string, change func(*x402test.Order), headers ...string) paidReply {
	g.Helper()
	name, value := g.sign(g.send(method, url, body, headers...), g.payer, change)
	return g.send(method, url, body, append(slices.Clone(headers), name, value)...)
}

// code returns the error of a flat body.
func (r *paidReply) code() string {
	var body struct {
		Error string `json:"error"`
	}
	_ = json.Unmarshal([]byte(r.body), &body) // "" is not what a test expects
	return body.Error
}

// listedPayment is a row of a list of payments.
type listedPayment struct {
	State, Kind, Object, Pin, Payer, Nonce, Amount, Network, Transaction, Reason string
}

// payments returns the payments that a node lists.
func (g *gate) payments(n *harness.Node) (rows []listedPayment) {
	g.Helper()
	if err := json.Unmarshal([]byte(n.CLI("paid", "ls", "--json", "--limit", "0")), &rows); err != nil {
		g.Fatal(err)
	}
	return rows
}

// states counts the payments of an object by their states.
func (g *gate) states(object string) map[string]int {
	g.Helper()
	found := map[string]int{}
	for _, p := range g.payments(g.c.Nodes[1]) {
		if p.Object == object {
			found[p.State]++
		}
	}
	return found
}

// TestPaidGateway promises that programs store, renew, read and delete objects on each node that only a payment pays
// for, and that a payment counts once (rows 111 to 125). Nothing is stored without one.
func TestPaidGateway(t *testing.T) {
	t.Parallel()
	g := startGate(t, facilitatorWithin)
	t.Run("stock clients", g.stockClients)
	t.Run("one payment on three nodes", g.replays)
	t.Run("a facilitator that settles twice", g.settlesTwice)
	t.Run("bad payments", g.badPayments)
	t.Run("facilitators that fail", g.failures)
	t.Run("owners", g.owners)
	t.Run("ends", g.ends)
}

// on returns the gate for a subtest.
func (g *gate) on(t *testing.T) *gate {
	own := *g
	own.T, own.c = t, g.c.As(t)
	return &own
}

// stockReply is what pay.mjs prints.
type stockReply struct {
	Status   int             `json:"status"`
	Statuses []int           `json:"statuses"`
	Body     string          `json:"body"`
	Until    string          `json:"until"`
	Paid     x402test.Result `json:"paid"`
}

// stock sends a request through a stock client of a version of x402. content is a number of bytes, or
// JSON. more may have the size that a pin pays for.
func (g *gate) stock(version, method, url, ttl, content string, more ...string) (r stockReply) {
	g.Helper()
	modules, script := harness.Script(g.T, jsDir, "pay.mjs")
	ctx, cancel := context.WithTimeout(g.Context(), toolTimeout)
	defer cancel()
	args := append([]string{script, version, g.payer.Secret(), method, url, ttl, content}, more...)
	cmd := exec.CommandContext(ctx, harness.NodeProgram(modules, harness.NodeCurrent), args...)
	cmd.Dir = modules
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err != nil {
		g.Fatalf("client of version %s: %v\n%s%s", version, err, out, errs.String())
	}
	return r
}

// networks are the names of the network by the version of x402.
var networks = map[string]string{"1": "base-sepolia", "2": "eip155:84532"}

func (g *gate) stockClients(t *testing.T) {
	g = g.on(t)
	for _, version := range []string{"1", "2"} {
		first := g.urls[0] + "/stock/of-" + version
		r := g.stock(version, http.MethodPut, first, "3600", "300000")
		if r.Status != http.StatusOK || !slices.Equal(r.Statuses, []int{402, 200}) || !r.Paid.Success || r.Paid.Network != networks[version] ||
			!strings.EqualFold(r.Paid.Payer, g.payer.Address()) || r.Paid.Transaction == "" {
			t.Fatalf("version %s: %+v", version, r)
		}
		last := g.f.Transfers()[len(g.f.Transfers())-1]
		if last.Transaction != r.Paid.Transaction || last.Value != "2862" || !strings.EqualFold(last.To, payTo) {
			t.Errorf("version %s settled %+v", version, last)
		}
		read := g.send(http.MethodGet, g.urls[1]+"/stock/of-"+version, "")
		if read.StatusCode != http.StatusOK || read.body != strings.Repeat("x", 300_000) || read.Header.Get("Content-Type") != "text/plain" || read.Header.Get("X-Holdfast-Until") != r.Until {
			t.Errorf("version %s, read through another node: %d, %d bytes, %v", version, read.StatusCode, len(read.body), read.Header)
		}
		renewed := g.stock(version, http.MethodPut, g.urls[2]+"/stock/of-"+version, "7200", "300000")
		was, err := time.Parse(time.RFC3339, r.Until)
		if err != nil {
			t.Fatal(err)
		}
		if is, err := time.Parse(time.RFC3339, renewed.Until); err != nil || is.Sub(was) < 7199*time.Second || is.Sub(was) > 7201*time.Second {
			t.Errorf("version %s: a renewal by 2 h moved the end from %s to %s: %v", version, r.Until, renewed.Until, err)
		}
	}
}

func (g *gate) replays(t *testing.T) { g.on(t).replay("replay") }

// settlesTwice: a facilitator that executes whatever it is asked, as a network without nonces would, is asked once.
func (g *gate) settlesTwice(t *testing.T) {
	g = g.on(t)
	g.f.Behave(x402test.Behaviour{Twice: true})
	defer g.f.Behave(x402test.Behaviour{})
	g.replay("twice")
}

// replay sends one payment to all nodes at once, and again later, for different objects of a bucket.
func (g *gate) replay(bucket string) {
	t := g.T
	t.Helper()
	before := len(g.f.Transfers())
	name, value := g.sign(g.send(http.MethodPut, g.urls[0]+"/"+bucket+"/0", "once"), g.payer, nil)
	replies := make([]paidReply, len(g.urls))
	var all sync.WaitGroup
	for i, url := range g.urls {
		all.Go(func() {
			replies[i] = g.send(http.MethodPut, fmt.Sprintf("%s/%s/%d", url, bucket, i), "once", name, value)
		})
	}
	all.Wait()
	won := 0
	for i := range replies {
		switch r := &replies[i]; {
		case r.StatusCode == http.StatusOK:
			won++
		case r.StatusCode != http.StatusPaymentRequired || r.code() != "nonce_already_used":
			t.Errorf("node %d answers %d %s", i, r.StatusCode, r.body)
		}
	}
	stored := 0
	for i := range g.urls {
		if r := g.send(http.MethodGet, fmt.Sprintf("%s/%s/%d", g.urls[(i+1)%3], bucket, i), ""); r.StatusCode == http.StatusOK {
			stored++
		} else if r.StatusCode != http.StatusNotFound {
			t.Errorf("object %d: %d %s", i, r.StatusCode, r.body)
		}
	}
	if won != 1 || stored != 1 || len(g.f.Transfers()) != before+1 {
		t.Errorf("%d requests won, %d objects are stored, %d transfers", won, stored, len(g.f.Transfers())-before)
	}
	if r := g.send(http.MethodPut, g.urls[1]+"/"+bucket+"/later", "once", name, value); r.StatusCode != http.StatusPaymentRequired || r.code() != "nonce_already_used" {
		t.Errorf("later: %d %s", r.StatusCode, r.body)
	}
}

func (g *gate) badPayments(t *testing.T) {
	g = g.on(t)
	before := len(g.f.Transfers())
	now := time.Now().Unix()
	poor := x402test.NewKey()
	for name, tc := range map[string]struct {
		change func(*x402test.Order)
		want   string
	}{
		"short": {func(o *x402test.Order) { o.Required.Accepts[0].MaxAmountRequired = "999" }, x402test.ReasonValue},
		"expired": {func(o *x402test.Order) {
			o.Change = func(a *x402test.Authorization) { a.ValidBefore = fmt.Sprint(now - 5) }
		}, x402test.ReasonBefore},
		"not valid yet": {func(o *x402test.Order) {
			o.Change = func(a *x402test.Authorization) { a.ValidAfter = fmt.Sprint(now + 900) }
		}, x402test.ReasonAfter},
		"another recipient": {func(o *x402test.Order) { o.Required.Accepts[0].PayTo = poor.Address() }, x402test.ReasonRecipient},
		"another network":   {func(o *x402test.Order) { o.Required.Accepts[0].Network = "base" }, x402test.ReasonNetwork},
		"another chain":     {func(o *x402test.Order) { o.ChainID = 8453 }, x402test.ReasonSignature},
		"forged": {func(o *x402test.Order) {
			o.Key, o.Change = poor, func(a *x402test.Authorization) { a.From = g.payer.Address() }
		}, x402test.ReasonSignature},
		"without funds": {func(o *x402test.Order) { o.Key = poor }, x402test.ReasonFunds},
	} {
		if r := g.pay(http.MethodPut, g.urls[0]+"/bad/a", "x", tc.change); r.StatusCode != http.StatusPaymentRequired || r.code() != tc.want {
			t.Errorf("%s: %d %s, want %s", name, r.StatusCode, r.body, tc.want)
		}
	}
	if r := g.send(http.MethodPut, g.urls[0]+"/bad/a", "x", "X-PAYMENT", "bm9uc2Vuc2U="); r.StatusCode != http.StatusPaymentRequired || r.code() != "invalid_payload" {
		t.Errorf("malformed: %d %s", r.StatusCode, r.body)
	}
	if r := g.send(http.MethodGet, g.urls[1]+"/bad/a", ""); r.StatusCode != http.StatusNotFound || len(g.f.Transfers()) != before {
		t.Errorf("after bad payments: %d %s, %d transfers", r.StatusCode, r.body, len(g.f.Transfers())-before)
	}
}

func (g *gate) failures(t *testing.T) {
	g = g.on(t)
	defer g.f.Behave(x402test.Behaviour{})
	absent := func(key string) {
		t.Helper()
		if r := g.send(http.MethodGet, g.urls[1]+"/failing/"+key, ""); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d %s", key, r.StatusCode, r.body)
		}
	}
	g.f.Behave(x402test.Behaviour{Down: true})
	r := g.pay(http.MethodPut, g.urls[0]+"/failing/down", "x", nil)
	if r.StatusCode != http.StatusServiceUnavailable || r.code() != "SERVICE_UNAVAILABLE" || r.Header.Get("Retry-After") == "" {
		t.Errorf("down: %d %s", r.StatusCode, r.body)
	}
	absent("down")
	g.f.Behave(x402test.Behaviour{Delay: 2 * facilitatorWithin})
	if r := g.pay(http.MethodPut, g.urls[0]+"/failing/slow", "x", nil); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("slow: %d %s", r.StatusCode, r.body)
	}
	absent("slow")
	late := len(g.f.Transfers())
	g.f.Behave(x402test.Behaviour{SettleDelay: 2 * facilitatorWithin})
	if r := g.pay(http.MethodPut, g.urls[0]+"/failing/late", "x", nil); r.StatusCode != http.StatusServiceUnavailable || !strings.Contains(r.body, `"payment":"refundable"`) || len(g.f.Transfers()) != late+1 {
		t.Errorf("settled, and answered late: %d %s, %d transfers", r.StatusCode, r.body, len(g.f.Transfers())-late)
	}
	absent("late")
	if got := g.states("failing/late"); got["refundable"] != 1 {
		t.Errorf("a payment that was settled late is recorded as %v", got)
	}
	g.f.Behave(x402test.Behaviour{Refuse: "invalid_transaction_state"})
	if r := g.pay(http.MethodPut, g.urls[0]+"/failing/refused", "x", nil); r.StatusCode != http.StatusPaymentRequired || r.code() != "invalid_transaction_state" {
		t.Errorf("refused: %d %s", r.StatusCode, r.body)
	}
	absent("refused")
	if got := g.states("failing/refused"); got["failed"] != 1 {
		t.Errorf("a refused settlement is recorded as %v", got)
	}
	before := len(g.f.Transfers())
	g.f.Behave(x402test.Behaviour{Lose: 1})
	if r := g.pay(http.MethodPut, g.urls[0]+"/failing/lost", "x", nil); r.StatusCode != http.StatusOK || len(g.f.Transfers()) != before+1 {
		t.Errorf("lost answer: %d %s, %d transfers", r.StatusCode, r.body, len(g.f.Transfers())-before)
	}
	g.f.Behave(x402test.Behaviour{Lose: 1, Forgetful: true})
	if r := g.pay(http.MethodPut, g.urls[0]+"/failing/forgotten", "x", nil); r.StatusCode != http.StatusServiceUnavailable || len(g.f.Transfers()) != before+2 {
		t.Errorf("lost and forgotten: %d %s, %d transfers", r.StatusCode, r.body, len(g.f.Transfers())-before)
	}
	absent("forgotten")
	if got := g.states("failing/forgotten"); got["refundable"] != 1 {
		t.Errorf("a payment whose outcome is unknown is recorded as %v", got)
	}
}

func (g *gate) owners(t *testing.T) {
	g = g.on(t)
	url := g.urls[0] + "/owned/a"
	if r := g.pay(http.MethodPut, url, "mine", nil); r.StatusCode != http.StatusOK {
		t.Fatal(r.body)
	}
	thief := x402test.NewKey()
	g.f.Fund(thief.Address(), 1_000_000)
	asThief := func(o *x402test.Order) { o.Key = thief }
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		if r := g.pay(method, g.urls[1]+"/owned/a", "theirs", asThief); r.StatusCode != http.StatusForbidden {
			t.Errorf("%s by another payer: %d %s", method, r.StatusCode, r.body)
		}
	}
	if got := g.f.Balance(thief.Address()); got != 1_000_000 {
		t.Errorf("the other payer paid %d for nothing", 1_000_000-got)
	}
	if r := g.send(http.MethodGet, g.urls[2]+"/owned/a", ""); r.body != "mine" || r.Header.Get("X-Holdfast-Owner") != g.payer.Address() {
		t.Errorf("after that: %d %s", r.StatusCode, r.body)
	}
	if r := g.pay(http.MethodDelete, g.urls[2]+"/owned/a", "", nil); r.StatusCode != http.StatusNoContent {
		t.Errorf("DELETE by the owner: %d %s", r.StatusCode, r.body)
	}
	if r := g.send(http.MethodGet, url, ""); r.StatusCode != http.StatusNotFound {
		t.Errorf("after the deletion: %d %s", r.StatusCode, r.body)
	}
}

func (g *gate) ends(t *testing.T) {
	g = g.on(t)
	const short, long = "/ending/short", "/ending/long"
	for path, ttl := range map[string]string{short: "2", long: "3600"} {
		if r := g.pay(http.MethodPut, g.urls[0]+path, "content of "+path, nil, "X-TTL-Seconds", ttl); r.StatusCode != http.StatusOK {
			t.Fatal(r.body)
		}
	}
	harness.Eventually(t, paidWithin, "the end of an object", func() (bool, error) {
		for _, url := range g.urls {
			if r := g.send(http.MethodGet, url+short, ""); r.StatusCode != http.StatusGone || r.code() != "GONE" {
				return false, fmt.Errorf("%d %s", r.StatusCode, r.body)
			}
		}
		return true, nil
	})
	if r := g.send(http.MethodGet, g.urls[1]+long, ""); r.StatusCode != http.StatusOK || r.body != "content of "+long {
		t.Errorf("another object ended too: %d %s", r.StatusCode, r.body)
	}
}
