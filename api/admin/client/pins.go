package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Pin is the Pin object of the Pinning Service API 1.0.0.
type Pin struct {
	CID     string            `json:"cid"`
	Name    string            `json:"name,omitempty"`
	Origins []string          `json:"origins,omitempty"`
	Meta    map[string]string `json:"meta,omitempty"`
	// Until is the expiry for AddPin: an RFC 3339 time, or a duration from now. Empty means no expiry.
	// It is not set in a PinStatus, where Info has the expiry as pinned_until.
	Until string `json:"-"`
}

// PinStatus is the PinStatus object of the Pinning Service API 1.0.0.
type PinStatus struct {
	RequestID string            `json:"requestid"`
	Status    string            `json:"status"` // queued, pinning, pinned or failed
	Created   string            `json:"created"`
	Pin       Pin               `json:"pin"`
	Delegates []string          `json:"delegates"`
	Info      map[string]string `json:"info,omitempty"`
}

// Done reports whether the status is final: pinned or failed.
func (s PinStatus) Done() bool { return s.Status == "pinned" || s.Status == "failed" }

// Parameters of the requests for pins.
const (
	pageSize  = 500                    // pins in each request of Pins
	pollEvery = 250 * time.Millisecond // interval of requests of WaitPin
)

// untilHeader is the request header with the expiry of a pin, an extension of the Pinning Service
// API by Holdfast.
const untilHeader = "X-Holdfast-Until"

// AddPin pins a CID for the account with the e-mail address user. An empty user means the
// operator.
func (c *Client) AddPin(ctx context.Context, user string, p Pin) (s PinStatus, err error) {
	return s, c.call(ctx, http.MethodPost, "/pins", as(user), p, &s, func(r *http.Request) {
		if p.Until != "" {
			r.Header.Set(untilHeader, p.Until)
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

// PinFilter selects pins that satisfy all of its fields. The zero value of a field selects all
// pins.
type PinFilter struct {
	CIDs     []string          // the pin has one of these CIDs; at most 10
	Statuses []string          // the pin has one of these statuses: queued, pinning, pinned, failed
	Name     string            // the pin has this name, compared by Match
	Match    string            // exact, iexact (ignores case), partial or ipartial; empty means exact
	Meta     map[string]string // the pin has all of these pairs
}

// query returns the filter as query parameters of GET /pins.
func (f *PinFilter) query() (url.Values, error) {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("cid", strings.Join(f.CIDs, ","))
	set("status", strings.Join(f.Statuses, ","))
	set("name", f.Name)
	set("match", f.Match)
	if len(f.Meta) > 0 {
		meta, err := json.Marshal(f.Meta)
		if err != nil {
			return nil, fmt.Errorf("filter by meta: %w", err)
		}
		q.Set("meta", string(meta))
	}
	return q, nil
}

// Pins returns the pins of user that match f, the newest first. An empty user means the operator.
// The sequence ends after its first error. Pins requests one page after the other until the count
// of a page shows that no older pins remain. The length of a page does not show this, because a
// page is also limited in bytes.
func (c *Client) Pins(ctx context.Context, user string, f PinFilter) iter.Seq2[PinStatus, error] {
	return func(yield func(PinStatus, error) bool) {
		query, err := f.query()
		if err != nil {
			yield(PinStatus{}, err)
			return
		}
		query.Set("limit", strconv.Itoa(pageSize))
		if user != "" {
			query.Set("user", user)
		}
		for {
			var page struct {
				Count   int         `json:"count"` // number of these rows and all older ones
				Results []PinStatus `json:"results"`
			}
			if err := c.call(ctx, http.MethodGet, "/pins", query, nil, &page); err != nil {
				yield(PinStatus{}, err)
				return
			}
			for _, s := range page.Results {
				if !yield(s, nil) {
					return
				}
			}
			if len(page.Results) == 0 || page.Count <= len(page.Results) {
				return
			}
			query.Set("before", page.Results[len(page.Results)-1].Created)
		}
	}
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
	var page struct {
		Results []PinStatus `json:"results"`
	}
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
