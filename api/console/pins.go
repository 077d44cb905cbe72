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
	"github.com/ipfs/go-cid"
)

// pinRows is the number of pins on one page of the list.
const pinRows = 50

// pinsData is the data of the page /pins.
type pinsData struct {
	Filter   filter
	Statuses []choice
	Matches  []choice
	Total    uint64
	Rows     []pins.Record
	Holders  [][]string // for each row, the names of the nodes that store its complete content
	Next     string     // address of the next page; empty if there is none
	Export   string     // address of the same list as a file
	Pinning  string     // address of the Pinning Service API; empty if there is none
	Form     pinForm
	Error    string

	Upload      uploadForm
	UploadError string

	Many, ManyError string // lines that the user entered to add many pins, and why none was added
}

// choice is an option of a select field.
type choice struct {
	Value, Name string
	Chosen      bool
}

// filter has the filter of a list of pins, as in the query of the page.
type filter struct {
	Status, Name, Match string
	CID                 string
	Meta                string // key=value
	From, To            string // first and last day, in UTC, in the form 2006-01-02
	Before              string // creation time of the last row of the previous page, RFC 3339 with milliseconds
}

// More reports whether a filter is set whose field the page hides by default.
func (f filter) More() bool { return f.CID != "" || f.Meta != "" || f.From != "" || f.To != "" }

// Any reports whether any filter is set.
func (f filter) Any() bool { return f != filter{Match: f.Match} }

// matches are the ways to compare names, with their values in the query and their names on the
// page.
var matches = []struct {
	value, name string
	match       state.Match
}{
	{"ipartial", "contains", state.IPartial},
	{"exact", "is", state.Exact},
	{"partial", "contains, exact case", state.Partial},
	{"iexact", "is, any case", state.IExact},
}

// pinsPage serves GET /pins, the list of the account's pins.
func (s *surface) pinsPage(c *call) error { return s.showPins(c, http.StatusOK, pinForm{}, "") }

func (s *surface) showPins(c *call, status int, form pinForm, problem string) error {
	return s.showPinsOf(c, status, pinsData{Form: form, Error: problem})
}

// showPinsOf answers with the page /pins. It fills in d, in which the caller has set the values
// of forms.
func (s *surface) showPinsOf(c *call, status int, d pinsData) error {
	f := filterOf(c.r.URL.Query())
	q, err := f.query()
	if err != nil {
		return err
	}
	d.Filter, d.Export, d.Pinning = f, "/pins/export?"+f.values().Encode(), s.endpoints(c).Pinning
	if d.Total, d.Rows, err = s.Pins.List(c.ctx, c.who.Account, q); err != nil {
		return err
	}
	if d.Holders, err = s.Pins.Holders(d.Rows); err != nil {
		return err
	}
	if n := len(d.Rows); n > 0 && d.Total > uint64(n) { // long rows make a page short
		next := f
		next.Before = d.Rows[n-1].Created.Time().Format(time.RFC3339Nano)
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

// filterOf returns the filter in the query of a request.
func filterOf(v url.Values) filter {
	var f filter
	for name, value := range f.fields() {
		*value = strings.TrimSpace(v.Get(name))
	}
	return f
}

// fields returns pointers to the fields of a filter by their query parameters.
func (f *filter) fields() map[string]*string {
	return map[string]*string{
		"status": &f.Status, "name": &f.Name, "match": &f.Match, "cid": &f.CID, "meta": &f.Meta, "from": &f.From, "to": &f.To, "before": &f.Before,
	}
}

// values returns the filter as query parameters.
func (f filter) values() url.Values {
	v := url.Values{}
	for name, value := range f.fields() {
		if *value != "" {
			v.Set(name, *value)
		}
	}
	return v
}

// day parses a day of the form 2006-01-02 and returns its beginning in UTC.
func day(text string) (time.Time, error) {
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return t, web.BadRequest("%q is not a date like 2026-01-31", text)
	}
	return t, nil
}

// query converts the filter to a query for Pins. Errors are those of invalid values.
func (f filter) query() (state.PinQuery, error) {
	q := state.PinQuery{Statuses: statuses, Name: f.Name, Match: matches[0].match, Limit: pinRows}
	if f.CID != "" {
		c, err := cid.Decode(f.CID)
		if err != nil {
			return q, web.BadRequest("%q is not a CID", f.CID)
		}
		q.CIDs = []cid.Cid{c}
	}
	if f.Meta != "" {
		meta, err := parseMeta(f.Meta)
		if err != nil {
			return q, err
		}
		q.Meta = meta
	}
	if f.From != "" {
		t, err := day(f.From)
		if err != nil {
			return q, err
		}
		q.After = state.MillisOf(t) - 1
	}
	if f.To != "" {
		t, err := day(f.To)
		if err != nil {
			return q, err
		}
		q.Before = state.MillisOf(t.AddDate(0, 0, 1))
	}
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
		if before := state.MillisOf(t); q.Before == 0 || before < q.Before {
			q.Before = before
		}
	}
	return q, nil
}
