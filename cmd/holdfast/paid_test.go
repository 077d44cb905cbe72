package main

import (
	"context"
	"fmt"
	"iter"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
)

// payNode is a node with payments.
type payNode struct {
	fakeNode

	query url.Values
}

func (n *payNode) Payments(_ context.Context, query url.Values) iter.Seq2[client.Payment, error] {
	n.query = query
	return func(yield func(client.Payment, error) bool) {
		for i := range 150 {
			p := client.Payment{Time: "2026-11-28T07:00:00.000Z", State: "paid", Kind: "object", Object: fmt.Sprintf("photos/%d", i), Payer: "0x11", Amount: "1000", Network: "base-sepolia", Transaction: "0xab"}
			if i == 1 {
				p.State, p.Transaction, p.Nonce, p.Reason = "refundable", "", "0x22", "the facilitator did not answer\x1b[31m"
			}
			if !yield(p, nil) {
				return
			}
		}
	}
}

// `paid ls` prints at most --limit payments, as a table without control characters and as JSON. With --limit 0 it
// prints all of them, and asks the node for 100 at a time.
func TestPaidLs(t *testing.T) {
	n := &payNode{}
	got := call(t, n, "", "paid", "ls", "--limit", "2")
	if got.code != 0 || strings.Count(got.out, "\n") != 3 || !strings.Contains(got.out, "object photos/0") || !strings.Contains(got.out, "nonce 0x22") || strings.Count(got.out, "  base-sepolia  0x11 ") != 2 || strings.Contains(got.out, "\x1b") {
		t.Errorf("code %d: %s%s", got.code, got.out, got.errOut)
	}
	if n.query.Get("limit") != "2" {
		t.Errorf("asked for %v", n.query)
	}
	got = call(t, n, "", "paid", "ls", "--limit", "0", "--json")
	if got.code != 0 || strings.Count(got.out, `"photos/`) != 150 || n.query.Get("limit") != "100" {
		t.Errorf("code %d, asked for %v: %.200s", got.code, n.query, got.out)
	}
}
