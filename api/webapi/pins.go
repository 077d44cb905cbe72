package webapi

import (
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// pinBody is a pin.
type pinBody struct {
	ID        state.RequestID   `json:"id"`
	CID       string            `json:"cid"`
	Name      string            `json:"name"`
	Status    string            `json:"status"`
	Created   string            `json:"created"`
	Origins   []string          `json:"origins,omitempty"`
	Meta      map[string]string `json:"meta,omitempty"`
	Delegates []string          `json:"delegates"`
	Info      map[string]string `json:"info,omitempty"`
}

func bodyOfPin(r *pins.Record) pinBody {
	return pinBody{r.ID, r.CID, r.Name, r.Status.String(), timeText(r.Created.Time()), r.Origins, r.Meta, r.Delegates, r.Info}
}

// pinsBody is a page of pins.
type pinsBody struct {
	Count   uint64    `json:"count"` // number of matching pins on this page and all later pages
	Results []pinBody `json:"results"`
	Next    string    `json:"next,omitempty"` // cursor of the next page
}

// matches maps the query parameter match to a way to compare names, as in the Pinning Service
// API.
var matches = map[string]state.Match{
	"": state.Exact, "exact": state.Exact, "iexact": state.IExact, "partial": state.Partial, "ipartial": state.IPartial,
}

// listPins answers GET /pins, the newest pin first.
func (s *surface) listPins(c *call) error {
	q, err := c.pinQuery()
	if err != nil {
		return err
	}
	total, rows, err := s.Pins.List(c.ctx, c.who.Account, q)
	if err != nil {
		return fmt.Errorf("list pins: %w", err)
	}
	body := pinsBody{Count: total, Results: []pinBody{}}
	for i := range rows {
		if err := c.held.Grow(int64(state.ListBytes(&rows[i].Pin))); err != nil {
			return err
		}
		body.Results = append(body.Results, bodyOfPin(&rows[i]))
	}
	if n := len(rows); n > 0 && total > uint64(n) {
		body.Next = cursorOf(strconv.FormatInt(int64(rows[n-1].Created), 10))
	}
	return c.ok(body)
}

// pinQuery parses the query of a list of pins. Errors are 400. The position in a cursor is a
// creation time, which is unique within an account.
func (c *call) pinQuery() (q state.PinQuery, err error) {
	if q.Limit, err = c.limit(); err != nil {
		return q, err
	}
	place, err := c.cursor()
	if err != nil {
		return q, err
	}
	if place != "" {
		before, err := strconv.ParseInt(place, 10, 64)
		if err != nil || before <= 0 {
			return q, errCursor
		}
		q.Before = state.Millis(before)
	}
	status := c.query.Get("status")
	for _, known := range state.Statuses() {
		if !c.query.Has("status") || known.String() == status {
			q.Statuses = append(q.Statuses, known)
		}
	}
	if len(q.Statuses) == 0 {
		return q, web.BadRequest("status must be one of queued, pinning, pinned, failed")
	}
	match, known := matches[c.query.Get("match")]
	if !known {
		return q, web.BadRequest("match must be one of exact, iexact, partial, ipartial")
	}
	q.Name, q.Match = c.query.Get("name"), match
	if n := utf8.RuneCountInString(q.Name); n > state.MaxNameRunes {
		return q, web.BadRequest("name has %d characters, at most %d are allowed", n, state.MaxNameRunes)
	}
	return q, nil
}

// createPin answers POST /pins. When it has answered, the record of the pin is durable; the
// cluster fetches the content in the background.
func (s *surface) createPin(c *call) error {
	cid, err := c.text("cid")
	if err != nil {
		return err
	}
	r := pins.Request{CID: cid}
	var given bool
	if r.Name, given, err = c.fields.Text("name"); err != nil {
		return err
	} else if given {
		r.Given |= state.GivenName
	}
	if r.Origins, given, err = c.fields.Texts("origins"); err != nil {
		return err
	} else if given {
		r.Given |= state.GivenOrigins
	}
	if r.Meta, given, err = c.fields.Strings("meta"); err != nil {
		return err
	} else if given {
		r.Given |= state.GivenMeta
	}
	until, given, err := c.fields.Text("until")
	if err == nil && given {
		r.End, err = pins.ParseEnd(until)
	}
	if err != nil {
		return err
	}
	pin, err := s.Pins.Create(c.ctx, c.who.Account, r)
	if err != nil {
		return fmt.Errorf("create pin: %w", err)
	}
	return c.created(bodyOfPin(&pin))
}

// getPin answers GET /pins/{id} with one pin of the caller's account.
func (s *surface) getPin(c *call) error {
	pin, err := s.Pins.Get(c.ctx, c.who.Account, state.RequestID(c.id()))
	if err != nil {
		return fmt.Errorf("get pin: %w", err)
	}
	return c.ok(bodyOfPin(&pin))
}

// deletePin answers DELETE /pins/{id}: it deletes a pin of the caller's account.
func (s *surface) deletePin(c *call) error {
	if err := s.Pins.Delete(c.ctx, c.who.Account, state.RequestID(c.id())); err != nil {
		return fmt.Errorf("delete pin: %w", err)
	}
	return c.done()
}
