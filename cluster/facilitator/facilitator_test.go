package facilitator

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/payments"
	"github.com/holdfast-ipfs/holdfast/internal/x402test"
)

const payer = "0x19e7e376e7c213b7e7e7e46cc70a5dd086daff2a"

// payment returns a payment with a payload that the fakes of these tests do not read.
func payment() *payments.Payment {
	return &payments.Payment{X402Version: 1, Payload: json.RawMessage(`{"a":1}`), Requirements: json.RawMessage(`{"b":2}`), Network: "base-sepolia", Payer: payer}
}

func newClient(t *testing.T, o Options) *Client {
	t.Helper()
	o.Network, o.CAIP2 = "base-sepolia", "eip155:84532"
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.client.CloseIdleConnections)
	return c
}

// answering returns a client of a server that gives one answer to everything.
func answering(t *testing.T, status int, body string) *Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status/100 == 3 {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	return newClient(t, Options{URL: server.URL})
}

// A payment is rejected only if the facilitator itself says no; after every other bad answer its outcome is unknown.
// In that case money may have moved.
func TestOnlyADefiniteNoIsARejection(t *testing.T) {
	for _, tc := range []struct {
		name         string
		status       int
		verify, body string // body is that of settle
		want         string // reason, "" is yes, "?" is unknown
	}{
		{"yes", 200, `{"isValid":true,"payer":"` + strings.ToUpper(payer[2:]) + `"}`, `{"success":true,"transaction":"0xab"}`, "?"},
		{"yes, with payer", 200, `{"isValid":true,"payer":"0x19E7E376E7C213B7E7e7e46cc70A5dD086DAff2A"}`, `{"success":true,"transaction":"0xab","payer":"` + payer + `","network":"x"}`, ""},
		{"yes, without payer", 200, `{"isValid":true}`, `{"success":true,"transaction":"0xab"}`, ""},
		{"no", 200, `{"isValid":false,"invalidReason":"insufficient_funds"}`, `{"success":false,"errorReason":"insufficient_funds","transaction":""}`, "insufficient_funds"},
		{"no with 400", 400, `{"isValid":false,"invalidReason":"invalid_payload"}`, `{"success":false,"errorReason":"invalid_payload"}`, "invalid_payload"},
		{"yes with 400", 400, `{"isValid":true}`, `{"success":true}`, "?"},
		{"another 400", 400, `{"error":"bad request"}`, `{"error":"bad request"}`, "?"},
		{"401", 401, `{"message":"no key"}`, `{"message":"no key"}`, "?"},
		{"429 with a no", 429, `{"isValid":false}`, `{"success":false}`, "?"},
		{"500 with a no", 500, `{"isValid":false,"invalidReason":"x"}`, `{"success":false,"errorReason":"x"}`, "?"},
		{"503", 503, `busy`, `busy`, "?"},
		{"redirect", 307, `{"isValid":true}`, `{"success":true}`, "?"},
		{"empty object", 200, `{}`, `{}`, "?"},
		{"null", 200, `{"isValid":null}`, `{"success":null}`, "?"},
		{"text", 200, `"isValid"`, `success`, "?"},
		{"page", 200, `<html>`, `<html>`, "?"},
		{"reason with a line break", 200, `{"isValid":false,"invalidReason":"a\nb: c"}`, `{"success":false,"errorReason":"a\nb: c"}`, "ab: c"},
		{"no without a reason", 200, `{"isValid":false}`, `{"success":false}`, "unexpected_"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			who, err := answering(t, tc.status, tc.verify).Verify(t.Context(), payment())
			if tc.name != "yes" { // its payer is another text
				check(t, "verify", err, tc.want)
			}
			if err == nil && who != payer {
				t.Errorf("payer %q", who)
			}
			settled, err := answering(t, tc.status, tc.body).Settle(t.Context(), payment())
			if tc.name != "yes" {
				check(t, "settle", err, tc.want)
			}
			if err == nil && settled != (payments.Settlement{Transaction: "0xab", Network: "base-sepolia", Payer: payer}) {
				t.Errorf("settled %+v", settled)
			}
		})
	}
	if _, err := answering(t, 200, `{"isValid":true,"payer":"0x01"}`).Verify(t.Context(), payment()); !rejected(err, "invalid_exact_evm_payload_signature") {
		t.Errorf("another payer was verified: %v", err)
	}
	if _, err := answering(t, 200, `{"success":true,"payer":"0x01"}`).Settle(t.Context(), payment()); !errors.Is(err, payments.ErrFacilitator) {
		t.Errorf("another payer was charged: %v", err)
	}
}

