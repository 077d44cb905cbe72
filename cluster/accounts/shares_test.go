package accounts

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// sharing makes an account with a bucket "photos" in a cluster that knows shares.
func (w *world) sharing(tb testing.TB) state.Account {
	tb.Helper()
	a := w.account(tb, email)
	w.state.Apply(tb, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
	w.state.NewBucket(tb, a.ID, "photos", false)
	return a
}

// shareID is the id of a share with a number in it.
func shareID(n int) state.ShareID { return state.ShareID(fmt.Sprintf("%032x", n)) }

func (w *world) share(tb testing.TB, a state.AccountID, n int, expires time.Time) Share {
	tb.Helper()
	s, err := w.CreateShare(tb.Context(), a, ShareRequest{ID: shareID(n), Bucket: "photos", Prefixes: []string{"e/"}, Read: true, Name: "for Ann", Expires: expires})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// request returns the request that made a share.
func (s *Share) request() ShareRequest {
	return ShareRequest{ID: s.ID, Bucket: s.Bucket, Prefixes: s.Prefixes, Read: s.Read, Name: s.Name}
}

// Only the S3 gateway accepts the token of a share, and its principal permits nothing to code that does not know
// shares.
func TestAShareOpensTheGatewayOnly(t *testing.T) {
	w := newWorld(t)
	a := w.sharing(t)
	s := w.share(t, a.ID, 1, time.Time{})
	key := w.key(t, email)
	for i, n := range []*Accounts{w.Accounts, w.node()} {
		for name, use := range map[string]func() (Principal, error){
			"token":               func() (Principal, error) { return n.AuthenticateS3(t.Context(), s.Token) },
			"recognized token":    func() (Principal, error) { return n.RecognizeS3(s.Token) },
			"key pair":            func() (Principal, error) { _, who, err := n.S3Key(t.Context(), s.AccessKeyID); return who, err },
			"recognized key pair": func() (Principal, error) { _, who, err := n.RecognizeS3Key(s.AccessKeyID); return who, err },
		} {
			who, err := use()
			if err != nil || who.Account != a.ID || who.KeyID != s.Key || who.Share == nil || who.Share.ID != s.ID || who.Index == 0 {
				t.Errorf("node %d, %s: %+v, %v", i, name, who, err)
			}
			if who.May(state.ScopeRead) || who.May(state.ScopeWrite) || who.May(state.ScopeDelete) || who.Admin || who.Email != "" || who.Session != "" {
				t.Errorf("%s permits more than the share: %+v", name, who)
			}
			if !who.MayRead("photos", "e/1") || who.MayRead("photos", "f") || who.MayRead("other", "e/1") {
				t.Errorf("%s: the limits of reading", name)
			}
			if err := n.Still(who); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := n.Authenticate(t.Context(), s.Token); !errors.Is(err, state.ErrUnauthorized) {
			t.Errorf("node %d: Authenticate: %v", i, err)
		}
		if _, err := n.Recognize(s.Token); !errors.Is(err, state.ErrUnauthorized) {
			t.Errorf("node %d: Recognize: %v", i, err)
		}
		if who, err := n.AuthenticateS3(t.Context(), key.Token); err != nil || who.Share != nil || !who.May(state.ScopeWrite) || !who.MayRead("other", "f") {
			t.Errorf("node %d: an API key at the gateway: %+v, %v", i, who, err)
		}
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(s.Token, ".")[1])
	if err != nil || strings.Contains(string(payload), email) || strings.Contains(string(payload), "e/") {
		t.Errorf("the token says %s, %v", payload, err)
	}
	if keys, err := w.Keys(t.Context(), email); err != nil || len(keys) != 1 {
		t.Errorf("a share is listed as a key: %v, %v", keys, err)
	}
	if _, err := w.Show(t.Context(), s.Key); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("a share is shown as a key: %v", err)
	}
}

// Every node refuses a share, and requests of it that are under way, as soon as another node has revoked it.
func TestARevokedShareIsRefusedByEveryNodeAtOnce(t *testing.T) {
	w := newWorld(t)
	a := w.sharing(t)
	revoked, kept := w.share(t, a.ID, 1, time.Time{}), w.share(t, a.ID, 2, time.Time{})
	nodes := []*Accounts{w.Accounts, w.node(), w.node()}
	var who Principal
	for _, n := range nodes {
		var err error
		if who, err = n.AuthenticateS3(t.Context(), revoked.Token); err != nil {
			t.Fatal(err)
		}
	}
	if err := nodes[1].RevokeShare(t.Context(), a.ID, "photos", revoked.ID); err != nil {
		t.Fatal(err)
	}
	for i, n := range nodes {
		if _, err := n.AuthenticateS3(t.Context(), revoked.Token); !errors.Is(err, state.ErrUnauthorized) {
			t.Errorf("node %d: %v", i, err)
		}
		if _, _, err := n.S3Key(t.Context(), revoked.AccessKeyID); !errors.Is(err, state.ErrUnauthorized) {
			t.Errorf("node %d, the key pair: %v", i, err)
		}
		if err := n.Still(who); !errors.Is(err, state.ErrUnauthorized) {
			t.Errorf("node %d, a request that is under way: %v", i, err)
		}
		if _, err := n.AuthenticateS3(t.Context(), kept.Token); err != nil {
			t.Errorf("node %d, the other share: %v", i, err)
		}
	}
	for _, id := range []state.ShareID{revoked.ID, "", "x"} {
		if err := w.RevokeShare(t.Context(), a.ID, "photos", id); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("revoke %q: %v", id, err)
		}
	}
	if err := w.RevokeShare(t.Context(), a.ID, "none", kept.ID); !errors.Is(err, state.ErrNoBucket) {
		t.Errorf("in no bucket: %v", err)
	}
	if err := w.RemoveAccount(t.Context(), email); err != nil {
		t.Fatal(err)
	}
	if _, err := w.AuthenticateS3(t.Context(), kept.Token); !errors.Is(err, state.ErrUnauthorized) {
		t.Errorf("of an account that is gone: %v", err)
	}
}

// A share is valid until the next whole second after its end, is refused from then on, and stays in the list without
// secrets.
func TestAShareExpires(t *testing.T) {
	w := newWorld(t)
	a := w.sharing(t)
	s := w.share(t, a.ID, 1, w.Accounts.now().Add(90*time.Second))
	if want := time.Unix(1_800_000_091, 0).UTC(); !s.Expires.Time().Equal(want) {
		t.Errorf("expires %v, want the next whole second, %v", s.Expires.Time(), want)
	}
	w.pass(90 * time.Second)
	who, err := w.AuthenticateS3(t.Context(), s.Token)
	if err != nil {
		t.Errorf("in its life: %v", err)
	}
	w.pass(877 * time.Millisecond)
	_, _, pairErr := w.S3Key(t.Context(), s.AccessKeyID)
	if _, err := w.AuthenticateS3(t.Context(), s.Token); !errors.Is(err, state.ErrUnauthorized) || !errors.Is(pairErr, state.ErrUnauthorized) || !errors.Is(w.Still(who), state.ErrUnauthorized) {
		t.Errorf("after it: %v, %v, %v", err, pairErr, w.Still(who))
	}
	page, err := w.Shares(t.Context(), a.ID, "photos", state.SharePlace{}, 10)
	if err != nil || len(page.Shares) != 1 || page.Shares[0].Token != "" || page.Shares[0].SecretAccessKey != "" {
		t.Errorf("listed as %v, %v", page, err)
	}
}

// A token that names another share, key, time or scope than the record of its share is refused, although the signing
// key has signed it.
func TestASharesTokenIsItsOwn(t *testing.T) {
	w := newWorld(t)
	a := w.sharing(t)
	s, key := w.share(t, a.ID, 1, time.Time{}), w.key(t, email)
	if _, err := w.AuthenticateS3(t.Context(), s.Token); err != nil { // the signing key is open
		t.Fatal(err)
	}
	signing := w.signers.Load().by[0]
	for name, c := range map[string]claims{
		"the id of another share":   {Subject: string(shareID(2)), Scope: shareScope, ID: string(s.Key), Issued: seconds(s.Created)},
		"a share of an API key":     {Subject: string(s.ID), Scope: shareScope, ID: string(key.ID), Issued: seconds(s.Created)},
		"an API key of a share":     {Subject: email, Scope: state.ScopeRead, ID: string(s.Key), Issued: seconds(s.Created)},
		"an API key of the id":      {Subject: string(s.ID), Scope: state.ScopeRead, ID: string(s.Key), Issued: seconds(s.Created)},
		"another end":               {Subject: string(s.ID), Scope: shareScope, ID: string(s.Key), Issued: seconds(s.Created), Expires: 1 << 40},
		"another beginning":         {Subject: string(s.ID), Scope: shareScope, ID: string(s.Key), Issued: 7},
		"no share":                  {Subject: string(s.ID), Scope: shareScope, ID: "", Issued: seconds(s.Created)},
		"a share beside permission": {Subject: string(s.ID), Scope: shareScope + " " + state.ScopeWrite, ID: string(s.Key), Issued: seconds(s.Created)},
	} {
		token, err := signing.sign(c)
		if err != nil {
			t.Fatal(err)
		}
		if who, err := w.AuthenticateS3(t.Context(), token); !errors.Is(err, state.ErrUnauthorized) {
			t.Errorf("%s: %+v, %v", name, who, err)
		}
		if who, err := w.Authenticate(t.Context(), token); !errors.Is(err, state.ErrUnauthorized) {
			t.Errorf("%s, elsewhere: %+v, %v", name, who, err)
		}
	}
}

// A rotation keeps the signing key of a share that lives, and removes a share that has expired to make room.
func TestAShareOutlivesTheRotationOfTheSigningKey(t *testing.T) {
	w := newWorld(t)
	a := w.sharing(t)
	rotate := func(want error) {
		t.Helper()
		if _, err := w.RotateSigningKey(t.Context()); !errors.Is(err, want) {
			t.Fatalf("%v, want %v", err, want)
		}
	}
	var lives Share
	for g := 1; g < state.MaxSigningKeys; g++ {
		rotate(nil)
		if s := w.share(t, a.ID, g, time.Time{}); g == 1 {
			lives = s
		}
	}
	rotate(state.ErrTooLarge) // every signing key has a share that lives
	if err := w.RevokeShare(t.Context(), a.ID, "photos", shareID(3)); err != nil {
		t.Fatal(err)
	}
	rotate(nil)
	w.share(t, a.ID, 100, w.Accounts.now().Add(time.Minute))
	rotate(state.ErrTooLarge)
	w.pass(time.Hour)
	rotate(nil) // by removing the share that has expired
	if page, err := w.Shares(t.Context(), a.ID, "", state.SharePlace{}, 1000); err != nil || len(page.Shares) != state.MaxSigningKeys-2 {
		t.Errorf("%d shares are left, %v", len(page.Shares), err)
	}
	if _, err := w.node().AuthenticateS3(t.Context(), lives.Token); err != nil {
		t.Errorf("a share of the first signing key: %v", err)
	}
}

// Below the feature level of shares, the cluster creates and revokes none and its error names both levels.
func TestAnOlderClusterHasNoShares(t *testing.T) {
	w := newWorld(t)
	a := w.account(t, email)
	w.state.Apply(t, &state.RaiseLevel{FeatureLevel: state.ShareLevel - 1})
	w.state.NewBucket(t, a.ID, "photos", false)
	_, err := w.CreateShare(t.Context(), a.ID, ShareRequest{ID: shareID(1), Bucket: "photos", Prefixes: []string{"e/"}, Read: true})
	if !errors.Is(err, state.ErrUnavailable) || !strings.Contains(err.Error(), "shares need feature level 8 and the cluster has 7") {
		t.Errorf("%v", err)
	}
	if err := w.RevokeShare(t.Context(), a.ID, "photos", shareID(1)); !errors.Is(err, state.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if page, err := w.Shares(t.Context(), a.ID, "photos", state.SharePlace{}, 10); err != nil || len(page.Shares) > 0 || page.More {
		t.Errorf("%v, %v", page, err)
	}
}

// Neither the log nor any text form of a share has its token, its secret access key or its prefixes. The audit log
// has a row for a share that is shown again.
func TestTheSecretsOfAShareStayOutOfLogsAndText(t *testing.T) {
	w := newWorld(t)
	a := w.sharing(t)
	s := w.share(t, a.ID, 1, time.Time{})
	if again := w.share(t, a.ID, 1, time.Time{}); again.Token != s.Token || again.Key != s.Key {
		t.Error("the same request made another share")
	}
	if err := w.RevokeShare(t.Context(), a.ID, "photos", s.ID); err != nil {
		t.Fatal(err)
	}
	slog.New(slog.NewTextHandler(w.logs, nil)).Info("a share", "share", s)
	text := w.logs.String() + fmt.Sprintf("%v %+v %#v %s", s, s, s, []Share{s})
	if !strings.Contains(text, "share created") || !strings.Contains(text, "share revoked") {
		t.Errorf("not logged: %s", text)
	}
	for _, secret := range []string{s.Token, s.SecretAccessKey, "e/"} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is told by %s", secret, text)
		}
	}
	view, release := w.state.LocalView()
	defer release()
	var actions []state.Action
	err := view.AuditBefore(1<<62, func(r state.AuditEntry) (bool, error) {
		actions = append(actions, r.Action)
		return len(actions) < 4, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(actions) != fmt.Sprint([]state.Action{state.ActionShareRevoke, state.ActionKeyShow, state.ActionShareCreate, state.ActionBucketCreate}) {
		t.Errorf("the audit log has %v", actions)
	}
}

// The requests of a share are in the usage of its account, and the list says when the share was last used.
func TestTheUseOfAShareCountsForItsOwner(t *testing.T) {
	w := newWorld(t)
	a := w.sharing(t)
	s := w.share(t, a.ID, 1, time.Time{})
	if _, err := w.AuthenticateS3(t.Context(), s.Token); err != nil {
		t.Fatal(err)
	}
	_, who, err := w.S3Key(t.Context(), s.AccessKeyID)
	if err != nil {
		t.Fatal(err)
	}
	w.Used(who)
	if err := errors.Join(w.NoteUsage(t.Context()), w.NoteUses(t.Context())); err != nil {
		t.Fatal(err)
	}
	if days, err := w.Usage(t.Context(), a.ID, 1); err != nil || len(days) != 1 || days[0].Requests != 2 {
		t.Errorf("the usage of the owner is %v, %v", days, err)
	}
	page, err := w.Shares(t.Context(), a.ID, "photos", state.SharePlace{}, 1)
	if err != nil || len(page.Shares) != 1 || !page.Shares[0].Used.Equal(w.Accounts.now().Truncate(time.Millisecond)) {
		t.Errorf("listed as %+v, %v", page, err)
	}
}

// The operator's list has the shares of each account with its address and without secrets, and one share is found by
// its bucket and id alone.
func TestTheSharesOfAllAccountsAreListed(t *testing.T) {
	w := newWorld(t)
	a := w.sharing(t)
	b := w.account(t, "bob@example.org")
	w.state.NewBucket(t, b.ID, "photos", false)
	w.share(t, a.ID, 1, time.Time{})
	w.share(t, b.ID, 2, time.Time{})
	all, err := w.AllShares(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	for _, s := range all {
		if want := map[state.ShareID]string{shareID(1): email, shareID(2): "bob@example.org"}[s.ID]; s.Email != want || s.Token != "" || s.SecretAccessKey != "" {
			t.Errorf("%s is of %s, not %s", s.ID, s.Email, want)
		}
	}
	if s, err := w.ShareOf(t.Context(), a.ID, "photos", shareID(1)); err != nil || s.Name != "for Ann" || s.Token != "" {
		t.Errorf("%+v, %v", s, err)
	}
	for _, id := range []state.ShareID{shareID(2), "x"} {
		if _, err := w.ShareOf(t.Context(), a.ID, "photos", id); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("%s of the other account: %v", id, err)
		}
	}
	if _, err := w.ShareOf(t.Context(), a.ID, "absent", shareID(1)); !errors.Is(err, state.ErrNoBucket) {
		t.Error(err)
	}
}
