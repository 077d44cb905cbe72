package console

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Limits of changes of many pins.
const (
	maxMany   = 200 // pins in one request
	manyAtOne = 16  // changes that run at the same time
	// exportRows is the number of pins that an export reads at a time.
	exportRows = 500
)

// outcome is the result of a change of one of many pins.
type outcome struct {
	What    string // the name or the CID of the pin, or the entered line if no pin was added
	CID     string // CID of a pin that was added; empty otherwise
	Line    string // the entered line; empty if none was entered
	Path    string // path of the page of the pin; empty if there is none
	Problem string // why the change failed; empty for success
}

// manyData is the data of the page after a change of many pins.
type manyData struct {
	Done     string    // the change in the past tense, such as "deleted"
	Outcomes []outcome // the failures first
	Failed   int       // number of outcomes with a Problem
	Again    string    // the lines that failed, to correct them; empty if none was entered
}

// each calls change for each of many pins, up to manyAtOne at the same time, and answers with a
// page that lists the outcomes. all has an outcome for each pin, in which What is set.
func (s *surface) each(c *call, done string, all []outcome, change func(i int) (pins.Record, error)) error {
	if len(all) == 0 {
		return web.BadRequest("no pin was chosen")
	}
	if len(all) > maxMany {
		return web.BadRequest("%d pins are too many: %d can be changed at once", len(all), maxMany)
	}
	var group errgroup.Group
	group.SetLimit(manyAtOne)
	for i := range all {
		group.Go(func() error {
			pin, err := change(i)
			if err != nil {
				all[i].Problem = s.oneOfMany(c, err).Detail
			} else if pin.ID != "" {
				all[i].Path = pathOf(pin)
			}
			return nil
		})
	}
	_ = group.Wait() // each has its own error
	d := manyData{Done: done, Outcomes: all}
	var again []string
	for i := range all {
		if all[i].Problem == "" {
			continue
		}
		d.Failed++
		if all[i].Line != "" {
			again = append(again, all[i].Line)
		}
	}
	d.Again = strings.Join(again, "\n")
	slices.SortStableFunc(all, func(a, b outcome) int { return cmp.Compare(rank(a), rank(b)) })
	return s.show(c, http.StatusOK, "pins-done", "Pins", "pins", d)
}

// rank returns the place of an outcome in the list: failures come first.
func rank(o outcome) int {
	if o.Problem != "" {
		return 0
	}
	return 1
}

// createPins serves POST /pins/create-many. It creates one pin for each line of the form, which
// has a CID and optionally a name.
func (s *surface) createPins(c *call) error {
	var all []outcome
	entered := c.r.PostForm.Get("lines")
	for line := range strings.Lines(entered) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, outcome{What: line, Line: line})
		}
	}
	switch n := len(all); {
	case n == 0:
		return s.showPinsOf(c, http.StatusBadRequest, pinsData{Many: entered, ManyError: "Enter a CID, or several, one a line."})
	case n > maxMany:
		return s.showPinsOf(c, http.StatusBadRequest, pinsData{Many: entered, ManyError: fmt.Sprintf(
			"Nothing was added: %d lines are %d too many. Add the first %d, then the others; or add them all with holdfast pin import.", n, n-maxMany, maxMany)})
	}
	return s.each(c, "added", all, func(i int) (pins.Record, error) {
		text, name := all[i].What, ""
		if at := strings.IndexFunc(text, unicode.IsSpace); at >= 0 { // tables are pasted with tabs
			text, name = text[:at], strings.TrimSpace(text[at:])
		}
		r, err := pinForm{CID: text, Name: name}.request()
		if err != nil {
			return pins.Record{}, err
		}
		pin, err := s.Pins.Create(c.asking(c.ctx), c.who.Account, r)
		if err == nil {
			all[i].What, all[i].CID = cmp.Or(name, "unnamed"), pin.CID
		}
		return pin, err
	})
}

// chosen returns the pins that are ticked in the list. The value of each checkbox is the id and
// the name of the pin.
func (c *call) chosen() (ids []state.RequestID, all []outcome) {
	for _, value := range c.r.PostForm["pin"] {
		id, name, _ := strings.Cut(value, " ")
		ids = append(ids, state.RequestID(id))
		all = append(all, outcome{What: name})
	}
	return ids, all
}

// deletePins serves POST /pins/delete-many: it deletes the pins that the user selected in the
// list.
func (s *surface) deletePins(c *call) error {
	ids, all := c.chosen()
	return s.each(c, "deleted", all, func(i int) (pins.Record, error) {
		return pins.Record{}, s.Pins.Delete(c.asking(c.ctx), c.who.Account, ids[i])
	})
}

// retryPins serves POST /pins/retry-many: it replaces each selected pin by a new request with the
// same values, so that the cluster tries to fetch its content again.
func (s *surface) retryPins(c *call) error {
	ids, all := c.chosen()
	return s.each(c, "started again", all, func(i int) (pins.Record, error) { return s.retry(c, ids[i]) })
}

// exported is a line of an export, with the members of a PinStatus of the Pinning Service API.
type exported struct {
	RequestID state.RequestID   `json:"requestid"`
	Status    string            `json:"status"`
	Created   time.Time         `json:"created"`
	Pin       exportedPin       `json:"pin"`
	Delegates []string          `json:"delegates"`
	Info      map[string]string `json:"info,omitempty"`
}

type exportedPin struct {
	CID     string            `json:"cid"`
	Name    string            `json:"name,omitempty"`
	Origins []string          `json:"origins,omitempty"`
	Meta    map[string]string `json:"meta,omitempty"`
}

// exportPins serves GET /pins/export: all pins that match the filter of the list, the newest
// first, as newline-delimited JSON. Pins that are created during the export may be missing.
func (s *surface) exportPins(c *call) error {
	q, err := filterOf(c.r.URL.Query()).query()
	if err != nil {
		return err
	}
	q.Limit = exportRows
	return export(c, "pins.ndjson", ndjson[exported](), func() (rows []exported, more bool, err error) {
		total, found, err := s.exportPage(c, q)
		for i := range found {
			r := &found[i]
			rows = append(rows, exported{
				r.ID, r.Status.String(), r.Created.Time().UTC(), exportedPin{r.CID, r.Name, r.Origins, r.Meta}, r.Delegates, r.Info,
			})
			q.Before = r.Created
		}
		return rows, len(rows) > 0 && total != uint64(len(rows)), err // long rows make a page short
	})
}

func (s *surface) exportPage(c *call, q state.PinQuery) (total uint64, rows []pins.Record, err error) {
	ctx, cancel := context.WithTimeout(c.r.Context(), caseTimeout)
	defer cancel()
	return s.Pins.List(ctx, c.who.Account, q)
}
