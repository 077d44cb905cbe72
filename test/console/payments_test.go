//go:build conformance

package console

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/internal/x402test"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// buyer pays at the paid gateway of a node.
type buyer struct {
	t   *testing.T
	url string
	key *x402test.Key
}

// send sends a request, and returns the answer with its body.
func (b *buyer) send(path, body string, header [2]string) (*http.Response, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodPut, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if header[0] != "" {
		r.Header.Set(header[0], header[1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer, string(text)
}

// put pays for an object, and returns the answer. An answer that does not ask for a payment is returned
// as it is.
func (b *buyer) put(path, body string) (status int, text string) {
	b.t.Helper()
	asked, text := b.send(path, body, [2]string{})
	if asked.StatusCode != http.StatusPaymentRequired {
		return asked.StatusCode, text
	}
	need, err := x402test.ReadRequired(1, asked.Header, []byte(text))
	if err != nil {
		b.t.Fatal(err)
	}
	order := &x402test.Order{Key: b.key, Required: need, ChainID: 84532}
	name, value, err := order.Pay()
	if err != nil {
		b.t.Fatal(err)
	}
	paid, text := b.send(path, body, [2]string{name, value})
	return paid.StatusCode, text
}

// TestPaymentsAreSeen: an administrator sees an object that somebody without an account has paid for,
// and a payment whose outcome nobody knows, with what to do about it.
func TestPaymentsAreSeen(t *testing.T) {
	longForm(t)
	t.Parallel()
	f, err := x402test.Start("base-sepolia", 84532)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	b := startBrowser(t)
	c := harness.Start(t, harness.Options{Settings: fmt.Sprintf(
		"[paid]\nlisten = \"127.0.0.1:0\"\npay_to = %q\nnetwork = \"base-sepolia\"\nfacilitator = %q\nmin_ttl = \"1s\"\ntimeout = \"10s\"\n", "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", f.URL)})
	buy := &buyer{t, "http://" + c.Nodes[0].Status().Node.Paid, x402test.NewKey()}
	f.Fund(buy.key.Address(), 100_000_000)
	// A node that has just started sells nothing until it knows the agreed time.
	harness.Eventually(t, stepTimeout, "the first object", func() (bool, error) {
		status, text := buy.put("/photos/sunset.jpg", "sun")
		return status == http.StatusOK, fmt.Errorf("%d %s", status, text)
	})
	f.Behave(x402test.Behaviour{Lose: 1, Forgetful: true})
	if status, text := buy.put("/photos/storm.jpg", "rain"); status != http.StatusServiceUnavailable {
		t.Errorf("a payment of an unknown outcome is answered with %d %s", status, text)
	}
	p := b.open(t, c.Followers()[0].ConsoleURL())
	p.visit(setupLink(t, c.Nodes[0]))
	p.shows("Set up this cluster")
	p.enter(`[name=email]`, founder)
	p.enter(`[name=password]`, password)
	p.enter(`[name=again]`, password)
	p.press("Set up")
	p.shows("Recent pins")
	p.follow("Cluster")
	p.shows("Members")
	p.follow("Payments")
	p.shows("object photos/sunset.jpg")
	p.click(`//summary[normalize-space()="object photos/storm.jpg"]`)
	p.shows("Only if the transfer was executed, pay it back.")
	p.picture("payments")
}
