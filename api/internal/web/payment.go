package web

import (
	"strconv"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Payment is a payment of the paid gateway, in JSON.
type Payment struct {
	Time        string `json:"time"`  // when its nonce was recorded, RFC 3339 with milliseconds, UTC
	State       string `json:"state"` // reserved, paid, failed or refundable
	Kind        string `json:"kind"`  // object, pin or delete
	Payer       string `json:"payer"`
	PayTo       string `json:"pay_to"`
	Amount      string `json:"amount"` // atomic units of the asset
	Network     string `json:"network"`
	Asset       string `json:"asset"`
	Nonce       string `json:"nonce"`
	Transaction string `json:"transaction,omitempty"`
	Object      string `json:"object,omitempty"` // bucket/key
	Pin         string `json:"pin,omitempty"`
	Bytes       uint64 `json:"bytes"`
	Seconds     uint64 `json:"seconds"`
	Until       string `json:"until,omitempty"` // end of the paid time
	Node        string `json:"node"`
	Reason      string `json:"reason,omitempty"`
	ValidBefore string `json:"valid_before,omitempty"` // expiry of the payer's signed authorization; the payment cannot be executed later
}

// PaymentPage is a page of payments in JSON, the newest first.
type PaymentPage struct {
	Results []Payment `json:"results"`
	Next    string    `json:"next,omitempty"` // cursor of the next page
}

// PaymentColumns are the column names of payments in CSV form.
var PaymentColumns = []string{
	"time", "state", "kind", "payer", "pay_to", "amount", "network", "asset", "nonce", "transaction", "object", "pin", "bytes", "seconds", "until", "node", "reason", "valid_before",
}

// paymentTime is the time format of payments, for time.Format.
const paymentTime = "2006-01-02T15:04:05.000Z07:00"

// PaymentOf converts a payment to its JSON form.
func PaymentOf(p *state.Payment) Payment {
	row := Payment{
		Time: p.Reserved.Time().Format(paymentTime), State: p.State.String(), Kind: p.Kind.String(),
		Payer: p.ID.Payer, PayTo: p.PayTo, Amount: p.Amount, Network: p.ID.Network, Asset: p.ID.Asset, Nonce: p.ID.Nonce,
		Transaction: p.Transaction, Object: p.Object, Pin: string(p.Pin), Bytes: p.Bytes, Seconds: p.Seconds, Node: string(p.Node), Reason: p.Reason,
	}
	if p.Until != 0 {
		row.Until = p.Until.Time().Format(paymentTime)
	}
	if p.ValidBefore != 0 {
		row.ValidBefore = p.ValidBefore.Time().Format(paymentTime)
	}
	return row
}

// PaymentsOf converts a page of payments to its JSON form; next is the cursor of the next page.
func PaymentsOf(all []state.Payment, next string) PaymentPage {
	page := PaymentPage{Results: make([]Payment, len(all)), Next: next}
	for i := range all {
		page.Results[i] = PaymentOf(&all[i])
	}
	return page
}

// Values returns the fields of a CSV row in the order of PaymentColumns. Texts are safe for
// spreadsheets, see CSVText.
func (p *Payment) Values() []string {
	return []string{
		p.Time, p.State, p.Kind, p.Payer, p.PayTo, p.Amount, p.Network, p.Asset, p.Nonce, p.Transaction, p.Object, p.Pin,
		strconv.FormatUint(p.Bytes, 10), strconv.FormatUint(p.Seconds, 10), p.Until, p.Node, p.Reason, p.ValidBefore,
	}
}
