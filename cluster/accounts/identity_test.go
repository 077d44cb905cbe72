package accounts

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// newest returns a world at the newest level.
func newest(tb testing.TB, signUp SignUp) *world {
	tb.Helper()
	w := newWorld(tb)
	w.state.Apply(tb, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
	w.Accounts = w.node()
	w.signUp = signUp
	return w
}

var annAtID = Person{Issuer: "https://id.example", Subject: "7", Email: "ann@example.org"}

// is checks that a session token is of an account.
func (w *world) is(t *testing.T, token, email string, admin bool) Principal {
	t.Helper()
	p, err := w.Authenticate(t.Context(), token)
	if err != nil || p.Email != email || p.Admin != admin {
		t.Errorf("the session is of %+v, %v", p, err)
	}
	return p
}

// A person from a provider gets an account with sign-up open, with sign-up invited if in the domain, and with sign-up
// off only as an administrator.
func TestWhoMayOpenAnAccount(t *testing.T) {
	domain, admin := annAtID, annAtID
	domain.InDomain, admin.Admin = true, true
	for _, tc := range []struct {
		signUp SignUp
		who    Person
		may    bool
	}{
		{SignUpOff, annAtID, false},
		{SignUpOff, domain, false},
		{SignUpOff, admin, true},
		{SignUpInvited, annAtID, false},
		{SignUpInvited, domain, true},
		{SignUpOpen, annAtID, true},
	} {
		w := newest(t, tc.signUp)
		token, err := w.SignInAs(t.Context(), tc.who, "")
		if tc.may {
			if err != nil {
				t.Errorf("%s, %+v: %v", tc.signUp, tc.who, err)
				continue
			}
			w.is(t, token, "ann@example.org", tc.who.Admin)
			again, err := w.SignInAs(t.Context(), tc.who, "")
			if err != nil || again == token {
				t.Errorf("%s, again: %v", tc.signUp, err)
			}
			continue
		}
		if !errors.Is(err, state.ErrForbidden) {
			t.Errorf("%s, %+v: %v", tc.signUp, tc.who, err)
		}
		if _, err := w.ByEmail(t.Context(), annAtID.Email); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("%s: there is an account, %v", tc.signUp, err)
		}
	}
}

// A person from a provider who has the address of an existing account cannot sign in to it before the identity is
// linked.
func TestAnAddressAloneOpensNoAccount(t *testing.T) {
	w := newest(t, SignUpOpen)
	if _, err := w.CreateAccount(t.Context(), "ann@example.org", password); err != nil {
		t.Fatal(err)
	}
	root := annAtID
	root.Admin = true
	for _, p := range []Person{annAtID, root} {
		if _, err := w.SignInAs(t.Context(), p, ""); !errors.Is(err, state.ErrExists) {
			t.Errorf("not linked: %v", err)
		}
	}
	ann, err := w.ByEmail(t.Context(), "ann@example.org")
	if err != nil {
		t.Fatal(err)
	}
	other := annAtID
	other.Email = "eve@example.org"
	if err := w.LinkIdentity(t.Context(), ann.ID, other); !errors.Is(err, state.ErrForbidden) {
		t.Errorf("another address: %v", err)
	}
	if err := w.LinkIdentity(t.Context(), ann.ID, annAtID); err != nil {
		t.Fatal(err)
	}
	for _, p := range []Person{annAtID, other} { // the address at the provider may change
		token, err := w.SignInAs(t.Context(), p, "")
		if err != nil {
			t.Fatal(err)
		}
		w.is(t, token, "ann@example.org", false)
		if err := w.LinkIdentity(t.Context(), ann.ID, p); err != nil {
			t.Errorf("linked already: %v", err)
		}
	}
	if token, err := w.SignInAs(t.Context(), root, ""); err != nil || !w.is(t, token, "ann@example.org", true).Admin {
		t.Errorf("an address of an administrator: %v", err)
	}
	ways, err := w.Ways(t.Context(), ann.ID)
	if err != nil || !ways.Password || len(ways.Identities) != 1 || ways.Identities[0].Issuer != annAtID.Issuer {
		t.Fatalf("the ways are %+v, %v", ways, err)
	}
	if err := w.UnlinkIdentity(t.Context(), ann.ID, ways.Identities[0].ID); err != nil {
		t.Fatal(err)
	}
	if _, err := w.SignInAs(t.Context(), annAtID, ""); !errors.Is(err, state.ErrExists) {
		t.Errorf("after it was removed: %v", err)
	}
}

