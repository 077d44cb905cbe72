package console

import (
	"net/http"
	"net/url"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// paymentRows is the number of payments on a page. paymentsExported is the number that an export
// reads at a time.
const (
	paymentRows      = 50
	paymentsExported = 500
)

// paymentsData is the data of the page /payments.
type paymentsData struct {
	Rows   []paymentRow
	Newest string // address of the page with the newest payments; empty on that page
	Next   string // address of the page with older payments; empty on the last page
}

// paymentRow is a payment with the values that the page shows.
type paymentRow struct {
	state.Payment
	Shape string // symbol of the state, see shapeOfPayment
	Owed  bool   // the payer may be owed a refund
}

// What returns the object or pin that was paid for.
func (r *paymentRow) What() string {
	if r.Object != "" {
		return r.Object
	}
	return string(r.Pin)
}

// paymentsPage serves GET /payments, the list of the payments to the paid gateway.
func (s *surface) paymentsPage(c *call) error {
	cursor := c.r.URL.Query().Get("cursor")
	page, err := s.Payments.List(c.ctx, cursor, paymentRows)
	if err != nil {
		return err
	}
	var d paymentsData
	for i := range page.Receipts {
		p := &page.Receipts[i]
		d.Rows = append(d.Rows, paymentRow{Payment: *p, Shape: shapeOfPayment(p.State), Owed: p.State == state.PaymentRefundable})
	}
	if cursor != "" {
		d.Newest = "/payments"
	}
	if page.Next != "" {
		d.Next = "/payments?" + url.Values{"cursor": {page.Next}}.Encode()
	}
	return s.show(c, http.StatusOK, "payments", "Payments", "cluster", d)
}

// shapeOfPayment returns the pin status whose symbol also stands for a payment in this state.
func shapeOfPayment(of state.PaymentState) string {
	switch of {
	case state.PaymentPaid:
		return "pinned"
	case state.PaymentReserved:
		return "pinning"
	}
	return "failed"
}

// paymentsCSV serves GET /payments.csv: all payments as CSV, the newest first.
func (s *surface) paymentsCSV(c *call) error {
	cursor := ""
	return export(c, "payments.csv", commaSeparated(web.PaymentColumns, (*web.Payment).Values), func() (rows []web.Payment, more bool, err error) {
		page, err := s.Payments.List(c.ctx, cursor, paymentsExported)
		for i := range page.Receipts {
			rows = append(rows, web.PaymentOf(&page.Receipts[i]))
		}
		cursor = page.Next
		return rows, cursor != "", err
	})
}