func rejected(err error, reason string) bool {
	var r *payments.Rejected
	return errors.As(err, &r) && strings.HasPrefix(r.Reason, reason)
}

func check(t *testing.T, what string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case want == "?" && (!errors.Is(err, payments.ErrFacilitator) || rejected(err, "")):
		t.Errorf("%s: %v, want an unknown outcome", what, err)
	case want != "" && want != "?" && !rejected(err, want):
		t.Errorf("%s: %v, want a rejection for %s", what, err, want)
	}
}

// An answer of 1 MiB and one that never ends are errors of the facilitator, the latter after the timeout of the
// client.
func TestAnswersAreBounded(t *testing.T) {
	large := answering(t, 200, `{"isValid":true,"x":"`+strings.Repeat("x", 1<<20)+`"}`)
	if _, err := large.Verify(t.Context(), payment()); !errors.Is(err, payments.ErrFacilitator) {
		t.Errorf("a large answer: %v", err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // net/http notices the end of the connection after the body only
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	slow := newClient(t, Options{URL: server.URL, Timeout: 50 * time.Millisecond})
	began := time.Now()
	// A client that does not keep its timeout takes DefaultTimeout at the least.
	if _, err := slow.Settle(t.Context(), payment()); !errors.Is(err, payments.ErrFacilitator) || time.Since(began) >= DefaultTimeout {
		t.Errorf("a slow answer: %v after %v", err, time.Since(began))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := slow.Settle(ctx, payment()); !errors.Is(err, payments.ErrFacilitator) || !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled request: %v", err)
	}
}

// The client sends a settlement once, also if the connection is cut. net/http must not repeat it by itself.
func TestASettlementIsSentOnceByCall(t *testing.T) {
	f, err := x402test.Start("base-sepolia", 84532)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	c := newClient(t, Options{URL: f.URL + "/"})
	if err := c.Supported(t.Context()); err != nil { // leaves a connection that the next request uses
		t.Fatal(err)
	}
	f.Behave(x402test.Behaviour{Down: true})
	if _, err := c.Settle(t.Context(), payment()); !errors.Is(err, payments.ErrFacilitator) {
		t.Errorf("a cut connection: %v", err)
	}
	if n := f.Calls("/settle"); n != 1 {
		t.Errorf("%d requests for one settlement", n)
	}
	if err := c.Supported(t.Context()); !errors.Is(err, payments.ErrFacilitator) {
		t.Errorf("supported of a facilitator that is down: %v", err)
	}
	f.Behave(x402test.Behaviour{})
	other := newClient(t, Options{URL: f.URL})
	other.opts.Network, other.opts.CAIP2 = "base", "eip155:8453"
	if err := other.Supported(t.Context()); !errors.Is(err, payments.ErrFacilitator) || !strings.Contains(err.Error(), "base") {
		t.Errorf("supported of another network: %v", err)
	}
}

// The client does not connect to a facilitator whose name leads to a private address, unless facilitator_private
// permits it. The test dials a server on loopback by a name: the machine's own resolver knows localhost with a dot at
// the end, which the URL does not count as this machine.
func TestANameMayNotLeadToAPrivateAddress(t *testing.T) {
	f, err := x402test.Start("base-sepolia", 84532)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	named := strings.Replace(f.URL, "http://127.0.0.1", "https://localhost.", 1)
	err = newClient(t, Options{URL: named}).Supported(t.Context())
	if err == nil || !strings.Contains(err.Error(), "not a public address") && !strings.Contains(err.Error(), "lookup") {
		t.Errorf("a name that leads to loopback: %v", err)
	}
	err = newClient(t, Options{URL: named, Private: true}).Supported(t.Context())
	if err == nil || strings.Contains(err.Error(), "not a public address") { // the server has no TLS
		t.Errorf("with facilitator_private: %v", err)
	}
}