// An invitation opens one account, for its address only and only while sign-up is on, with a password or by a
// provider.
func TestAnInvitationOpensOneAccount(t *testing.T) {
	w := newest(t, SignUpOff)
	if _, err := w.CreateLink(t.Context(), "ann@example.org"); !errors.Is(err, state.ErrForbidden) || !strings.Contains(err.Error(), "console.sign_up") {
		t.Errorf("where sign-up is off: %v", err)
	}
	w.signUp = SignUpInvited
	l, err := w.CreateLink(t.Context(), " Ann@example.org")
	if err != nil || l.Purpose != state.ForSignUp || l.Email != "ann@example.org" {
		t.Fatalf("the link is %+v, %v", l, err)
	}
	eve := annAtID
	eve.Email = "eve@example.org"
	if _, err := w.SignInAs(t.Context(), eve, l.Token); !errors.Is(err, state.ErrForbidden) {
		t.Errorf("another address: %v", err)
	}
	if _, err := w.UseLink(t.Context(), l.Token, "short"); !errors.Is(err, state.ErrInvalid) {
		t.Errorf("a bad password: %v", err)
	}
	if _, err := w.UseLink(t.Context(), l.Token, ""); !errors.Is(err, state.ErrInvalid) {
		t.Errorf("no password: %v", err)
	}
	w.signUp = SignUpOff
	if _, err := w.UseLink(t.Context(), l.Token, password); !errors.Is(err, state.ErrForbidden) {
		t.Errorf("where sign-up is off by now: %v", err)
	}
	w.signUp = SignUpInvited
	token, err := w.UseLink(t.Context(), l.Token, password)
	if err != nil {
		t.Fatal(err)
	}
	w.is(t, token, "ann@example.org", false)
	if _, err := w.SignIn(t.Context(), "ann@example.org", password, netip.Addr{}); err != nil {
		t.Error(err)
	}
	if _, err := w.UseLink(t.Context(), l.Token, password); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("again: %v", err)
	}
	// The same by a provider.
	l, err = w.CreateLink(t.Context(), "bob@example.org")
	if err != nil {
		t.Fatal(err)
	}
	bob := Person{Issuer: annAtID.Issuer, Subject: "8", Email: "bob@example.org"}
	if token, err = w.SignInAs(t.Context(), bob, l.Token); err != nil {
		t.Fatal(err)
	}
	w.is(t, token, "bob@example.org", false)
	if _, err := w.LinkOf(t.Context(), l.Token); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("used at a provider: %v", err)
	}
}

// The newest link for a password sets a new one until the link expires, and ends the sessions from before. Older
// links and changed tokens open nothing.
func TestALinkSetsANewPassword(t *testing.T) {
	w := newest(t, SignUpOff)
	if _, err := w.CreateAccount(t.Context(), "ann@example.org", "the one that is lost"); err != nil {
		t.Fatal(err)
	}
	old, err := w.SignIn(t.Context(), "ann@example.org", "the one that is lost", netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := w.CreateLink(t.Context(), "ann@example.org")
	if err != nil {
		t.Fatal(err)
	}
	l, err := w.CreateLink(t.Context(), "ann@example.org")
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"", "hfo_", first.Token, l.Token[:len(l.Token)-1], "hfs_" + l.Token[4:], l.Token + "A"} {
		if _, err := w.LinkOf(t.Context(), token); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("%q: %v", token, err)
		}
	}
	if got, err := w.node().LinkOf(t.Context(), l.Token); err != nil || got.Purpose != state.ForPassword || got.Email != "ann@example.org" {
		t.Errorf("another node tells of %+v, %v", got, err)
	}
	w.pass(InvitationLife - time.Second)
	if _, err := w.LinkOf(t.Context(), l.Token); err != nil {
		t.Errorf("before its end: %v", err)
	}
	token, err := w.UseLink(t.Context(), l.Token, password)
	if err != nil {
		t.Fatal(err)
	}
	w.is(t, token, "ann@example.org", false)
	if _, err := w.Authenticate(t.Context(), old); !errors.Is(err, state.ErrUnauthorized) {
		t.Errorf("the session of before: %v", err)
	}
	if l, err = w.CreateLink(t.Context(), "ann@example.org"); err != nil {
		t.Fatal(err)
	}
	w.pass(InvitationLife)
	if _, err := w.UseLink(t.Context(), l.Token, password); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("at its end: %v", err)
	}
}

// A link for the operator signs in once as the account of the operator, with administration rights, and neither token
// is in the log.
func TestALinkSignsTheOperatorIn(t *testing.T) {
	w := newest(t, SignUpOff)
	l, err := w.CreateOperatorLink(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	token, err := w.UseLink(t.Context(), l.Token, "")
	if err != nil {
		t.Fatal(err)
	}
	operator, err := w.Operator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.is(t, token, operator.Email, true)
	if _, err := w.UseLink(t.Context(), l.Token, ""); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("again: %v", err)
	}
	if logs := w.logs.String(); strings.Contains(logs, l.Token) || strings.Contains(logs, token) {
		t.Error("a token is in the log")
	}
}

