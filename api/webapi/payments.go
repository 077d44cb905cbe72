package webapi

import (
	"fmt"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// listPayments answers GET /payments with a page of the payments of the paid gateway, the newest
// first.
func (s *surface) listPayments(c *call) error {
	limit, err := c.limit()
	if err != nil {
		return err
	}
	after, err := c.cursor()
	if err != nil {
		return err
	}
	page, err := s.Payments.List(c.ctx, after, limit)
	if err != nil {
		return fmt.Errorf("list payments: %w", err)
	}
	body := web.PaymentsOf(page.Receipts, page.Next)
	if body.Next != "" {
		body.Next = cursorOf(body.Next)
	}
	return c.ok(body)
}
