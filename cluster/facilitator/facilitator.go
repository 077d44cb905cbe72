// Package facilitator asks a facilitator of the x402 protocol over HTTP to verify and to settle
// payments. It distinguishes a definite refusal from an unknown outcome, after which money may
// have moved.
//
// Imports: std, cluster/payments, internal/publicip.
// Never:   the replicated state, keys of payers, networks of assets; proxies of the environment.
package facilitator

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/payments"
	"github.com/holdfast-ipfs/holdfast/internal/publicip"
)

// Limits of requests to a facilitator.
const (
	// DefaultTimeout is the time limit of one request.
	DefaultTimeout = 10 * time.Second

	maxAnswer = 64 << 10 // bytes of an answer
	maxHeader = 16 << 10 // bytes of the header of an answer
	maxIdle   = 16       // connections that wait for the next request
	// maxReason and maxTransaction are the largest sizes in bytes of texts of the facilitator
	// that the node stores.
	maxReason      = 100
	maxTransaction = 128
)

// Options configure a Client.
type Options struct {
	// URL is the URL of the facilitator, to which /verify, /settle and /supported are added. Plain
	// http is accepted for a loopback host only.
	URL string
	// Network is the name of the network in version 1 of x402, such as base-sepolia, and CAIP2
	// its name in version 2.
	Network, CAIP2 string
	// Private allows a host name that resolves to a private or loopback address. A private IP
	// address in the URL itself is always allowed.
	Private bool
	Timeout time.Duration // of one request; 0: DefaultTimeout
}

// Client asks one facilitator. It implements payments.Facilitator.
type Client struct {
	opts   Options
	base   string // without a slash at the end
	client *http.Client
}

