package admin

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/payments"
)

// Payment is a payment of the paid gateway.
type Payment = web.Payment

// PaymentPage is a page of payments.
type PaymentPage = web.PaymentPage

// Payments lists the payments of the paid gateway.
type Payments interface {
	// List returns a page of payments, the newest first. cursor is Next of the previous page, or empty
	// for the first page. A limit of 0 means the default. Errors: state.ErrInvalid,
	// state.ErrUnavailable.
	List(ctx context.Context, cursor string, limit int) (payments.Page, error)
}

// payments answers GET /payments with a page of payments.
func (p *operator) payments(_ http.ResponseWriter, r *http.Request) (any, error) {
	query, err := queryOf(r)
	if err != nil {
		return nil, err
	}
	limit := 0
	if text := query.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 {
			return nil, web.BadRequest("limit must be a whole number above 0")
		}
	}
	page, err := p.opts.Payments.List(r.Context(), query.Get("cursor"), limit)
	if err != nil {
		return nil, fmt.Errorf("list payments: %w", err)
	}
	return web.PaymentsOf(page.Receipts, page.Next), nil
}
