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

// Pin is the Pin object of the Pinning Service API, which a client sends and which answers repeat.
type Pin struct {
	CID     string            `json:"cid"`
	Name    string            `json:"name,omitempty"`
	Origins []string          `json:"origins,omitempty"`
	Meta    map[string]string `json:"meta,omitempty"`
}

// PinStatus is the PinStatus object of the Pinning Service API: one pin with its status.
type PinStatus struct {
	RequestID string            `json:"requestid"`
	Status    string            `json:"status"`
	Created   string            `json:"created"`
	Pin       Pin               `json:"pin"`
	Delegates []string          `json:"delegates"`
	Info      map[string]string `json:"info"`
}

// PinResults is one page of a list of pins. Count is the number of all matching pins.
type PinResults struct {
	Count   int         `json:"count"`
	Results []PinStatus `json:"results"`
}

// AllStatuses is a status filter that matches every pin.
const AllStatuses = "queued,pinning,pinned,failed"

// APIError is an answer of the API that is not a success.
type APIError struct {
	Status     int
	Reason     string
	Details    string
	RetryAfter time.Duration // value of the header Retry-After; 0 if it is absent
}

// Error returns the status, the reason and the details of the answer.
func (e *APIError) Error() string {
	return fmt.Sprintf("HTTP %d %s: %s", e.Status, e.Reason, e.Details)
}

// Retryable reports whether a client should send the request to another node: after status 429 or 5xx,
// and after any error that is not an APIError, except context.Canceled.
func Retryable(err error) bool {
	var api *APIError
	if errors.As(err, &api) {
		return api.Status >= http.StatusInternalServerError || api.Status == http.StatusTooManyRequests
	}
	return err != nil && !errors.Is(err, context.Canceled)
}

// maxAnswer is the largest number of bytes that are read of an answer. A page of 1,000 pins of the
// largest permitted size fits.
const maxAnswer = 128 << 20

// Response is a complete HTTP answer.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Reason returns the reason in the error body of the Pinning Service API, or "" if the body has
// none.
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

// PinsClient is a client of the pinning API of one node, with one token.
type PinsClient struct {
	Base  string // http://host:port
	Token string
	HTTP  *http.Client
}

// Do sends one request with the token and the headers and returns the answer, without regard to its
// status. A header whose value is nil removes the default header of that name.
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

// call sends the JSON encoding of in, or no body if in is nil. It returns an *APIError unless the
// answer has the status want, and decodes the answer into the variable that out points to. A field
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

// DecodeStrict decodes one JSON value into the variable that out points to, and returns an error
// for a field that out does not have.
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

// Replace replaces the pin with this id by p.
func (c *PinsClient) Replace(ctx context.Context, id string, p Pin) (PinStatus, error) {
	var s PinStatus
	err := c.call(ctx, http.MethodPost, "/pins/"+url.PathEscape(id), http.StatusAccepted, p, &s)
	return s, err
}

// Delete removes a pin.
func (c *PinsClient) Delete(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/pins/"+url.PathEscape(id), http.StatusAccepted, nil, nil)
}

// List reads one page. It sends the query unchanged.
func (c *PinsClient) List(ctx context.Context, query url.Values) (PinResults, error) {
	var r PinResults
	path := "/pins"
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	err := c.call(ctx, http.MethodGet, path, http.StatusOK, nil, &r)
	return r, err
}

// ListAll returns all pins that match query, the newest first. It reads pages of at most page pins.
// The service also limits the size of a page in bytes, so a page may be shorter; its count shows
// whether it is the last.
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
