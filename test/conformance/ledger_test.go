//go:build conformance

package conformance

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// ledgerRow is what `user ledger --json` says of a posting.
type ledgerRow struct {
	Seq      uint64 `json:"seq"`
	ID       string `json:"id"`
	Kind     string `json:"kind"`
	Credits  int64  `json:"credits"`
	Balance  int64  `json:"balance"`
	Corrects string `json:"corrects"`
	Note     string `json:"note"`
	By       struct {
		Kind string `json:"kind"`
	} `json:"by"`
}

func ledgerAt(t *testing.T, n *harness.Node, email string, args ...string) (rows []ledgerRow) {
	t.Helper()
	if err := json.Unmarshal([]byte(n.CLI(append([]string{"user", "ledger", email, "--json"}, args...)...)), &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestTheLedger promises that every node makes postings and shows the same ledger, that each id is posted once, and
// that no balance falls below zero (row 105). This holds also after a node was killed and had to catch up.
func TestTheLedger(t *testing.T) {
	t.Parallel()
	const ann = "ann@example.org"
	c := harness.Start(t, harness.Options{})
	a, b, last := c.Nodes[0], c.Nodes[1], c.Nodes[2]
	a.CLI("user", "add", ann)
	a.CLI("user", "grant", ann, "100", "--posting", "invoice-1", "--note", "first")
	b.CLI("user", "grant", ann, "100", "--posting", "invoice-1")
	if again := b.TryCLI("", "user", "grant", ann, "101", "--posting", "invoice-1"); again.Code != 1 || !strings.Contains(again.Stderr, "is another one") {
		t.Errorf("another posting of the same name: %+v", again)
	}
	last.Kill()
	b.CLI("user", "refund", ann, "5", "--posting", "refund-1")
	b.CLI("user", "correct", ann, "invoice-1", "--credits", "-90", "--posting", "correction-1", "--note", "10 were meant")
	last.Restart()

	// 15 credits are there; of these corrections, made by two nodes at the same time, one fits.
	var all sync.WaitGroup
	results := make([]harness.Result, 8)
	for i := range results {
		n := []*harness.Node{a, b}[i%2]
		all.Go(func() {
			results[i] = n.TryCLI("", "user", "correct", ann, "invoice-1", "--credits", "-10", "--posting", fmt.Sprint("race-", i))
		})
	}
	all.Wait()
	won := ""
	for i, r := range results {
		switch {
		case r.Code == 0 && won == "":
			won = fmt.Sprint("race-", i)
		case r.Code == 0:
			t.Errorf("%s and race-%d both took 10 of 15 credits", won, i)
		case !strings.Contains(r.Stderr, "would make the balance negative"):
			t.Errorf("race-%d: %+v", i, r)
		}
	}

	want := []string{
		"4 " + won + " correction -10 5 invoice-1 ", "3 correction-1 correction -90 15 invoice-1 10 were meant", "2 refund-1 refund 5 105  ",
		"1 invoice-1 grant 100 100  first",
	}
	if err := last.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes {
		var got []string
		for _, r := range ledgerAt(t, n, ann) {
			if r.By.Kind != "operator" {
				t.Errorf("posted by %+v", r.By)
			}
			got = append(got, fmt.Sprint(r.Seq, " ", r.ID, " ", r.Kind, " ", r.Credits, " ", r.Balance, " ", r.Corrects, " ", r.Note))
		}
		if !slices.Equal(got, want) || user(t, n, ann).Credits != 5 {
			t.Errorf("on %s: %q, not %q", n.Name, got, want)
		}
	}
	if page := ledgerAt(t, last, ann, "--after", "3", "--limit", "1"); len(page) != 1 || page[0].ID != "refund-1" {
		t.Errorf("after posting 3: %+v", page)
	}
	rows, err := csv.NewReader(strings.NewReader(last.CLI("user", "ledger", ann, "--csv"))).ReadAll()
	if err != nil || len(rows) != 5 || rows[4][5] != "invoice-1" {
		t.Errorf("as CSV: %q, %v", rows, err)
	}
	if log := last.CLI("audit", "ls", "--action", "user.credits"); strings.Count(log, "credits") < 4 || !strings.Contains(log, "correction of -90 credits, 10 were meant") {
		t.Errorf("the audit log is\n%s", log)
	}
}
