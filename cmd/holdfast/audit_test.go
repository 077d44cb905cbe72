package main

import (
	"context"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// logNode is a node with an audit log.
type logNode struct {
	fakeNode
	asked url.Values
	check client.AuditCheck
}

func (n *logNode) Audit(_ context.Context, query url.Values) iter.Seq2[client.AuditRow, error] {
	n.asked = query
	return func(yield func(client.AuditRow, error) bool) {
		for i := range 150 {
			row := client.AuditRow{
				Seq: uint64(150 - i), Time: "2026-01-02T03:04:05.000Z", Action: "session.create", Outcome: "refused", Count: 9,
				Target: "t\x1b", Detail: "d", Actor: client.AuditActor{Kind: "anonymous", Address: "192.0.2.7"},
			}
			if i == 1 {
				row = client.AuditRow{Seq: 149, Action: "key.show", Outcome: "done", Actor: client.AuditActor{Kind: "key", Email: "ann@example.org", Key: "k1"}}
			}
			if !yield(row, nil) {
				return
			}
		}
	}
}

func (n *logNode) VerifyAudit(context.Context) (client.AuditCheck, error) { return n.check, nil }

// `audit ls` sends its filters to the node and prints at most --limit rows without control characters. Malformed
// filters are wrong usage.
func TestAuditList(t *testing.T) {
	n := &logNode{}
	got := call(t, n, "", "audit", "ls", "--since", "2026-01-02", "--until", "1h", "--actor", "ann", "--action", "key", "--target", "k1", "--limit", "2")
	for _, has := range []string{"anonymous  ", "session.create refused 9 times", "ann@example.org (key k1)", "192.0.2.7"} {
		if got.code != exitOK || !strings.Contains(got.out, has) || strings.Contains(got.out, "\x1b") || strings.Count(got.out, "\n") != 3 {
			t.Errorf("%q is not in %+v", has, got)
		}
	}
	until, err := time.Parse(time.RFC3339, n.asked.Get("until"))
	if ago := time.Since(until); err != nil || ago < time.Hour || ago > time.Hour+time.Minute {
		t.Errorf("--until 1h is %v, %v", until, err)
	}
	n.asked.Del("until")
	if want := "action=key&actor=ann&limit=2&since=2026-01-02T00%3A00%3A00Z&target=k1"; n.asked.Encode() != want {
		t.Errorf("the node is asked for %s", n.asked.Encode())
	}
	for limit, rows := range map[string]int{"100": 100, "0": 150, "149": 149} {
		if got := call(t, n, "", "audit", "ls", "--json", "--limit", limit); got.code != exitOK || strings.Count(got.out, `"seq"`) != rows {
			t.Errorf("--limit %s: %d rows", limit, strings.Count(got.out, `"seq"`))
		}
	}
	for _, args := range []string{"--since yesterday", "--until 2026-13-01", "--limit -1", "more"} {
		if got := call(t, n, "", append([]string{"audit", "ls"}, strings.Fields(args)...)...); got.code != exitUsage {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

// `audit verify` prints the rows and the last hash of an intact log. It fails with the broken row and the reason if
// the log is broken.
func TestAuditVerify(t *testing.T) {
	n := &logNode{check: client.AuditCheck{Intact: true, First: 3, Last: 8, Count: 6, Head: "00ff"}}
	want := "the audit log is intact: 6 rows, from 3 to 8\nhash of row 8: 00ff\n"
	if got := call(t, n, "", "audit", "verify"); got.code != exitOK || got.out != want {
		t.Errorf("%+v", got)
	}
	n.check = client.AuditCheck{First: 3, Last: 8, Count: 4, Broken: 7, Reason: "it is missing"}
	for _, flag := range []string{"--json", "--json=false"} {
		if got := call(t, n, "", "audit", "verify", flag); got.code == exitOK || !strings.Contains(got.errOut, "broken at row 7: it is missing") {
			t.Errorf("%+v", got)
		}
	}
}

// The actions and families that shells offer for the audit log are exactly those that the log has.
func TestAuditActionsAreThoseOfTheState(t *testing.T) {
	var actions, families []string
	for _, a := range state.Actions() {
		actions, families = append(actions, string(a)), append(families, a.Family())
	}
	for _, list := range []struct{ got, want []string }{{auditActions, actions}, {auditFamilies, slices.Compact(families)}} {
		slices.Sort(list.want)
		if got := slices.Sorted(slices.Values(list.got)); fmt.Sprint(got) != fmt.Sprint(slices.Compact(list.want)) {
			t.Errorf("%q, not %q", got, list.want)
		}
	}
}
