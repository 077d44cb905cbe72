//go:build conformance

package console

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// TestAPersonDeletesTheAccount: the page says what goes with the account, and asks for the e-mail
// address and the password. From the next page on no node takes a key or a session of it.
func TestAPersonDeletesTheAccount(t *testing.T) {
	longForm(t)
	const email = "dora@example.org"
	c, p := signedIn(t, email)
	key := c.Nodes[0].Key(email)
	if _, err := c.Nodes[0].Pins(key.Token).Post(t.Context(), harness.Pin{CID: catCID, Name: "cat"}); err != nil {
		t.Fatal(err)
	}
	session := p.cookie("holdfast-session")
	p.follow(email)
	p.shows("Delete account")
	if facts := strings.Join(strings.Fields(p.text("#delete dl")), " "); !strings.Contains(facts, "Pins 1") || !strings.Contains(facts, "API keys 1") {
		t.Errorf("the page says that it takes away %s", facts)
	}
	p.expect("403")
	p.enter(`#delete [name=email]`, email)
	p.enter(`#delete [name=password]`, "not this one")
	p.press("Delete my account")
	p.shows("The password is wrong. Nothing was deleted.")
	if got := p.valueOf(`#delete [name=email]`); got != email {
		t.Errorf("after the error the address is %q", got)
	}
	answered(t, c, key.Token, http.StatusOK)
	p.enter(`#delete [name=password]`, password)
	p.press("Delete my account")
	p.shows("is deleted")
	p.picture("account-deleted")
	answered(t, c, key.Token, http.StatusUnauthorized)
	for _, n := range c.Nodes {
		if code := get(t, n.ConsoleURL()+"/pins", session); code != http.StatusSeeOther {
			t.Errorf("%s answers the session with %d", n.ConsoleURL(), code)
		}
	}
	if r := c.Nodes[0].TryCLI("", "user", "show", email); r.Code != 1 {
		t.Errorf("the account is still there: %+v", r)
	}
}