// A sealed value opens only unchanged, for its kind, before its end, and on nodes of the cluster.
func TestSealedValues(t *testing.T) {
	w := newest(t, SignUpOff)
	text, err := w.SealValue("kind", time.Minute, map[string]string{"a": "hidden"})
	if err != nil || strings.Contains(text, "hidden") {
		t.Fatalf("%q, %v", text, err)
	}
	var got map[string]string
	if err := w.node().OpenValue("kind", text, &got); err != nil || got["a"] != "hidden" {
		t.Errorf("another node opens %v, %v", got, err)
	}
	if again, err := w.SealValue("kind", time.Minute, map[string]string{"a": "hidden"}); err != nil || again == text {
		t.Errorf("sealed the same twice, %v", err)
	}
	for i := range len(text) {
		bad := text[:i] + string('A'+(text[i]-'A'+1)%26) + text[i+1:]
		if err := w.OpenValue("kind", bad, &got); bad != text && !errors.Is(err, state.ErrNotFound) {
			t.Errorf("changed at %d: %v", i, err)
		}
	}
	for _, bad := range []string{"", "AAAA", text[:len(text)-1], text + "AAAA"} {
		if err := w.OpenValue("kind", bad, &got); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := w.OpenValue("other", text, &got); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("another kind: %v", err)
	}
	if _, err := w.SealValue("kind", time.Minute, strings.Repeat("x", maxValue)); !errors.Is(err, state.ErrTooLarge) {
		t.Errorf("more than a cookie has: %v", err)
	}
	w.pass(time.Minute)
	if err := w.OpenValue("kind", text, &got); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("at its end: %v", err)
	}
}

// The list has the links that can be used, the first to expire at the top, and a revoked link cannot be used.
func TestLinksAreListedAndRevoked(t *testing.T) {
	w := newWorld(t)
	w.signUp = SignUpInvited
	invitation, err := w.CreateLink(t.Context(), "ann@example.org")
	if err != nil {
		t.Fatal(err)
	}
	w.pass(time.Second)
	other, err := w.CreateLink(t.Context(), "eve@example.org")
	if err != nil {
		t.Fatal(err)
	}
	enter, err := w.CreateOperatorLink(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	listed := func(want ...Link) []OpenLink {
		t.Helper()
		all, err := w.Links(t.Context())
		if err != nil || len(all) != len(want) {
			t.Fatalf("%+v, %v", all, err)
		}
		for i, l := range want {
			if all[i].Email != l.Email || all[i].Purpose != l.Purpose || !all[i].Expires.Equal(l.Expires.Truncate(time.Millisecond)) {
				t.Errorf("link %d is %+v and not %+v", i, all[i], l)
			}
		}
		return all
	}
	all := listed(enter, invitation, other)
	if err := w.RevokeLink(t.Context(), all[1].ID); err != nil {
		t.Fatal(err)
	}
	listed(enter, other)
	if _, err := w.UseLink(t.Context(), invitation.Token, password); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("a revoked link: %v", err)
	}
	for _, id := range []state.LinkID{all[1].ID, "", "x", state.LinkID(strings.Repeat("x", 1000))} {
		if err := w.RevokeLink(t.Context(), id); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("%.20q: %v", id, err)
		}
	}
	w.pass(SessionLinkLife)
	listed(other)
}

// If an operator makes a user an administrator or takes that away, the setting that names administrators does not
// undo it at later sign-ins or for a new account.
func TestTheSettingDoesNotOverruleAnOperator(t *testing.T) {
	w := newest(t, SignUpInvited)
	root := annAtID
	root.Admin = true
	signIn := func(admin bool) {
		t.Helper()
		token, err := w.SignInAs(t.Context(), root, "")
		if err != nil {
			t.Fatal(err)
		}
		w.is(t, token, "ann@example.org", admin)
	}
	signIn(true)
	if err := w.SetAdmin(t.Context(), "ann@example.org", false); err != nil {
		t.Fatal(err)
	}
	signIn(false)
	signIn(false)
	if err := w.RemoveAccount(t.Context(), "ann@example.org"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.SignInAs(t.Context(), root, ""); !errors.Is(err, state.ErrForbidden) {
		t.Errorf("a new account, as of anybody without an invitation: %v", err)
	}
	root.InDomain = true
	signIn(false)
	if err := w.SetAdmin(t.Context(), "ann@example.org", true); err != nil {
		t.Fatal(err)
	}
	signIn(true)
}

// An account has the allowance of new accounts whether its user signs up at a provider, by an invitation or by both.
func TestWhoSignsUpHasTheAllowanceOfNewAccounts(t *testing.T) {
	const allowance = 12_345
	w := newest(t, SignUpOpen)
	w.allowance = allowance
	if _, err := w.SignInAs(t.Context(), annAtID, ""); err != nil {
		t.Fatal(err)
	}
	invited := annAtID
	invited.Subject, invited.Email = "8", "bea@example.org"
	for _, email := range []string{"bea@example.org", "cid@example.org"} {
		l, err := w.CreateLink(t.Context(), email)
		if err != nil {
			t.Fatal(err)
		}
		if email == invited.Email {
			_, err = w.SignInAs(t.Context(), invited, l.Token)
		} else {
			_, err = w.UseLink(t.Context(), l.Token, password)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, email := range []string{"ann@example.org", "bea@example.org", "cid@example.org"} {
		has, err := w.Holdings(t.Context(), email)
		if err != nil || has.Quota.Allowance != allowance || has.Admin {
			t.Errorf("%s has %+v, %v", email, has, err)
		}
	}
}
