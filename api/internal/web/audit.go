package web

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/audit"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Actor returns the actor of a request for the audit log: its account, its key or session, and
// its client address. who must not be nil; for a request without credentials it points to a zero
// Principal.
func (l *Limits) Actor(r *http.Request, who *accounts.Principal) state.Actor {
	by := state.Actor{Kind: state.ActorAnonymous, Account: who.Account, Email: who.Email, Key: who.KeyID, Session: who.Session}
	switch {
	case who.Session != "":
		by.Kind = state.ActorSession
	case who.KeyID != "":
		by.Kind = state.ActorKey
	}
	if from := l.Client(r); from.IsValid() {
		by.Addr = from.String()
	}
	return by
}

// AuditRow is a row of the audit log in JSON.
type AuditRow struct {
	Seq     uint64     `json:"seq"`
	Time    string     `json:"time"` // RFC 3339 with milliseconds, UTC
	Actor   AuditActor `json:"actor"`
	Action  string     `json:"action"`
	Target  string     `json:"target"`
	Detail  string     `json:"detail"`
	Outcome string     `json:"outcome"` // "done" or "refused"
	Count   uint64     `json:"count"`   // number of refused attempts that the row stands for; 1 for a change
	Hash    string     `json:"hash"`
}

// AuditActor describes who asked for a change, and from where.
type AuditActor struct {
	Kind    string `json:"kind"`
	Account string `json:"account,omitempty"`
	Email   string `json:"email,omitempty"`
	Key     string `json:"key,omitempty"`
	Session string `json:"session,omitempty"`
	Address string `json:"address,omitempty"`
}

// AuditRowOf converts a row of the audit log to its JSON form.
func AuditRowOf(e *state.AuditEntry) AuditRow {
	row := AuditRow{
		Seq: e.Seq, Time: e.At.Time().Format("2006-01-02T15:04:05.000Z07:00"), Action: string(e.Action), Target: e.Target, Detail: e.Detail,
		Outcome: "done", Count: e.Count, Hash: e.Hash.String(),
		Actor: AuditActor{
			e.Actor.Kind.String(), string(e.Actor.Account), e.Actor.Email, string(e.Actor.Key), string(e.Actor.Session), e.Actor.Addr,
		},
	}
	if e.Refused {
		row.Outcome = "refused"
	}
	return row
}

// AuditPage is a page of the audit log in JSON.
type AuditPage struct {
	Results []AuditRow `json:"results"`
	Next    string     `json:"next,omitempty"` // cursor of the next page
}

// AuditPageOf converts a page of the audit log to its JSON form.
func AuditPageOf(p audit.Page) AuditPage {
	page := AuditPage{Results: make([]AuditRow, len(p.Rows))}
	for i := range p.Rows {
		page.Results[i] = AuditRowOf(&p.Rows[i])
	}
	if p.Next > 0 {
		page.Next = strconv.FormatUint(p.Next, 10)
	}
	return page
}

// AuditCheck is the result of the verification of the audit log's hash chain, in JSON.
type AuditCheck struct {
	Intact bool   `json:"intact"`
	First  uint64 `json:"first"`            // Seq of the oldest row
	Last   uint64 `json:"last"`             // Seq of the newest row; First - 1 if there is no row
	Count  uint64 `json:"count"`            // number of rows that are as they were written
	Head   string `json:"head"`             // hash of the newest row
	Broken uint64 `json:"broken,omitempty"` // Seq of the first bad row; absent: the chain is intact
	Reason string `json:"reason,omitempty"`
}

// AuditCheckOf converts the result of a verification to its JSON form.
func AuditCheckOf(v audit.Verification) AuditCheck {
	return AuditCheck{Intact: v.Broken == 0, First: v.First, Last: v.Last, Count: v.Count, Head: v.Head.String(), Broken: v.Broken, Reason: v.Reason}
}

// AuditParams are the names of the query parameters that AuditQuery reads.
var AuditParams = []string{"actor", "action", "target", "since", "until", "cursor", "limit"}

// AuditQuery reads the filter, the cursor and the limit of a list of the audit log from query
// parameters. An absent or empty parameter does not filter. A time is RFC 3339; without a zone it
// is in UTC, and without a time of day it is midnight. Errors are 400.
func AuditQuery(values url.Values) (q audit.Query, err error) {
	q = audit.Query{Actor: values.Get("actor"), Action: values.Get("action"), Target: values.Get("target")}
	if q.Since, err = auditTime(values, "since"); err != nil {
		return q, err
	}
	if q.Until, err = auditTime(values, "until"); err != nil {
		return q, err
	}
	if text := values.Get("cursor"); text != "" {
		if q.Before, err = strconv.ParseUint(text, 10, 64); err != nil || q.Before == 0 {
			return q, BadRequest("the cursor is none that this API gave out")
		}
	}
	if text := values.Get("limit"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 || q.Limit > audit.MaxLimit {
			return q, BadRequest("limit must be a whole number from 1 to %d", audit.MaxLimit)
		}
	}
	return q, nil
}

func auditTime(values url.Values, name string) (time.Time, error) {
	text := values.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	for _, form := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly} {
		if t, err := time.Parse(form, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, BadRequest("%s is no time such as 2026-11-27 or 2026-11-27T23:00:00Z", name)
}
