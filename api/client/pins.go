package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
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
	// Until is the expiry for AddPin: an RFC 3339 time, or a duration from now. Empty means no expiry. It is
	// not set in a PinStatus, where Info has the expiry as pinned_until.
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
func (s *PinStatus) Done() bool { return s.Status == "pinned" || s.Status == "failed" }

// PinFilter selects pins that satisfy all of its fields. The zero value of a field selects all pins.
type PinFilter struct {
	CIDs     []string          // the pin has one of these CIDs; at most 10
	Statuses []string          // the pin has one of these statuses
	Name     string            // the pin has this name, compared by Match
	Match    string            // exact, iexact, partial or ipartial; empty means exact
	Meta     map[string]string // the pin has all of these pairs
}

// Parameters of requests for pins.
const (
	pinPage  = 500                    // pins in each request of Pins
	pinWait  = "30s"                  // time for which a node delays the answer to WaitPin until the pin changes
	leastGap = 250 * time.Millisecond // least time between two requests of WaitPin
)

// AddPin pins a CID. If the answer of a node is lost, the repeated request makes no second pin.
func (c *Client) AddPin(ctx context.Context, p Pin) (s PinStatus, err error) {
	header := http.Header{"Idempotency-Key": {rand.Text()}}
	if p.Until != "" {
		header["X-Holdfast-Until"] = []string{p.Until}
	}
	return s, c.via(ctx, pinningAPI, operation{verb: "pin add"}, func(ctx context.Context, base string) error {
		return c.call(ctx, http.MethodPost, base+"/pins", header, p, &s)
	})
}

// Pin returns the pin with a request id.
func (c *Client) Pin(ctx context.Context, id string) (PinStatus, error) { return c.pin(ctx, id, "") }

func (c *Client) pin(ctx context.Context, id, query string) (s PinStatus, err error) {
	return s, c.via(ctx, pinningAPI, operation{verb: "pin get"}, func(ctx context.Context, base string) error {
		s = PinStatus{}
		return c.call(ctx, http.MethodGet, base+"/pins/"+url.PathEscape(id)+query, nil, nil, &s)
	})
}

// RemovePin removes the pin with a request id.
func (c *Client) RemovePin(ctx context.Context, id string) error {
	lost := false // a node may have removed the pin, and its answer was lost
	return c.via(ctx, pinningAPI, operation{verb: "pin rm"}, func(ctx context.Context, base string) error {
		err := c.call(ctx, http.MethodDelete, base+"/pins/"+url.PathEscape(id), nil, nil, nil)
		seen, _ := ctx.Value(answerKey{}).(*answer)
		var refused *refusal
		switch {
		case lost && errors.As(err, &refused) && seen != nil && seen.status == http.StatusNotFound:
			return nil
		case err != nil:
			lost = true
		}
		return err
	})
}

// Pins returns the pins that match f, the newest first. The sequence ends after its first error. Pins requests
// one page after the other until the count of a page shows that no older pins remain.
func (c *Client) Pins(ctx context.Context, f PinFilter) iter.Seq2[PinStatus, error] {
	return func(yield func(PinStatus, error) bool) {
		query, err := f.query()
		if err != nil {
			yield(PinStatus{}, err)
			return
		}
		for {
			var page struct {
				Count   int         `json:"count"` // number of these rows and all older ones
				Results []PinStatus `json:"results"`
			}
			err := c.via(ctx, pinningAPI, operation{verb: "pin ls"}, func(ctx context.Context, base string) error {
				page.Results = nil
				return c.call(ctx, http.MethodGet, base+"/pins?"+query.Encode(), nil, nil, &page)
			})
			if err != nil {
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

// query returns the filter as the query of GET /pins. Without statuses it selects every status, because the
// specification's default is pinned.
func (f *PinFilter) query() (url.Values, error) {
	statuses := f.Statuses
	if len(statuses) == 0 {
		statuses = []string{"queued", "pinning", "pinned", "failed"}
	}
	q := url.Values{"limit": {strconv.Itoa(pinPage)}, "status": {strings.Join(statuses, ",")}}
	for name, value := range map[string]string{"cid": strings.Join(f.CIDs, ","), "name": f.Name, "match": f.Match} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if len(f.Meta) > 0 {
		meta, err := json.Marshal(f.Meta)
		if err != nil {
			return nil, err
		}
		q.Set("meta", string(meta))
	}
	return q, nil
}

// WaitPin waits until a pin is pinned or has failed, and returns its last state. It calls seen, unless that is
// nil, for each change of the status. A failed pin is no error. WaitPin returns the first error that Pin
// returns, and the error of ctx.
func (c *Client) WaitPin(ctx context.Context, id string, seen func(PinStatus)) (PinStatus, error) {
	var last PinStatus
	query := "" // the first answer comes at once
	for {
		began := time.Now()
		s, err := c.pin(ctx, id, query)
		if err != nil {
			return last, err
		}
		if seen != nil && (s.Status != last.Status || s.Info["status_details"] != last.Info["status_details"]) {
			seen(s)
		}
		if last = s; s.Done() {
			return s, nil
		}
		query = "?wait=" + pinWait
		if err := sleep(ctx, leastGap-time.Since(began)); err != nil {
			return last, err
		}
	}
}
