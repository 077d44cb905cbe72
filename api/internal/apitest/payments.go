package apitest

import (
	"context"
	"strconv"

	"github.com/holdfast-ipfs/holdfast/cluster/payments"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Payments is a list of payments that stands in for the real one. Rows are in the order newest
// first.
type Payments struct{ Rows []state.Payment }

// List returns up to limit Rows. The cursor is the number of rows before the page, in decimal.
func (p *Payments) List(_ context.Context, cursor string, limit int) (payments.Page, error) {
	from := 0
	if cursor != "" {
		n, err := strconv.Atoi(cursor)
		if err != nil || n < 0 || n > len(p.Rows) {
			return payments.Page{}, state.Errorf(state.CodeInvalid, "the cursor is not one of these payments")
		}
		from = n
	}
	to := min(len(p.Rows), from+limit)
	page := payments.Page{Receipts: p.Rows[from:to]}
	if to < len(p.Rows) {
		page.Next = strconv.Itoa(to)
	}
	return page, nil
}

// SomePayments returns n payments; every third is refundable.
func SomePayments(n int) *Payments {
	p := &Payments{}
	for i := range n {
		row := state.Payment{
			ID:    state.PaymentID{Network: "base-sepolia", Asset: "0x036cbd53842c5426634e7929541ec2318f3dcf7e", Payer: "0x19e7e376e7c213b7e7e7e46cc70a5dd086daff2a", Nonce: "0x" + strconv.Itoa(i)},
			State: state.PaymentPaid, Kind: 1, Amount: "1000", PayTo: "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed", Object: "photos/" + strconv.Itoa(i), Bytes: 10, Seconds: 3600,
			Node: "node", Transaction: "0xabc" + strconv.Itoa(i), Reserved: 1_700_000_000_000, Settled: 1_700_000_001_000, Until: 1_700_003_600_000, ValidBefore: 1_700_000_300_000,
		}
		if i%3 == 2 {
			row.State, row.Transaction, row.Until, row.Reason = state.PaymentRefundable, "", 0, "the facilitator did not answer"
		}
		p.Rows = append(p.Rows, row)
	}
	return p
}
