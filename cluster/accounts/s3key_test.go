package accounts

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Every node gives the secret and the principal of the API key for its access key id, before and after a rotation of
// the signing key.
func TestAnAccessKeySpeaksForItsKey(t *testing.T) {
	w := newWorld(t)
	w.account(t, email)
	key := w.key(t, email, state.ScopeRead)
	if _, err := w.RotateSigningKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	later := w.key(t, email)
	fresh := w.node()
	for _, k := range []Key{key, later} {
		token, err := w.Authenticate(t.Context(), k.Token)
		if err != nil {
			t.Fatal(err)
		}
		for name, a := range map[string]*Accounts{"a node": w.Accounts, "another one": fresh} {
			secret, who, err := a.S3Key(t.Context(), k.AccessKeyID)
			if err != nil || secret != k.SecretAccessKey || who.KeyID != k.ID || who.Account != token.Account || who.Email != email ||
				strings.Join(who.Scopes, " ") != k.Scope || who.Index < token.Index {
				t.Errorf("%s: %+v, %v, want %+v", name, who, err, token)
			}
		}
	}
}

// Every node refuses the access key id of a revoked or expired API key, and any malformed id, with the same text.
func TestAnAccessKeyIsRefusedAsItsTokenIs(t *testing.T) {
	w := newWorld(t)
	w.account(t, email)
	revoked, kept := w.key(t, email), w.key(t, email)
	short, err := w.CreateKey(t.Context(), email, "", nil, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	nodes := []*Accounts{w.Accounts, w.node()}
	for _, a := range nodes { // the signing key is open everywhere
		if _, _, err := a.S3Key(t.Context(), revoked.AccessKeyID); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Revoke(t.Context(), revoked.ID); err != nil {
		t.Fatal(err)
	}
	w.pass(3 * time.Second)
	for _, id := range []string{
		revoked.AccessKeyID, short.AccessKeyID, "", "HF", "hf" + kept.AccessKeyID[2:], strings.ToLower(kept.AccessKeyID), kept.AccessKeyID + "A",
		string(kept.ID), kept.Token, "HF" + strings.Repeat("A", 10_000), "HF\x00", "HF" + "\u0130",
	} {
		for i, a := range nodes {
			secret, who, err := a.S3Key(t.Context(), id)
			if !errors.Is(err, state.ErrUnauthorized) || err.Error() != state.ErrUnauthorized.Detail || secret != "" || who.Account != "" {
				t.Errorf("node %d, %.20q: %q, %+v, %v", i, id, secret, who, err)
			}
		}
	}
	if _, _, err := w.S3Key(t.Context(), kept.AccessKeyID); err != nil {
		t.Error(err)
	}
	w.state.Fail(state.ErrUnavailable)
	if _, _, err := w.S3Key(t.Context(), kept.AccessKeyID); !errors.Is(err, state.ErrUnavailable) {
		t.Errorf("without a majority: %v", err)
	}
}

// A look-up of a secret is no use of its key; Used records the use.
func TestALookUpOfASecretIsNoUseOfItsKey(t *testing.T) {
	w := newWorld(t)
	w.account(t, email)
	key := w.key(t, email)
	_, who, err := w.S3Key(t.Context(), key.AccessKeyID)
	if err != nil {
		t.Fatal(err)
	}
	if at := w.uses.last(useOf{key: key.ID}); at != 0 {
		t.Errorf("noted at %d", at)
	}
	w.Used(who)
	if at := w.uses.last(useOf{key: key.ID}); at != state.MillisOf(w.now) {
		t.Errorf("noted at %d", at)
	}
}
