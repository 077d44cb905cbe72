package admin

import (
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/credits"
)

// Posting is a row of the ledger of an account.
type Posting = web.Posting

// LedgerPage is a page of a ledger.
type LedgerPage = web.LedgerPage

// PostingColumns are the names of the columns of a ledger as comma-separated values.
var PostingColumns = web.PostingColumns

// post answers POST /users/{email}/credits with the posting.
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

// ledger answers GET /users/{email}/ledger.
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
