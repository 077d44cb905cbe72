package console

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/audit"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// auditRows is the number of rows on a page of the audit log.
const auditRows = 50

// auditData is the data of the page /audit.
type auditData struct {
	Filter  map[string]string // values of the filter by query parameter
	Any     bool              // at least one filter is set
	Actions []actionFamily
	Rows    []auditRow
	Next    string // address of the next page; empty on the last page
	Export  string // address of the export of this list
	Verify  string // address of the button that verifies the log
	Result  *audit.Verification
}

// actionFamily is a group of related actions, such as all about keys, in the select field of the
// filter.
type actionFamily struct {
	Name, Value string
	Chosen      bool
	Actions     []choice
}

// auditRow is a row of the audit log with the texts that the page shows.
type auditRow struct {
	*state.AuditEntry
	Who  string // e-mail address of the actor, or the kind of an actor without one
	User string // path of the page of the actor's account; empty without an account
	What string // description of the change
}

// auditPage serves GET /audit, the page with the audit log of the cluster.
func (s *surface) auditPage(c *call) error { return s.showAudit(c, nil) }

// verifyAudit serves POST /audit/verify. It verifies the hash chain of the whole log and answers
// with the page /audit and the result.
func (s *surface) verifyAudit(c *call) error {
	v, err := s.Audit.Verify(c.ctx)
	if err != nil {
		return err
	}
	return s.showAudit(c, &v)
}

// auditFilter returns the filter in a query by parameter, and the same filter as query values
// without empty parameters.
func auditFilter(query url.Values) (filter map[string]string, values url.Values) {
	filter, values = map[string]string{}, url.Values{}
	for _, name := range web.AuditParams {
		text := strings.TrimSpace(query.Get(name))
		if name == "limit" || text == "" {
			continue
		}
		values.Set(name, text)
		filter[name] = text
	}
	return filter, values
}

func (s *surface) showAudit(c *call, result *audit.Verification) error {
	filter, values := auditFilter(c.r.URL.Query())
	q, err := web.AuditQuery(values)
	if err != nil {
		return err
	}
	q.Limit = auditRows
	page, err := s.Audit.List(c.ctx, q)
	if err != nil {
		return err
	}
	d := auditData{Filter: filter, Any: len(filter) > 0, Actions: actionFamilies(q.Action), Result: result}
	for i := range page.Rows {
		d.Rows = append(d.Rows, auditRowOf(&page.Rows[i]))
	}
	if page.Next > 0 {
		next, _ := url.ParseQuery(values.Encode())
		next.Set("cursor", strconv.FormatUint(page.Next, 10))
		d.Next = "/audit?" + next.Encode()
	}
	d.Verify = "/audit/verify?" + values.Encode()
	values.Del("cursor")
	d.Export = "/audit/export?" + values.Encode()
	return s.show(c, http.StatusOK, "audit", "Audit log", "cluster", d)
}

func auditRowOf(e *state.AuditEntry) auditRow {
	row := auditRow{AuditEntry: e, Who: e.Actor.Email, What: e.Detail}
	if row.Who == "" {
		row.Who = e.Actor.Kind.String()
	}
	if e.Actor.Account != "" {
		row.User = "/users/" + string(e.Actor.Account)
	}
	switch family := e.Action.Family(); {
	case e.Action == state.ActionMemberToken && row.What != "":
		row.What += " UTC" // the zone of the time at its end
	case e.Refused && e.Action == state.ActionSessionCreate && e.Target == "" && row.What == "":
		row.What = "a name without an account"
	case family == "bucket":
		_, name, _ := strings.Cut(e.Target, "/") // the name follows the id of the account
		row.What = name
		if e.Detail != "" {
			row.What += ", " + e.Detail
		}
	case family == "app":
		row.What = e.Target
	case e.Target != "" && (e.Action == state.ActionMemberJoin || e.Action == state.ActionMemberRemove): // names may be equal
		row.What = strings.TrimSpace(e.Detail + " " + short(e.Target))
	case row.What == "":
		row.What = short(e.Target)
	}
	return row
}

// actionFamilies returns the options of the filter's select field. chosen is the selected value.
func actionFamilies(chosen string) (all []actionFamily) {
	for _, a := range state.Actions() {
		if n := len(all); n == 0 || all[n-1].Value != a.Family() {
			all = append(all, actionFamily{Name: "any of " + a.Family(), Value: a.Family(), Chosen: chosen == a.Family()})
		}
		last := &all[len(all)-1]
		last.Actions = append(last.Actions, choice{string(a), string(a), chosen == string(a)})
	}
	return all
}

// exportAudit serves GET /audit/export: all rows that match the filter as newline-delimited JSON,
// the newest first.
func (s *surface) exportAudit(c *call) error {
	_, values := auditFilter(c.r.URL.Query())
	q, err := web.AuditQuery(values)
	if err != nil {
		return err
	}
	q.Limit = audit.MaxLimit
	return export(c, "audit.ndjson", ndjson[web.AuditRow](), func() (rows []web.AuditRow, more bool, err error) {
		page, err := s.auditRowsOf(c, q)
		for i := range page.Rows {
			rows = append(rows, web.AuditRowOf(&page.Rows[i]))
		}
		q.Before = page.Next
		return rows, page.Next != 0, err
	})
}

// auditRowsOf reads one page of an export.
func (s *surface) auditRowsOf(c *call, q audit.Query) (audit.Page, error) {
	ctx, cancel := context.WithTimeout(c.r.Context(), caseTimeout)
	defer cancel()
	return s.Audit.List(ctx, q)
}
