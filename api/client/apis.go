package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// addressesPath is the path at which a gateway tells the addresses of the other APIs of its node.
const addressesPath = "/.well-known/holdfast"

// Limits of requests to the pinning API and the web API.
const (
	callTimeout  = 2 * time.Minute // for a request that transfers no file
	maxAnswer    = 64 << 20        // bytes of an answer; a page of pins has at most 4 MiB of text
	maxAddresses = 64 << 10        // bytes of the answer with the addresses
)

// addresses are the URLs of the APIs of a node other than the gateway. A URL is empty if the node does not
// serve the API.
type addresses struct {
	Pinning string `json:"pinning"` // base URL of the Pinning Service API
	Web     string `json:"web"`     // base URL of the web API
}

// api is an API of a node other than the gateway.
type api struct {
	name   string
	own    func(*Client) *nodes    // nodes with the URLs of this API in Options; nil if there are none
	of     func(*addresses) string // URL of this API
	prefix string                  // path below the URL in own
}

var (
	pinningAPI = api{"pinning API", func(c *Client) *nodes { return c.pinning }, func(a *addresses) string { return a.Pinning }, ""}
	webAPI     = api{"web API", func(c *Client) *nodes { return c.web }, func(a *addresses) string { return a.Web }, "/api/v1"}
)

// via calls send with the base URL of an API, on one node after another, as do does. If Options do not have
// the URLs of this API, via asks the gateway of each node for them.
func (c *Client) via(ctx context.Context, a api, op operation, send func(ctx context.Context, base string) error) error {
	list := a.own(c)
	known := list != nil
	if !known {
		list = c.nodes
	}
	_, err := c.on(ctx, list, op, func(ctx context.Context, n *node) error {
		base := n.endpoint + a.prefix
		if !known {
			told, err := n.told(ctx)
			if err != nil {
				return err
			}
			if base = a.of(told); base == "" {
				return &Error{Op: op.String(), Endpoint: n.endpoint, lasting: true, Err: fmt.Errorf("this node does not serve the %s to other machines: a profile can name the address of one that does", a.name)}
			}
		}
		err := send(ctx, base)
		if err == nil {
			return nil
		}
		seen, _ := ctx.Value(answerKey{}).(*answer)
		var source *sourceError
		if seen == nil || errors.As(err, &source) {
			return err
		}
		return describe(op, &node{endpoint: base}, err, *seen)
	})
	return err
}

// told returns the addresses of the other APIs of a node. It asks the gateway of the node once, without the
// credentials of the client.
func (n *node) told(ctx context.Context) (*addresses, error) {
	if known := n.others.Load(); known != nil {
		return known, nil
	}
	const op = "find the other APIs of the node"
	fail := func(format string, args ...any) (*addresses, error) { // each other node is asked once
		return nil, &Error{Op: op, Endpoint: n.endpoint, Err: fmt.Errorf(format, args...), lasting: true}
	}
	r, err := http.NewRequestWithContext(withoutToken(ctx), http.MethodGet, n.endpoint+addressesPath, nil)
	if err != nil {
		return nil, err
	}
	resp, err := n.by.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // opened only for reading
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAddresses))
	told := new(addresses)
	switch {
	case err != nil:
		return nil, &bodyError{err}
	case (&Error{Status: resp.StatusCode}).Temporary():
		return nil, &Error{Op: op, Endpoint: n.endpoint, Status: resp.StatusCode}
	case resp.StatusCode != http.StatusOK || json.Unmarshal(data, told) != nil:
		return fail("this is not the gateway of a Holdfast node, or it does not tell the addresses: a profile can name them")
	}
	for _, text := range []string{told.Pinning, told.Web} {
		u, err := url.Parse(text)
		if err != nil || text != "" && (u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			return fail("the gateway names %q, which is no URL", text)
		}
		if u.Scheme == "http" && strings.HasPrefix(n.endpoint, "https:") {
			return fail("the gateway names %s, which has no TLS as the gateway has: a profile can name another address", text)
		}
	}
	n.others.Store(told)
	return told, nil
}

// refusal is an error in the form of the Pinning Service API.
type refusal struct{ reason, details string }

func (r *refusal) Error() string { return r.reason + ": " + r.details }

// call sends one request with a JSON body, unless in is nil, and decodes the answer into out, unless out is
// nil. An answer with a status other than 2xx is a *refusal.
func (c *Client) call(ctx context.Context, method, target string, header http.Header, in, out any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, errStalled)
	defer cancel()
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return &sourceError{err}
		}
		body = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return &sourceError{err}
	}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, values := range header {
		r.Header[name] = values
	}
	resp, err := c.by.RoundTrip(r)
	if err != nil {
		return err
	}
	return answered(resp, out)
}

// answered reads and closes the body of an answer, as call describes.
func answered(resp *http.Response, out any) error {
	defer func() { _ = resp.Body.Close() }() // opened only for reading
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case resp.StatusCode/100 != 2:
		return refusalIn(data)
	case err != nil:
		return &bodyError{err}
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return &bodyError{fmt.Errorf("the answer cannot be read: %w", err)}
	}
	return nil
}

// refusalIn returns the error in the body of an answer. If the body has another form, as that of a proxy
// may have, the error has no reason and no details.
func refusalIn(data []byte) *refusal {
	var body struct {
		Error struct {
			Reason  string `json:"reason"`
			Details string `json:"details"`
		} `json:"error"`
	}
	if json.Unmarshal(data, &body) != nil {
		return &refusal{}
	}
	return &refusal{body.Error.Reason, body.Error.Details}
}
