package client

import (
	"context"
	"crypto/rand"
	"errors"
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

// Parameters of requests for pins.
const (
	pinWait  = "30s"                  // time for which a node delays the answer to WaitPin until the pin changes
	leastGap = 250 * time.Millisecond // least time between two requests of WaitPin
)

// AddPin pins a CID. If the answer of a node is lost, the repeated request makes no second pin.
func (c *Client) AddPin(ctx context.Context, p Pin) (s PinStatus, err error) {
	header := http.Header{"Idempotency-Key": {rand.Text()}}
	if p.Until != "" {
		header.Set(psa.UntilHeader, p.Until)
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

// Pins returns the pins that match f, the newest first. Without statuses it returns those of every status: the
// specification's default is pinned. The sequence ends after its first error. Pins requests one page after the
// other.
func (c *Client) Pins(ctx context.Context, f PinFilter) iter.Seq2[PinStatus, error] {
	if len(f.Statuses) == 0 {
		f.Statuses = []string{"queued", "pinning", "pinned", "failed"}
	}
	query, err := f.Query()
	if err != nil {
		return psa.None(err)
	}
	return psa.List(query, func(q url.Values) (page psa.Page, err error) {
		err = c.via(ctx, pinningAPI, operation{verb: "pin ls"}, func(ctx context.Context, base string) error {
			page = psa.Page{}
			return c.call(ctx, http.MethodGet, base+"/pins?"+q.Encode(), nil, nil, &page)
		})
		return page, err
	})
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
