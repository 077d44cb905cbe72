package console

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"testing"
	"time"
)

// timed records until when the console waits for a use case that writes, and for the sign-in after it.
type timed struct {
	Accounts
	wrote, signedIn time.Time
}

// SetUp implements Accounts.
func (a *timed) SetUp(ctx context.Context, token, name, password string) error {
	a.wrote, _ = ctx.Deadline()
	return a.Accounts.SetUp(ctx, token, name, password)
}

// SetPassword implements Accounts.
func (a *timed) SetPassword(ctx context.Context, name, password string) error {
	a.wrote, _ = ctx.Deadline()
	return a.Accounts.SetPassword(ctx, name, password)
}

// SignIn implements Accounts.
func (a *timed) SignIn(ctx context.Context, name, password string, from netip.Addr) (string, error) {
	a.signedIn, _ = ctx.Deadline()
	return a.Accounts.SignIn(ctx, name, password, from)
}

// TestTheSignInAfterAWriteHasItsOwnTime: after a setup and after a change of the password, which cannot be
// repeated, the sign-in has its own time, however long they took.
func TestTheSignInAfterAWriteHasItsOwnTime(t *testing.T) {
	w := newWorld(t)
	seen := &timed{Accounts: w.users}
	b := w.another(func(o *Options) { o.Accounts = seen }).browser()
	token, err := w.users.SetupToken()
	if err != nil {
		t.Fatal(err)
	}
	form := url.Values{"setup": {token}, "email": {"root@example.org"}, "password": {"password of root"}, "again": {"password of root"}}
	if answer := b.post("/setup?t="+token, "/setup", form); answer.Code != http.StatusSeeOther {
		t.Fatalf("setup is answered with %d: %s", answer.Code, answer.Body)
	}
	if !seen.signedIn.After(seen.wrote) {
		t.Errorf("the setup may take until %v, the sign-in until %v", seen.wrote, seen.signedIn)
	}
	form = url.Values{"password": {"password of root"}, "new": {"another password of root"}, "again": {"another password of root"}}
	if answer := b.post("/account", "/account/password", form); answer.Code != http.StatusOK {
		t.Fatalf("a new password is answered with %d: %s", answer.Code, answer.Body)
	}
	if !seen.signedIn.After(seen.wrote) {
		t.Errorf("the change of the password may take until %v, the sign-in until %v", seen.wrote, seen.signedIn)
	}
}
