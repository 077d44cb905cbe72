// Package psa has the objects of the IPFS Pinning Service API 1.0.0 as clients of a cluster read and write
// them, and what all such clients do with a list of pins.
//
// Imports: the standard library.
// Never:   anything of ours.
package psa

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/url"
	"strconv"
	"strings"
)

// UntilHeader is the request header with the expiry of a pin, an extension of the Pinning Service API by
// Holdfast.
const UntilHeader = "X-Holdfast-Until"

// pageSize is the number of pins in each request of List.
const pageSize = 500

// Pin is the Pin object.
type Pin struct {
	CID     string            `json:"cid"`
	Name    string            `json:"name,omitempty"`
	Origins []string          `json:"origins,omitempty"`
	Meta    map[string]string `json:"meta,omitempty"`
	// Until is the expiry for a new pin: an RFC 3339 time, or a duration from now. Empty means no expiry. It
	// is not set in a PinStatus, where Info has the expiry as pinned_until.
	Until string `json:"-"`
}

// PinStatus is the PinStatus object.
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

// PinFilter selects pins that satisfy all of its fields. The zero value of a field selects all pins.
type PinFilter struct {
	CIDs     []string          // the pin has one of these CIDs; at most 10
	Statuses []string          // the pin has one of these statuses: queued, pinning, pinned, failed
	Name     string            // the pin has this name, compared by Match
	Match    string            // exact, iexact (ignores case), partial or ipartial; empty means exact
	Meta     map[string]string // the pin has all of these pairs
}

// Query returns the filter as query parameters of GET /pins.
func (f *PinFilter) Query() (url.Values, error) {
	q := url.Values{}
	for name, value := range map[string]string{
		"cid": strings.Join(f.CIDs, ","), "status": strings.Join(f.Statuses, ","), "name": f.Name, "match": f.Match,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if len(f.Meta) > 0 {
		meta, err := json.Marshal(f.Meta)
		if err != nil {
			return nil, fmt.Errorf("filter by meta: %w", err)
		}
		q.Set("meta", string(meta))
	}
	return q, nil
}

// Page is the answer to GET /pins.
type Page struct {
	Count   int         `json:"count"` // number of these rows and all older ones
	Results []PinStatus `json:"results"`
}

// List returns the pins that match query, the newest first. The sequence ends after its first error. get
// requests one page. List calls it until the count of a page shows that no older pins remain. The length of
// a page does not show this, because a page is also limited in bytes. List changes query.
func List(query url.Values, get func(url.Values) (Page, error)) iter.Seq2[PinStatus, error] {
	return func(yield func(PinStatus, error) bool) {
		query.Set("limit", strconv.Itoa(pageSize))
		for {
			page, err := get(query)
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

// None is a sequence of an error alone.
func None(err error) iter.Seq2[PinStatus, error] {
	return func(yield func(PinStatus, error) bool) { yield(PinStatus{}, err) }
}
