package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/psa"
)

// The objects of the Pinning Service API 1.0.0, and a filter of lists.
type (
	Pin       = psa.Pin
	PinStatus = psa.PinStatus
	PinFilter = psa.PinFilter
)

// pollEvery is the interval of the requests of WaitPin.
const pollEvery = 250 * time.Millisecond

// AddPin pins a CID for the account with the e-mail address user. An empty user means the
// operator.
func (c *Client) AddPin(ctx context.Context, user string, p Pin) (s PinStatus, err error) {
	return s, c.call(ctx, http.MethodPost, "/pins", as(user), p, &s, func(r *http.Request) {
		if p.Until != "" {
			r.Header.Set(psa.UntilHeader, p.Until)
		}
	})
}

// Pin returns the pin of user with a request id. An empty user means the operator.
func (c *Client) Pin(ctx context.Context, user, id string) (s PinStatus, err error) {
	return s, c.call(ctx, http.MethodGet, "/pins/"+url.PathEscape(id), as(user), nil, &s)
}

// RemovePin removes the pin of user with a request id. An empty user means the operator.
func (c *Client) RemovePin(ctx context.Context, user, id string) error {
	return c.call(ctx, http.MethodDelete, "/pins/"+url.PathEscape(id), as(user), nil, nil)
}

// Pins returns the pins of user that match f, the newest first. An empty user means the operator.
// The sequence ends after its first error. Pins requests one page after the other.
func (c *Client) Pins(ctx context.Context, user string, f PinFilter) iter.Seq2[PinStatus, error] {
	query, err := f.Query()
	if err != nil {
		return psa.None(err)
	}
	if user != "" {
		query.Set("user", user)
	}
	return psa.List(query, func(q url.Values) (page psa.Page, err error) {
		err = c.call(ctx, http.MethodGet, "/pins", q, nil, &page)
		return page, err
	})
}

// PinsOf returns the newest pins of user that have the given CID, in any status. A name that is
// not empty selects only pins with this name. An empty user means the operator. The result is one
// page: at most 1,000 pins, or fewer if they are large.
func (c *Client) PinsOf(ctx context.Context, user, cid, name string) ([]PinStatus, error) {
	query := url.Values{"cid": {cid}, "limit": {"1000"}}
	if name != "" {
		query.Set("name", name)
	}
	if user != "" {
		query.Set("user", user)
	}
	var page psa.Page
	err := c.call(ctx, http.MethodGet, "/pins", query, nil, &page)
	return page.Results, err
}

// WaitPin polls a pin of user until it is pinned or has failed, and returns its last state. An
// empty user means the operator. WaitPin calls seen, unless it is nil, for each change of the
// status. A failed pin is no error. WaitPin retries after status 503, and returns all other
// errors and the error of ctx.
func (c *Client) WaitPin(ctx context.Context, user, id string, seen func(PinStatus)) (PinStatus, error) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var last PinStatus
	for {
		s, err := c.Pin(ctx, user, id)
		var refused *Error
		busy := errors.As(err, &refused) && refused.Status == http.StatusServiceUnavailable
		if err != nil && !busy {
			return last, err
		}
		if busy {
			s = last
		}
		if seen != nil && (s.Status != last.Status || s.Info["status_details"] != last.Info["status_details"]) {
			seen(s)
		}
		if last = s; s.Done() {
			return s, nil
		}
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("wait for pin %s: %w", id, ctx.Err())
		case <-tick.C:
		}
	}
}
