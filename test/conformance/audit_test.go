//go:build conformance

package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// auditRow is what the test looks at of a row of the audit log.
type auditRow struct {
	Seq     uint64
	Action  string
	Target  string
	Detail  string
	Outcome string
	Count   int
	Hash    string
	Actor   struct{ Kind, Email, Address string }
}

// audit lists the audit log as a node has it.
func audit(t *testing.T, n *harness.Node, args ...string) (rows []auditRow) {
	t.Helper()
	if err := json.Unmarshal([]byte(n.CLI(append([]string{"audit", "ls", "--json", "--limit", "0"}, args...)...)), &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestTheAuditLog promises that a change through one node is in the audit log of another, without a secret and with
// the wrong passwords of a minute in one row, and that all members have the same intact log.
func TestTheAuditLog(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{})
	const email, password, wrong = "audited@example.org", "canary correct horse battery", "canary wrong horse"
	first, second, third := c.Nodes[0], c.Nodes[1], c.Nodes[2]
	first.CLIWithInput(password, "user", "add", email, "--password-stdin")
	tries := func(name string, n int) {
		for range n {
			answer, err := second.Pins("").Do(t.Context(), http.MethodPost, "/auth/token", nil, []byte(`{"username":"`+name+`","password":"`+wrong+`"}`))
			if err != nil || answer.Status != http.StatusUnauthorized {
				t.Fatalf("a wrong password is answered with %d, %v", answer.Status, err)
			}
		}
	}
	tries(email, 4)
	tries("canary@example.org", 3) // a name without an account
	var session struct{ Token string }
	answer, err := second.Pins("").Do(t.Context(), http.MethodPost, "/auth/token", nil, []byte(`{"username":"`+email+`","password":"`+password+`"}`))
	if err != nil || json.Unmarshal(answer.Body, &session) != nil || session.Token == "" {
		t.Fatalf("sign-in is answered with %d %s, %v", answer.Status, answer.Body, err)
	}
	var key struct{ ID, Token string }
	webAPI(t, second, session.Token, "POST", "/keys", `{"name":"laptop"}`, http.StatusCreated, &key)
	webAPI(t, second, session.Token, "DELETE", "/keys/"+key.ID, "", http.StatusNoContent, nil)
	join := third.CLI("token")
	done := map[string]auditRow{}
	for _, row := range audit(t, third) {
		if row.Outcome == "done" {
			done[row.Action] = row
		}
	}
	for action, want := range map[string]struct{ kind, email, detail string }{
		"user.create":    {"operator", "", email},
		"session.create": {"anonymous", email, email},
		"key.create":     {"session", email, "laptop"},
		"key.revoke":     {"session", email, "laptop"},
		"member.token":   {"operator", "", "valid until"},
		"member.join":    {"cluster", "", ""},
	} {
		row := done[action]
		local := want.kind == "operator" || want.kind == "cluster"
		if row.Actor.Kind != want.kind || row.Actor.Email != want.email || !strings.Contains(row.Detail, want.detail) || local != (row.Actor.Address == "") {
			t.Errorf("%s is %+v", action, row)
		}
	}
	// A node writes one row for the tries of a minute by its clock, so the tries of one name have one row, or more
	// if a minute ended between them, but not one each.
	harness.Eventually(t, 5*time.Minute, "the wrong passwords are in the log", func() (bool, error) {
		counts, rows := map[string]int{}, map[string]int{}
		for _, row := range audit(t, third, "--action", "session.create") {
			if row.Outcome == "refused" {
				counts[row.Detail] += row.Count
				rows[row.Detail]++
			}
		}
		if len(counts) > 2 || counts[email] > 4 || counts[""] > 3 || rows[email] > 3 || rows[""] > 2 {
			t.Fatalf("the wrong passwords are %v in %v rows", counts, rows)
		}
		return counts[email] == 4 && counts[""] == 3, fmt.Errorf("%v in %v rows", counts, rows)
	})
	var heads []string
	for _, n := range c.Nodes {
		heads = append(heads, n.CLI("audit", "verify"))
		text := n.CLI("audit", "ls", "--json", "--limit", "0")
		for _, secret := range []string{"canary", session.Token, key.Token, strings.TrimSpace(join)} {
			if strings.Contains(text, secret) {
				t.Errorf("%s shows a secret: %s", n.Name, text)
			}
		}
	}
	if !strings.Contains(heads[0], "is intact") || heads[0] != heads[1] || heads[0] != heads[2] {
		t.Errorf("the members say %q", heads)
	}
}