// New returns a client. It does not contact the facilitator.
func New(o Options) (*Client, error) {
	if err := publicip.CheckService(o.URL); err != nil {
		return nil, fmt.Errorf("facilitator: %w", err)
	}
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, fmt.Errorf("facilitator: %w", err)
	}
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	dialer := &net.Dialer{Timeout: o.Timeout}
	if _, private := publicip.Literal(u.Hostname()); !private && !o.Private {
		dialer.Control = publicip.Control
	}
	return &Client{
		opts: o, base: strings.TrimRight(o.URL, "/"),
		client: &http.Client{
			Timeout: o.Timeout,
			Transport: &http.Transport{
				DialContext: dialer.DialContext, TLSHandshakeTimeout: o.Timeout, ForceAttemptHTTP2: true,
				MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxHeader,
			},
			// A redirect could lead to a private address, and lose the body.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// question is the body of the requests to verify and to settle.
type question struct {
	X402Version  int             `json:"x402Version"`
	Payload      json.RawMessage `json:"paymentPayload"`
	Requirements json.RawMessage `json:"paymentRequirements"`
}

// verdict is the answer to a request to verify.
type verdict struct {
	IsValid       *bool  `json:"isValid"`
	InvalidReason string `json:"invalidReason"`
	Payer         string `json:"payer"`
}

// Verify implements payments.Facilitator. It returns the payer of p. If the facilitator refuses
// the payment, or names another payer, Verify returns a *payments.Rejected.
func (c *Client) Verify(ctx context.Context, p *payments.Payment) (string, error) {
	var v verdict
	status, err := c.ask(ctx, "/verify", p, &v)
	switch {
	case err != nil:
		return "", err
	case v.IsValid == nil || *v.IsValid && status != http.StatusOK:
		return "", unknown("verify", status, "no verdict")
	case !*v.IsValid:
		return "", &payments.Rejected{Reason: reason(v.InvalidReason, "unexpected_verify_error"), Payer: p.Payer}
	case v.Payer != "" && !strings.EqualFold(v.Payer, p.Payer):
		return "", &payments.Rejected{Reason: "invalid_exact_evm_payload_signature", Payer: p.Payer}
	}
	return p.Payer, nil
}

// outcome is the answer to a request to settle.
type outcome struct {
	Success     *bool  `json:"success"`
	ErrorReason string `json:"errorReason"`
	Transaction string `json:"transaction"`
	Payer       string `json:"payer"`
}

// Settle implements payments.Facilitator.
func (c *Client) Settle(ctx context.Context, p *payments.Payment) (payments.Settlement, error) {
	var o outcome
	status, err := c.ask(ctx, "/settle", p, &o)
	switch {
	case err != nil:
		return payments.Settlement{}, err
	case o.Success == nil || *o.Success && status != http.StatusOK:
		return payments.Settlement{}, unknown("settle", status, "no outcome")
	case !*o.Success:
		return payments.Settlement{}, &payments.Rejected{Reason: reason(o.ErrorReason, "unexpected_settle_error"), Payer: p.Payer}
	case o.Payer != "" && !strings.EqualFold(o.Payer, p.Payer):
		return payments.Settlement{}, unknown("settle", status, "another payer was charged")
	}
	return payments.Settlement{Transaction: printable(o.Transaction, maxTransaction), Network: p.Network, Payer: p.Payer}, nil
}

// Supported implements payments.Facilitator.
func (c *Client) Supported(ctx context.Context) error {
	var answer struct {
		Kinds []struct {
			Scheme  string `json:"scheme"`
			Network string `json:"network"`
		} `json:"kinds"`
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/supported", nil)
	if err != nil {
		return fmt.Errorf("facilitator: %w", err)
	}
	status, err := c.do(r, &answer)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return unknown("supported", status, "no list")
	}
	for _, k := range answer.Kinds {
		if k.Scheme == "exact" && (k.Network == c.opts.Network || k.Network == c.opts.CAIP2) {
			return nil
		}
	}
	return fmt.Errorf("%w: it does not support exact payments on %s", payments.ErrFacilitator, c.opts.Network)
}

// ask sends a payment to a path of the facilitator and decodes the answer. It returns an error
// for a status with which a facilitator gives no decision, that is all except 200 and those of a
// refused request.
func (c *Client) ask(ctx context.Context, path string, p *payments.Payment, answer any) (status int, err error) {
	body, err := json.Marshal(question{p.X402Version, p.Payload, p.Requirements})
	if err != nil {
		return 0, fmt.Errorf("encode payment: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("facilitator: %w", err)
	}
	// Without it, net/http would send the request again on a new connection where the old one ends
	// before the answer, and only the caller may repeat a settlement.
	r.GetBody = nil
	r.Header.Set("Content-Type", "application/json")
	if status, err = c.do(r, answer); err != nil {
		return 0, err
	}
	refused := status >= 400 && status < 500 && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout
	if status != http.StatusOK && !refused {
		return 0, unknown(strings.TrimPrefix(path, "/"), status, "no answer of a facilitator")
	}
	return status, nil
}

// do sends a request and decodes the JSON of the answer, whatever its status.
func (c *Client) do(r *http.Request, answer any) (status int, err error) {
	r.Header.Set("Accept", "application/json")
	resp, err := c.client.Do(r)
	if err != nil {
		var in *url.Error // its text has the URL, which may be private
		if errors.As(err, &in) {
			err = in.Err
		}
		return 0, fmt.Errorf("%w: %w", payments.ErrFacilitator, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(http.MaxBytesReader(nil, resp.Body, maxAnswer))
	if err != nil {
		return 0, fmt.Errorf("%w: read answer: %w", payments.ErrFacilitator, err)
	}
	if json.Unmarshal(body, answer) != nil {
		return 0, unknown(strings.TrimPrefix(r.URL.Path, "/"), resp.StatusCode, "the answer is not JSON of the x402 protocol")
	}
	return resp.StatusCode, nil
}

// unknown returns the error for an answer that contains no decision.
func unknown(what string, status int, why string) error {
	return fmt.Errorf("%w: %s: HTTP status %d: %s", payments.ErrFacilitator, what, status, why)
}

// reason returns the facilitator's text in a form that is safe in headers and records, or
// otherwise if nothing remains.
func reason(text, otherwise string) string {
	if text = printable(text, maxReason); text == "" {
		return otherwise
	}
	return text
}

// printable returns at most most characters of text, without all that are not visible ASCII or
// spaces.
func printable(text string, most int) string {
	text = strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return -1
		}
		return c
	}, text)
	return strings.TrimSpace(text[:min(len(text), most)])
}

// CAIP2 returns the name that an EVM network with a chain id has in version 2 of x402.
func CAIP2(chainID int) string { return "eip155:" + strconv.Itoa(chainID) }
