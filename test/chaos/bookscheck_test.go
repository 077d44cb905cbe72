package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/credits"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// TestWrongBooksAreFound promises that the check of ledgers finds a period that is charged twice or skipped, a
// wrong price, a wrong sum, and postings that are lost, refused or made without a request.
func TestWrongBooksAreFound(t *testing.T) {
	const debtor, period, stored = state.AccountID("debtor"), state.Millis(2000), 65536
	charge := func(n state.Millis, paid uint64) state.Posting {
		return state.Posting{Account: debtor, Kind: state.Charge, Credits: paid, Takes: true, Made: n * period, Note: fmt.Sprintf("%d bytes above the allowance", stored)}
	}
	grant := func(id string) state.Posting {
		return state.Posting{ID: id, Account: debtor, Kind: state.Grant, Credits: 1000}
	}
	// 65,536 bytes for 2 s cost 50.57 credits.
	right := []state.Posting{grant("made"), charge(7, 50), grant("unknown"), charge(8, 51), charge(9, 50)}
	for name, tc := range map[string]struct {
		change func(rows []state.Posting) []state.Posting
		sums   bool   // stay as they were before the change
		want   string // "": right
	}{
		"right":    {func(r []state.Posting) []state.Posting { return r }, false, ""},
		"twice":    {func(r []state.Posting) []state.Posting { return append(r, r[4]) }, false, "is charged after"},
		"skipped":  {func(r []state.Posting) []state.Posting { return slices.Delete(r, 3, 4) }, false, "is charged after"},
		"price":    {func(r []state.Posting) []state.Posting { r[1].Credits++; return r }, false, "are due"},
		"sum":      {func(r []state.Posting) []state.Posting { r[2].Credits--; return r }, true, "the sum is"},
		"lost":     {func(r []state.Posting) []state.Posting { return r[1:] }, false, "takes"},
		"absent":   {func(r []state.Posting) []state.Posting { r[0], r[2] = r[2], r[0]; return slices.Delete(r, 2, 3) }, false, "is not there"},
		"repeated": {func(r []state.Posting) []state.Posting { return append(r, r[0]) }, false, "twice"},
		"refused":  {func(r []state.Posting) []state.Posting { return append(r, grant("refused")) }, false, "was refused"},
		"unasked":  {func(r []state.Posting) []state.Posting { return append(r, grant("unasked")) }, false, "nobody has asked"},
		"other":    {func(r []state.Posting) []state.Posting { r[0].Credits = 2000; return r }, false, "was asked for"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &books{orders: map[string]*order{}}
			for _, id := range []string{"made", "unknown", "refused"} {
				b.orders[id] = &order{account: debtor, request: credits.Request{Kind: state.Grant, Credits: 1000, ID: id}, made: id == "made", unknown: id == "unknown"}
			}
			rows, balance := slices.Clone(right), summed(right)
			if rows = tc.change(rows); !tc.sums {
				balance = summed(rows)
			}
			got := ""
			for _, err := range []error{checkSums(rows, balance), b.checkOrders(rows, debtor), checkCharges(rows)} {
				if err != nil {
					got += err.Error() + "\n"
				}
			}
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("the check says %q, want %q", got, tc.want)
			}
		})
	}
}

// summed gives rows their order and sums, and returns the last sum.
func summed(rows []state.Posting) (sum uint64) {
	for i := range rows {
		p := &rows[i]
		if sum += p.Credits; p.Takes {
			sum -= 2 * p.Credits
		}
		p.Seq, p.Balance = uint64(i+1), sum
	}
	return sum
}
