//go:build conformance

package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// chargedEvery is the period of charges in tests. dryFor is how long the content of an account without credits stays:
// long enough that a command on a busy machine still sees it.
const (
	chargedEvery = 2 * time.Second
	dryFor       = 15 * time.Second
)

// dryAccount is what `user show --json` says of an account whose content may end.
type dryAccount struct {
	Credits uint64 `json:"credits"`
	Stored  uint64 `json:"stored_bytes"`
	Ends    string `json:"content_ends"`
}

func dryAt(n *harness.Node, email string) (d dryAccount, err error) {
	r := n.TryCLI("", "user", "show", email, "--json")
	if r.Code != 0 {
		return d, fmt.Errorf("user show: %s", r.Stderr)
	}
	err = json.Unmarshal([]byte(r.Stdout), &d)
	return d, err
}

// wantCharges wants the charges of a ledger to be of periods that follow each other, and the sum of
// all postings to be the balance. It returns the number of charges.
func wantCharges(t *testing.T, on string, rows []ledgerRow) (charges int) {
	t.Helper()
	var sum int64
	var last time.Time
	for _, r := range slices.Backward(rows) {
		if sum += r.Credits; r.Balance != sum {
			t.Errorf("on %s the balance after %+v is not the sum, %d", on, r, sum)
		}
		if r.Kind != "charge" {
			last = time.Time{} // nothing is charged from an account that is dry, until it gets credits
			continue
		}
		at, err := time.Parse("storage 2006-01-02T15:04:05.000Z07:00", r.ID)
		if err != nil {
			t.Fatal(err)
		}
		if !last.IsZero() && at.Sub(last) != chargedEvery {
			t.Errorf("on %s the period %s is charged after %s", on, at, last)
		}
		last = at
		charges++
	}
	return charges
}

// TestStorageIsCharged promises that each period is charged once while the leader is killed, and that an account
// without credits gets no new content. Its newest content ends after the grace, and a grant lifts that at once.
func TestStorageIsCharged(t *testing.T) {
	t.Parallel()
	const (
		ann    = "ann@example.org"
		size   = 1_000_000
		fits   = 2
		number = 5
	)
	c := harness.Start(t, harness.Options{Env: []string{
		"HOLDFAST_CREDITS_GB_MONTH=5000000000", // 10 credits or more for each period of what is above the allowance here
		"HOLDFAST_CREDITS_PERIOD=" + chargedEvery.String(), "HOLDFAST_CREDITS_GRACE=" + dryFor.String(),
	}})
	o := newObjects(t, c, ann)
	first := c.Nodes[0]
	allow(first, ann, fits*size+size/2)
	first.CLI("user", "grant", ann, "60", "--posting", "first")
	o.ok(http.StatusOK, http.MethodPut, "/photos", nil)
	for i := range number {
		o.ok(http.StatusOK, http.MethodPut, "/photos/k"+strconv.Itoa(i), harness.RandomBytes(size))
	}
	harness.Eventually(t, time.Minute, "a period is charged", func() (bool, error) {
		d, err := dryAt(first, ann)
		return d.Credits < 60, err
	})
	killed := c.Leader()
	killed.Kill()
	at := c.Live()[0]
	dry := func() {
		t.Helper()
		harness.Eventually(t, time.Minute, "the account is dry", func() (bool, error) {
			d, err := dryAt(at, ann)
			return d.Credits == 0 && d.Ends != "" && d.Stored > (number-1)*size, err
		})
	}
	dry()
	o.refused(http.StatusForbidden, "AccountProblem", http.MethodPut, "/photos/new", harness.RandomBytes(size))
	if _, err := at.Pins(o.token).Post(t.Context(), harness.Pin{CID: "bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"}); !refusedForFunds(err) {
		t.Errorf("a pin of a dry account: %v", err)
	}
	at.CLI("user", "grant", ann, "1", "--posting", "second")
	if d, err := dryAt(at, ann); err != nil || d.Ends != "" && d.Credits > 0 {
		t.Errorf("after a grant: %+v, %v", d, err)
	}
	dry()
	killed.Restart()
	harness.Eventually(t, dryFor+time.Minute, "the newest content ends", func() (bool, error) {
		d, err := dryAt(at, ann)
		return d.Stored < (fits+1)*size && d.Ends == "", err
	})
	for i := range number {
		status := http.StatusOK
		if i >= fits {
			status = http.StatusNotFound
		}
		o.ok(status, http.MethodHead, "/photos/k"+strconv.Itoa(i), nil)
	}
	o.refused(http.StatusForbidden, "AccountProblem", http.MethodPut, "/photos/new", harness.RandomBytes(size))
	at.CLI("user", "grant", ann, "1000000", "--posting", "third")
	o.ok(http.StatusOK, http.MethodPut, "/photos/new", harness.RandomBytes(size))

	if err := killed.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes {
		if charges := wantCharges(t, n.Name, ledgerAt(t, n, ann, "--limit", "0")); charges < 3 {
			t.Errorf("on %s there are %d charges", n.Name, charges)
		}
		if log := n.CLI("audit", "ls", "--action", "user.content-end"); !strings.Contains(log, "3 versions of objects") {
			t.Errorf("the audit log is\n%s", log)
		}
	}
}
