package admin

import (
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/credits"
)

// Posting is a row of the credit ledger of an account.
type Posting = web.Posting

// LedgerPage is a page of a credit ledger.
type LedgerPage = web.LedgerPage

// PostingColumns are the column names of a ledger in CSV form.
var PostingColumns = web.PostingColumns

// post answers POST /users/{email}/credits: it adds a posting to the ledger and returns it.
func (p *operator) post(w http.ResponseWriter, r *http.Request) (any, error) {
	var ask NewCredits
	if err := read(w, r, &ask); err != nil {
		return nil, err
	}
	kind, err := web.PostingKind(ask.Kind)
	if err != nil {
		return nil, err
	}
	posted, err := p.opts.Ledger.Post(r.Context(), r.PathValue("email"), credits.Request{
		Kind: kind, Credits: ask.Credits, ID: ask.Posting, Corrects: ask.Corrects, Note: ask.Note,
	})
	return web.PostingOf(&posted), err
}

// ledger answers GET /users/{email}/ledger with a page of the ledger.
func (p *operator) ledger(_ http.ResponseWriter, r *http.Request) (any, error) {
	query, err := queryOf(r)
	if err != nil {
		return nil, err
	}
	before, limit, err := web.LedgerQuery(query)
	if err != nil {
		return nil, err
	}
	page, err := p.opts.Ledger.List(r.Context(), r.PathValue("email"), before, limit)
	return web.LedgerPageOf(&page), err
}
