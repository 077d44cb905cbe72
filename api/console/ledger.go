package console

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/credits"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// ledgerRows is the number of postings on a page.
const ledgerRows = 20

// ledgerData is the data of the template "ledger", which shows the credits of an account.
type ledgerData struct {
	Balance uint64
	Rows    []ledgerRow
	Newest  string // address of the page with the newest postings; empty on that page
	Next    string // address of the page with older postings; empty on the last page
	Export  string // address of the export
	Own     bool   // the viewer is the owner of the account
}

// ledgerRow is a posting with the texts that the page shows.
type ledgerRow struct {
	state.Posting
	Who     string // e-mail address of the actor, or the kind of an actor without one
	Correct string // address of the page with a form that corrects the posting; empty for the owner
}

// ledgerOf returns the page of an account's ledger that the query parameter ledger selects. at is
// the path of the console page that shows it.
func (s *surface) ledgerOf(c *call, account state.AccountID, at string) (d ledgerData, err error) {
	cursor := c.r.URL.Query().Get("ledger")
	before, err := web.LedgerCursor(cursor)
	if err != nil {
		return d, err
	}
	page, err := s.Ledger.List(c.ctx, string(account), before, ledgerRows)
	if err != nil {
		return d, err
	}
	d = ledgerData{Balance: page.Balance, Export: at + "/ledger.csv", Own: at == "/usage"}
	for i := range page.Rows {
		row := ledgerRow{Posting: page.Rows[i], Who: page.Rows[i].By.Email}
		if row.Who == "" {
			row.Who = row.By.Kind.String()
		}
		if !d.Own {
			row.Correct = at + "?" + url.Values{"correct": {row.ID}}.Encode() + "#correct"
		}
		d.Rows = append(d.Rows, row)
	}
	if cursor != "" {
		d.Newest = at + "#credits"
	}
	if page.Next > 0 {
		d.Next = at + "?ledger=" + strconv.FormatUint(page.Next, 10) + "#credits"
	}
	return d, nil
}

// contentEnds returns when the cluster begins to delete the newest content of an account because
// its credits are used up, or nil if that will not happen.
func (s *surface) contentEnds(account state.AccountID) (*time.Time, error) {
	if account == "" {
		return nil, nil
	}
	end, ends, err := s.Ledger.ContentEnds(account)
	if err != nil || !ends {
		return nil, err //nolint:wrapcheck // an error of the state
	}
	return &end, nil
}

// ownLedgerCSV serves GET /usage/ledger.csv: the credit ledger of the caller's account as CSV.
func (s *surface) ownLedgerCSV(c *call) error { return s.ledgerCSV(c, string(c.who.Account)) }

// userLedgerCSV serves GET /users/{id}/ledger.csv: the credit ledger of any account as CSV, for
// administrators.
func (s *surface) userLedgerCSV(c *call) error { return s.ledgerCSV(c, c.r.PathValue("id")) }

// ledgerCSV answers with the whole ledger of an account as CSV, the newest postings first.
func (s *surface) ledgerCSV(c *call, account string) error {
	before := uint64(0)
	return export(c, "ledger.csv", commaSeparated(web.PostingColumns, (*web.Posting).Values), func() (rows []web.Posting, more bool, err error) {
		page, err := s.Ledger.List(c.ctx, account, before, credits.MaxLimit)
		for i := range page.Rows {
			rows = append(rows, web.PostingOf(&page.Rows[i]))
		}
		before = page.Next
		return rows, before > 0, err
	})
}

// postCredits adds the posting in the form on the page of a user.
func (s *surface) postCredits(c *call, email string) error {
	form := c.r.PostForm
	kind, err := web.PostingKind(form.Get("kind"))
	if err != nil {
		return state.Errorf(state.CodeInvalid, "Choose whether to grant, refund or correct credits.")
	}
	amount, err := strconv.ParseInt(strings.TrimSpace(form.Get("credits")), 10, 64)
	if err != nil {
		return state.Errorf(state.CodeInvalid, "Credits are a whole number.")
	}
	_, err = s.Ledger.Post(c.ctx, email, credits.Request{
		Kind: kind, Credits: amount, ID: form.Get("posting"), Corrects: strings.TrimSpace(form.Get("corrects")), Note: strings.TrimSpace(form.Get("note")),
	})
	return err
}
