package webapi

import (
	"fmt"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/credits"
)

// ledger answers GET /ledger with a page of the credit ledger of the caller, the newest postings
// first. An administrator may name another account.
func (s *surface) ledger(c *call) error {
	limit, err := c.limit()
	if err != nil {
		return err
	}
	after, err := c.cursor()
	if err != nil {
		return err
	}
	before, err := web.LedgerCursor(after)
	if err != nil {
		return err
	}
	account := string(c.who.Account)
	if other := c.query.Get("account"); other != "" && other != account {
		if err := admins.permits(c); err != nil {
			return err
		}
		account = other
	}
	page, err := s.Ledger.List(c.ctx, account, before, limit)
	if err != nil {
		return fmt.Errorf("list ledger: %w", err)
	}
	body := web.LedgerPageOf(&page)
	if body.Next != "" {
		body.Next = cursorOf(body.Next)
	}
	return c.ok(body)
}

// post answers POST /users/{id}/ledger: it adds a posting to the credit ledger of an account.
func (s *surface) post(c *call) error {
	var r credits.Request
	var given bool
	var err error
	if r.Credits, given, err = c.fields.Signed("credits"); err != nil {
		return err
	}
	if !given {
		return web.BadRequest("credits is missing: a whole number")
	}
	name := ""
	for _, text := range []struct {
		field string
		into  *string
	}{{"kind", &name}, {"posting", &r.ID}, {"corrects", &r.Corrects}, {"note", &r.Note}} {
		if *text.into, _, err = c.fields.Text(text.field); err != nil {
			return err
		}
	}
	if r.Kind, err = web.PostingKind(name); err != nil {
		return err
	}
	posted, err := s.Ledger.Post(c.ctx, c.id(), r)
	if err != nil {
		return fmt.Errorf("post credits: %w", err)
	}
	return c.created(web.PostingOf(&posted))
}
