package console

import (
	"net/http"
	"net/url"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// paymentRows is the number of payments on a page, and paymentsExported that of one read of an export.
const (
	paymentRows      = 50
	paymentsExported = 500
)

// paymentsData has the values of the page of payments.
type paymentsData struct {
	Rows   []paymentRow
	Newest string // address of the page with the newest payments; empty on that page
	Next   string // address of the page with older payments; empty on the last page
}

// paymentRow is a payment in the form for the page.
type paymentRow struct {
	state.Payment
	Shape string // of the state
	Owed  bool   // the payer may have to get the money back
}

// What is the object or pin that was paid for.
func (r *paymentRow) What() string {
	if r.Object != "" {
		return r.Object
	}
	return string(r.Pin)
}

// paymentsPage serves GET /payments.
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

// shapeOfPayment returns the shape of a state of payments: those of pins.
func shapeOfPayment(of state.PaymentState) string {
	switch of {
	case state.PaymentPaid:
		return "pinned"
	case state.PaymentReserved:
		return "pinning"
	}
	return "failed"
}

// paymentsCSV serves GET /payments.csv: all payments as comma-separated values, the newest first.
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
