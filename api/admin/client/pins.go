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
	// Until is the end that AddPin asks for: an RFC 3339 time, or a duration from now. Empty: none. In
	// a PinStatus the end is the pinned_until of Info.
	Until string `json:"-"`
}

// PinStatus is the PinStatus object of the same API.
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

// Bounds of reading pins.
const (
	pageSize  = 500
	pollEvery = 250 * time.Millisecond
)

// untilHeader is the header of the Pinning Service API with the end of a pin, an extension of
// Holdfast.
const untilHeader = "X-Holdfast-Until"

// AddPin pins a CID for a user; an empty user is the operator.
func (c *Client) AddPin(ctx context.Context, user string, p Pin) (s PinStatus, err error) {
	return s, c.call(ctx, http.MethodPost, "/pins", as(user), p, &s, func(r *http.Request) {
		if p.Until != "" {
			r.Header.Set(untilHeader, p.Until)
		}
	})
}

// Pin returns one pin of a user; an empty user is the operator.
func (c *Client) Pin(ctx context.Context, user, id string) (s PinStatus, err error) {
	return s, c.call(ctx, http.MethodGet, "/pins/"+url.PathEscape(id), as(user), nil, &s)
}

// RemovePin removes one pin of a user; an empty user is the operator.
func (c *Client) RemovePin(ctx context.Context, user, id string) error {
	return c.call(ctx, http.MethodDelete, "/pins/"+url.PathEscape(id), as(user), nil, nil)
}

// PinFilter selects pins. The zero value of a field selects all.
type PinFilter struct {
	CIDs     []string          // any of these, at most 10
	Statuses []string          // any of queued, pinning, pinned and failed
	Name     string            // compared as Match says
	Match    string            // exact, iexact, partial or ipartial; empty: exact
	Meta     map[string]string // pairs that a pin must have
}

// query returns the parameters of a request for a list.
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

// Pins returns the pins of a user that a filter selects, newest first; an empty user is the
// operator. The sequence ends after its first error. Pins requests them in pages, and continues
// until the count of a page says that no older pins are left: a page may be shorter than requested,
// because its bytes are limited too.
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

// PinsOf returns the newest pins of a user that have the given CID, in all statuses, and, if name
// is not empty, only those that have this name too; an empty user is the operator. The result is
// one page of at most 1,000 pins, and of fewer if they are large.
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

// WaitPin waits until a pin is pinned or has failed, and returns its last state; an empty user is
// the operator. WaitPin calls seen, unless it is nil, with each new state. A failed pin is no
// error. If the node answers 503, WaitPin asks again; it returns each other error, and that of ctx.
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
