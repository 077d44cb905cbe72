package main

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
)

// ledgerNode is a node with a ledger of 2,500 postings.
type ledgerNode struct {
	fakeNode
	asked []string
}

func (n *ledgerNode) Ledger(_ context.Context, email string, query url.Values) (page client.LedgerPage, err error) {
	n.asked = append(n.asked, email+" "+query.Encode())
	first, limit := uint64(2500), uint64(0)
	if cursor := query.Get("cursor"); cursor != "" {
		if first, err = strconv.ParseUint(cursor, 10, 64); err != nil {
			return page, err
		}
		first--
	}
	if limit, err = strconv.ParseUint(query.Get("limit"), 10, 64); err != nil {
		return page, err
	}
	for seq := first; seq > 0 && seq > first-min(first, limit); seq-- {
		page.Results = append(page.Results, client.Posting{
			Seq: seq, Time: "2026-01-02T03:04:05.000Z", Kind: "correction", Credits: "-7", Balance: 1, ID: fmt.Sprint("p", seq), Corrects: "g",
			Note: "a, \"b\"", By: client.AuditActor{Kind: "operator"},
		})
	}
	if last := first - min(first, limit); last > 0 {
		page.Next = fmt.Sprint(last + 1)
	}
	return page, nil
}

// `user ledger` prints at most --limit postings as a table, CSV or JSON, and pages through the ledger.
func TestUserLedger(t *testing.T) {
	n := &ledgerNode{}
	got := call(t, n, "", "user", "ledger", "a@b", "--limit", "2")
	want := "SEQ   TIME                      KIND        CREDITS  BALANCE  ID     CORRECTS  BY        NOTE\n" +
		"2500  2026-01-02T03:04:05.000Z  correction  -7       1        p2500  g         operator  a, \"b\"\n" +
		"2499  2026-01-02T03:04:05.000Z  correction  -7       1        p2499  g         operator  a, \"b\"\n"
	if got.code != exitOK || got.out != want {
		t.Errorf("got %+v\nwant %s", got, want)
	}
	got = call(t, n, "", "user", "ledger", "a@b", "--limit", "1", "--after", "8", "--csv")
	want = "seq,time,kind,credits,balance,id,corrects,note,by\n" + `7,2026-01-02T03:04:05.000Z,correction,-7,1,p7,g,"a, ""b""",operator` + "\n"
	if got.code != exitOK || got.out != want {
		t.Errorf("got %+v\nwant %s", got, want)
	}
	for limit, rows := range map[string]int{"0": 2500, "1500": 1500, "100": 100} {
		got := call(t, n, "", "user", "ledger", "a@b", "--limit", limit, "--json")
		if found := strings.Count(got.out, `"balance"`); got.code != exitOK || found != rows || strings.Contains(got.out, `"credits": "`) {
			t.Errorf("--limit %s prints %d postings", limit, found)
		}
	}
	if none := call(t, &fakeNode{}, "", "user", "ledger", "a@b", "--json"); none.out != "[]\n" {
		t.Errorf("an empty ledger is %+v", none)
	}
}
