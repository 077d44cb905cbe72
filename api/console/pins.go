package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// pinRows is how many pins a page of the list has.
const pinRows = 50

// pinsData is what the page of pins shows.
type pinsData struct {
	Filter   filter
	Statuses []choice
	Matches  []choice
	Total    uint64
	Rows     []pins.Record
	Next     string // the address of the next page; empty: there is none
	Form     pinForm
	Error    string
}

// choice is a value of a select field.
type choice struct {
	Value, Name string
	Chosen      bool
}

// filter is what a list of pins is limited to, as the address of the page has it.
type filter struct {
	Status, Name, Match string
	Before              string // RFC 3339 with milliseconds; the last row of the page before
}

// pinForm is the form of a new pin.
type pinForm struct{ CID, Name, Origins string }

// matches are the ways to compare names, as in the Pinning Service API.
var matches = []struct {
	value, name string
	match       state.Match
}{
	{"ipartial", "contains", state.IPartial},
	{"exact", "is", state.Exact},
	{"partial", "contains, exact case", state.Partial},
	{"iexact", "is, any case", state.IExact},
}

// pinsPage serves GET /pins.
func (s *surface) pinsPage(c *call) error { return s.showPins(c, http.StatusOK, pinForm{}, "") }

func (s *surface) showPins(c *call, status int, form pinForm, problem string) error {
	values := c.r.URL.Query()
	f := filter{Status: values.Get("status"), Name: values.Get("name"), Match: values.Get("match"), Before: values.Get("before")}
	q, err := f.query()
	if err != nil {
		return err
	}
	d := pinsData{Filter: f, Form: form, Error: problem}
	if d.Total, d.Rows, err = s.Pins.List(c.ctx, c.who.Account, q); err != nil {
		return err
	}
	if len(d.Rows) == pinRows {
		next := f
		next.Before = d.Rows[pinRows-1].Created.Time().Format(time.RFC3339Nano)
		d.Next = "/pins?" + next.values().Encode()
	}
	d.Statuses = []choice{{"", "any status", f.Status == ""}}
	for _, st := range statuses {
		d.Statuses = append(d.Statuses, choice{st.String(), st.String(), f.Status == st.String()})
	}
	for _, m := range matches {
		d.Matches = append(d.Matches, choice{m.value, m.name, f.Match == m.value})
	}
	return s.show(c, status, "pins", "Pins", "pins", d)
}

// query is the filter as the use case takes it.
func (f filter) query() (state.PinQuery, error) {
	q := state.PinQuery{Statuses: statuses, Name: f.Name, Match: matches[0].match, Limit: pinRows}
	if f.Status != "" {
		at := slices.IndexFunc(statuses, func(st state.Status) bool { return st.String() == f.Status })
		if at < 0 {
			return q, web.BadRequest("no status %q", f.Status)
		}
		q.Statuses = statuses[at : at+1]
	}
	if f.Match != "" {
		found := false
		for _, m := range matches {
			if m.value == f.Match {
				q.Match, found = m.match, true
			}
		}
		if !found {
			return q, web.BadRequest("no way to compare names %q", f.Match)
		}
	}
	if f.Before != "" {
		t, err := time.Parse(time.RFC3339Nano, f.Before)
		if err != nil {
			return q, web.BadRequest("the time %q is not of RFC 3339", f.Before)
		}
		q.Before = state.MillisOf(t)
	}
	return q, nil
}

// values is the filter as the query of an address.
func (f filter) values() url.Values {
	v := url.Values{}
	for name, value := range map[string]string{"status": f.Status, "name": f.Name, "match": f.Match, "before": f.Before} {
		if value != "" {
			v.Set(name, value)
		}
	}
	return v
}

// createPin serves POST /pins.
func (s *surface) createPin(c *call) error {
	form := pinForm{strings.TrimSpace(c.r.PostForm.Get("cid")), c.r.PostForm.Get("name"), c.r.PostForm.Get("origins")}
	r := pins.Request{CID: form.CID, Name: form.Name, Origins: strings.Fields(form.Origins)}
	if r.Name != "" {
		r.Given |= state.GivenName
	}
	if len(r.Origins) > 0 {
		r.Given |= state.GivenOrigins
	}
	pin, err := s.Pins.Create(c.ctx, c.who.Account, r)
	if problem := refusal(err, state.CodeInvalid, state.CodeQuota, state.CodeNoSpace); problem != "" {
		return s.showPins(c, http.StatusBadRequest, form, problem)
	}
	if err != nil {
		return err
	}
	return c.redirect("/pins/" + url.PathEscape(string(pin.ID)))
}

// pinPage serves GET /pins/{id}.
func (s *surface) pinPage(c *call) error {
	pin, err := s.Pins.Get(c.ctx, c.who.Account, state.RequestID(c.r.PathValue("id")))
	if err != nil {
		return err
	}
	title := pin.Name
	if title == "" {
		title = short(pin.CID)
	}
	return s.show(c, http.StatusOK, "pin", title, "pins", pin)
}

// deletePin serves POST /pins/{id}/delete.
func (s *surface) deletePin(c *call) error {
	if err := s.Pins.Delete(c.ctx, c.who.Account, state.RequestID(c.r.PathValue("id"))); err != nil {
		return err
	}
	return c.redirect("/pins")
}
