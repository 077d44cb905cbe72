package accounts

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Every node refuses each way into an account as soon as another node has disabled it. The answers are those for a
// revoked key and a wrong password. All but the sessions is back when the account is enabled.
func TestADisabledAccountIsRefusedByEveryNodeAtOnce(t *testing.T) {
	w := newWorld(t)
	a := w.sharing(t)
	if err := w.SetPassword(t.Context(), email, "a long password"); err != nil {
		t.Fatal(err)
	}
	key, share := w.key(t, email), w.share(t, a.ID, 1, time.Time{})
	nodes := []*Accounts{w.Accounts, w.node(), w.node()}
	person := Person{Issuer: "https://id.example", Subject: "1", Email: email, Admin: true}
	if err := w.LinkIdentity(t.Context(), a.ID, person); err != nil {
		t.Fatal(err)
	}
	link, err := w.CreateLink(t.Context(), email)
	if err != nil {
		t.Fatal(err)
	}
	session, err := w.SignIn(t.Context(), email, "a long password", netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	var running []Principal
	for _, use := range []func() (Principal, error){
		func() (Principal, error) { return w.Authenticate(t.Context(), key.Token) },
		func() (Principal, error) { return w.AuthenticateS3(t.Context(), share.Token) },
		func() (Principal, error) { return w.Authenticate(t.Context(), session) },
	} {
		who, err := use()
		if err != nil {
			t.Fatal(err)
		}
		running = append(running, who)
	}
	ways := func(n *Accounts) map[string]error {
		_, key1 := n.Authenticate(t.Context(), key.Token)
		_, key2 := n.Recognize(key.Token)
		_, key3 := n.AuthenticateS3(t.Context(), key.Token)
		_, _, pair := n.S3Key(t.Context(), key.AccessKeyID)
		_, _, pair2 := n.RecognizeS3Key(key.AccessKeyID)
		_, share1 := n.AuthenticateS3(t.Context(), share.Token)
		_, _, share2 := n.S3Key(t.Context(), share.AccessKeyID)
		return map[string]error{
			"key": key1, "recognized key": key2, "key at the gateway": key3, "pair": pair, "recognized pair": pair2, "share": share1, "pair of a share": share2,
			"running request of the key": n.Still(running[0]), "running request of the share": n.Still(running[1]),
		}
	}
	if err := nodes[1].SetDisabled(t.Context(), email, true); err != nil {
		t.Fatal(err)
	}
	for i, n := range nodes {
		for name, err := range ways(n) {
			if !errors.Is(err, state.ErrUnauthorized) {
				t.Errorf("node %d, %s: %v", i, name, err)
			}
		}
		_, signed := n.SignIn(t.Context(), email, "a long password", netip.Addr{})
		_, wrong := n.SignIn(t.Context(), email, "another password", netip.Addr{})
		_, unknown := n.SignIn(t.Context(), "nobody@example.org", "another password", netip.Addr{})
		if !errors.Is(signed, state.ErrUnauthorized) || signed.Error() != wrong.Error() || signed.Error() != unknown.Error() {
			t.Errorf("node %d: sign-in: %v; wrong password: %v; unknown: %v", i, signed, wrong, unknown)
		}
		if _, err := n.SignInAs(t.Context(), person, ""); !errors.Is(err, state.ErrUnauthorized) {
			t.Errorf("node %d: sign-in at a provider: %v", i, err)
		}
		if _, err := n.UseLink(t.Context(), link.Token, "a new password"); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("node %d: one-time link: %v", i, err)
		}
		if _, err := n.Authenticate(t.Context(), session); !errors.Is(err, state.ErrUnauthorized) {
			t.Errorf("node %d: session: %v", i, err)
		}
	}
	if has, err := w.Holdings(t.Context(), email); err != nil || has.Disabled != state.MillisOf(w.now) || has.Admin || has.Keys != 1 || has.Sessions != 0 {
		t.Errorf("it has %+v, %v", has, err)
	}
	if all, err := w.List(t.Context()); err != nil || all[0].Disabled != 0 || all[len(all)-1].Disabled == 0 {
		t.Errorf("the list: %+v, %v", all, err)
	}
	if page, err := w.Page(t.Context(), UserQuery{Part: email, Limit: 1}); err != nil || page.Users[0].Disabled == 0 {
		t.Errorf("the page: %+v, %v", page, err)
	}
	if err := nodes[2].SetDisabled(t.Context(), email, false); err != nil {
		t.Fatal(err)
	}
	for i, n := range nodes {
		for name, err := range ways(n) {
			if err != nil {
				t.Errorf("enabled, node %d, %s: %v", i, name, err)
			}
		}
		if err := n.Still(running[2]); !errors.Is(err, state.ErrUnauthorized) {
			t.Errorf("enabled, node %d: the session: %v", i, err)
		}
	}
	if _, err := w.UseLink(t.Context(), link.Token, "a new password"); err != nil {
		t.Errorf("enabled: one-time link: %v", err)
	}
}

// An administrator cannot disable the own account, and nobody can disable the account of the local commands.
func TestNobodyDisablesTheOwnAccount(t *testing.T) {
	w := newWorld(t)
	a := w.sharing(t)
	by := func(kind state.ActorKind, id state.AccountID) context.Context {
		return state.WithActor(t.Context(), state.Actor{Kind: kind, Account: id})
	}
	if err := w.SetDisabled(by(state.ActorSession, a.ID), email, true); !errors.Is(err, state.ErrForbidden) {
		t.Errorf("the own account: %v", err)
	}
	operator, err := w.Operator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.SetDisabled(by(state.ActorOperator, ""), operator.Email, true); !errors.Is(err, state.ErrForbidden) {
		t.Errorf("the account of local commands: %v", err)
	}
	if err := w.SetDisabled(by(state.ActorOperator, ""), "nobody@example.org", true); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("nobody's account: %v", err)
	}
	if err := w.SetDisabled(by(state.ActorOperator, ""), email, true); err != nil {
		t.Error(err)
	}
}

// A session has the address and the program of its client, from the feature level on that has them.
func TestASessionSaysFromWhereItBegan(t *testing.T) {
	w, account := newUser(t)
	ctx := WithAgent(state.WithActor(t.Context(), state.Actor{Addr: "192.0.2.7"}), "Firefox 140\non Linux")
	begin := func() SessionInfo {
		t.Helper()
		if _, err := w.SignIn(ctx, account.Email, password, netip.Addr{}); err != nil {
			t.Fatal(err)
		}
		all, err := w.Sessions(t.Context(), account.ID)
		if err != nil {
			t.Fatal(err)
		}
		return all[0]
	}
	if s := begin(); s.Addr != "" || s.Agent != "" {
		t.Errorf("before the feature level: %+v", s)
	}
	w.state.Apply(t, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
	w.pass(time.Second)
	if s := begin(); s.Addr != "192.0.2.7" || s.Agent != "Firefox 140 on Linux" {
		t.Errorf("%+v", s)
	}
}
