package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Pin is the object that clients send and get echoed.
type Pin struct {
	CID     string            `json:"cid"`
	Name    string            `json:"name,omitempty"`
	Origins []string          `json:"origins,omitempty"`
	Meta    map[string]string `json:"meta,omitempty"`
}

// PinStatus answers every pin operation.
type PinStatus struct {
	RequestID string            `json:"requestid"`
	Status    string            `json:"status"`
	Created   string            `json:"created"`
	Pin       Pin               `json:"pin"`
	Delegates []string          `json:"delegates"`
	Info      map[string]string `json:"info"`
}

// PinResults is one page of a list.
type PinResults struct {
	Count   int         `json:"count"`
	Results []PinStatus `json:"results"`
}

// AllStatuses is the status filter that leaves nothing out.
const AllStatuses = "queued,pinning,pinned,failed"

// APIError is an answer other than success.
type APIError struct {
	Status     int
	Reason     string
	Details    string
	RetryAfter time.Duration // of the header; 0 when absent
}

// Error says what the service said.
func (e *APIError) Error() string {
	return fmt.Sprintf("HTTP %d %s: %s", e.Status, e.Reason, e.Details)
}

// Retryable says whether a client should try another node: the node could not
// be reached, or cannot serve now.
func Retryable(err error) bool {
	var api *APIError
	if errors.As(err, &api) {
		return api.Status >= http.StatusInternalServerError || api.Status == http.StatusTooManyRequests
	}
	return err != nil && !errors.Is(err, context.Canceled)
}

// maxAnswer bounds how much of an answer is read: a page of 1,000 pins with
// all that a pin may carry.
const maxAnswer = 128 << 20

// Response is a whole HTTP answer.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Reason returns the reason of a nested error body, or "" when there is none.
func (r Response) Reason() string { return r.apiError().Reason }

func (r Response) apiError() *APIError {
	var body struct {
		Error struct{ Reason, Details string } `json:"error"`
	}
	_ = json.Unmarshal(r.Body, &body) // flat and foreign bodies have no reason
	seconds, _ := strconv.Atoi(r.Header.Get("Retry-After"))
	return &APIError{
		Status: r.Status, Reason: body.Error.Reason, Details: body.Error.Details,
		RetryAfter: time.Duration(seconds) * time.Second,
	}
}

// PinsClient speaks the pinning API to one node with one token.
type PinsClient struct {
	Base  string // http://host:port
	Token string
	HTTP  *http.Client
}

// Do sends one request as it is. A nil header value removes a default header.
func (c *PinsClient) Do(ctx context.Context, method, path string, header http.Header, body []byte) (Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.Base+path, bytes.NewReader(body))
	if err != nil {
		return Response{}, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, values := range header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return Response{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return Response{}, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return Response{Status: resp.StatusCode, Header: resp.Header, Body: data}, nil
}

// call sends in as JSON, expects the status and decodes out strictly: a field
// that the specification does not have is an error.
func (c *PinsClient) call(ctx context.Context, method, path string, want int, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
	}
	resp, err := c.Do(ctx, method, path, nil, body)
	if err != nil {
		return err
	}
	if resp.Status != want {
		return fmt.Errorf("%s %s: %w", method, path, resp.apiError())
	}
	if out == nil {
		if len(resp.Body) != 0 {
			return fmt.Errorf("%s %s: body %q, want none", method, path, resp.Body)
		}
		return nil
	}
	if err := DecodeStrict(resp.Body, out); err != nil {
		return fmt.Errorf("%s %s: %w in %s", method, path, err, resp.Body)
	}
	return nil
}

// DecodeStrict decodes one JSON value and refuses fields that out lacks.
func DecodeStrict(data []byte, out any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(out); err != nil {
		return err
	}
	if rest := strings.TrimSpace(string(data[d.InputOffset():])); rest != "" {
		return fmt.Errorf("bytes after the value: %.40q", rest)
	}
	return nil
}

// Post creates a pin.
func (c *PinsClient) Post(ctx context.Context, p Pin) (PinStatus, error) {
	var s PinStatus
	err := c.call(ctx, http.MethodPost, "/pins", http.StatusAccepted, p, &s)
	return s, err
}

// Get reads one pin.
func (c *PinsClient) Get(ctx context.Context, id string) (PinStatus, error) {
	var s PinStatus
	err := c.call(ctx, http.MethodGet, "/pins/"+url.PathEscape(id), http.StatusOK, nil, &s)
	return s, err
}

// Replace puts p in the place of the pin with the id.
func (c *PinsClient) Replace(ctx context.Context, id string, p Pin) (PinStatus, error) {
	var s PinStatus
	err := c.call(ctx, http.MethodPost, "/pins/"+url.PathEscape(id), http.StatusAccepted, p, &s)
	return s, err
}

// Delete removes a pin.
func (c *PinsClient) Delete(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/pins/"+url.PathEscape(id), http.StatusAccepted, nil, nil)
}

// List reads one page. The query goes out as it is.
func (c *PinsClient) List(ctx context.Context, query url.Values) (PinResults, error) {
	var r PinResults
	path := "/pins"
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	err := c.call(ctx, http.MethodGet, path, http.StatusOK, nil, &r)
	return r, err
}

// ListAll returns all pins that match query, the newest first, in pages of at most page pins. A page of the
// service has a bound in bytes too, so it may be shorter; its count says whether it is the last.
func (c *PinsClient) ListAll(ctx context.Context, query url.Values, page int) ([]PinStatus, error) {
	q := url.Values{}
	for k, v := range query {
		q[k] = v
	}
	q.Set("limit", strconv.Itoa(page))
	if !q.Has("status") {
		q.Set("status", AllStatuses)
	}
	var all []PinStatus
	for {
		r, err := c.List(ctx, q)
		if err != nil {
			return nil, err
		}
		all = append(all, r.Results...)
		if len(r.Results) == 0 || r.Count <= len(r.Results) {
			return all, nil
		}
		q.Set("before", r.Results[len(r.Results)-1].Created)
	}
}
