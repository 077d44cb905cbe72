package web

import (
	"encoding/json"
	"net/url"
	"strconv"

	"github.com/holdfast-ipfs/holdfast/cluster/credits"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Posting is a row of the credit ledger of an account, in JSON.
type Posting struct {
	Seq      uint64      `json:"seq"`
	ID       string      `json:"id"`
	Time     string      `json:"time"`    // RFC 3339 with milliseconds, UTC
	Kind     string      `json:"kind"`    // "grant", "refund", "charge" or "correction"
	Credits  json.Number `json:"credits"` // below 0 if the credits leave the account
	Balance  uint64      `json:"balance"` // credits after the posting
	Corrects string      `json:"corrects,omitempty"`
	Note     string      `json:"note,omitempty"`
	By       AuditActor  `json:"by"`
}

// PostingOf converts a posting to its JSON form.
func PostingOf(p *state.Posting) Posting {
	return Posting{
		Seq: p.Seq, ID: p.ID, Time: p.Made.Time().Format("2006-01-02T15:04:05.000Z07:00"), Kind: p.Kind.String(), Credits: json.Number(p.Signed()),
		Balance: p.Balance, Corrects: p.Corrects, Note: p.Note, By: AuditActor{Kind: p.By.Kind.String(), Account: string(p.By.Account), Email: p.By.Email},
	}
}

// PostingColumns are the column names of a ledger in CSV form.
var PostingColumns = []string{"seq", "time", "kind", "credits", "balance", "id", "corrects", "note", "by"}

// Values returns the fields of a CSV row in the order of PostingColumns. Texts are safe for
// spreadsheets, see CSVText.
func (p *Posting) Values() []string {
	return []string{
		strconv.FormatUint(p.Seq, 10), p.Time, p.Kind, p.Credits.String(), strconv.FormatUint(p.Balance, 10),
		CSVText(p.ID), CSVText(p.Corrects), CSVText(p.Note), CSVText(p.By.Who()),
	}
}

// Who returns the e-mail address of an actor, or its kind if it has no account.
func (a *AuditActor) Who() string {
	if a.Email != "" {
		return a.Email
	}
	return a.Kind
}

// LedgerPage is a page of a ledger in JSON.
type LedgerPage struct {
	Balance uint64    `json:"balance"`        // credits of the account now
	Results []Posting `json:"results"`        // newest first
	Next    string    `json:"next,omitempty"` // cursor of the next page
}

// LedgerPageOf converts a page of a ledger to its JSON form.
func LedgerPageOf(p *credits.Page) LedgerPage {
	page := LedgerPage{Balance: p.Balance, Results: make([]Posting, len(p.Rows))}
	for i := range p.Rows {
		page.Results[i] = PostingOf(&p.Rows[i])
	}
	if p.Next > 0 {
		page.Next = strconv.FormatUint(p.Next, 10)
	}
	return page
}

// LedgerCursor reads the cursor of a page; empty means the first page.
func LedgerCursor(text string) (before uint64, err error) {
	if text == "" {
		return 0, nil
	}
	if before, err = strconv.ParseUint(text, 10, 64); err != nil || before == 0 {
		return 0, BadRequest("the cursor is none that this API gave out")
	}
	return before, nil
}

// LedgerQuery reads the cursor and the limit of a page.
func LedgerQuery(values url.Values) (before uint64, limit int, err error) {
	if before, err = LedgerCursor(values.Get("cursor")); err != nil {
		return 0, 0, err
	}
	if text := values.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > credits.MaxLimit {
			return 0, 0, BadRequest("limit must be a whole number from 1 to %d", credits.MaxLimit)
		}
	}
	return before, limit, nil
}

// PostingKind parses the kind of a posting that an administrator makes. An empty name means a
// grant. It returns a 400 error for "charge", which only the cluster itself posts, and for
// unknown names.
func PostingKind(name string) (state.PostingKind, error) {
	switch name {
	case "", state.Grant.String():
		return state.Grant, nil
	case state.Refund.String():
		return state.Refund, nil
	case state.Correction.String():
		return state.Correction, nil
	}
	return 0, BadRequest("kind must be grant, refund or correction")
}
