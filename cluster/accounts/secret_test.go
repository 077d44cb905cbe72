package accounts

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// restored gives the cluster another secret, as a restore does, and returns the use case on a node with that secret.
func (w *world) restored(t *testing.T, account []byte) (*Accounts, []byte) {
	t.Helper()
	secret := bytes.Repeat([]byte{3}, 32)
	sealed, err := SealSecret(secret, account)
	if err != nil {
		t.Fatal(err)
	}
	node := clustertest.Members("n2")[0]
	node.FeatureLevel = state.NewestFeatureLevel
	w.state.ReplaceMembers(t, state.ReplaceMembers{Node: node, Cluster: "new", SealedSecret: sealed, At: 5, Action: state.ActionClusterRestore})
	return New(Options{State: w.state, Secret: secret, Now: func() time.Time { return w.now }}), secret
}

// After a restore has given the cluster another secret, API keys, sessions, links and cookies from before are valid, and
// so are new ones; a node with the old secret opens nothing.
func TestKeysAndSessionsOutliveTheClusterSecret(t *testing.T) {
	w, account := newUser(t)
	key, err := w.CreateKey(t.Context(), email, "k", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	session := signIn(t, w.Accounts)
	value, err := w.SealValue("cookie", time.Hour, "text")
	if err != nil {
		t.Fatal(err)
	}
	before, err := w.Accounts.Secret()
	if err != nil || !bytes.Equal(before, clusterSecret) {
		t.Fatalf("the account secret of a new cluster is not the cluster secret: %v", err)
	}
	a, _ := w.restored(t, before)
	if err := a.Fits(); err != nil {
		t.Fatal(err)
	}
	for name, token := range map[string]string{"key": key.Token, "session": session} {
		if !w.opens(t, a, token) {
			t.Errorf("the %s from before is refused", name)
		}
	}
	if secret, who, err := a.S3Key(t.Context(), key.AccessKeyID); err != nil || secret != key.SecretAccessKey || who.Account != account.ID {
		t.Errorf("the S3 key from before: %+v, %v", who, err)
	}
	var text string
	if err := a.OpenValue("cookie", value, &text); err != nil || text != "text" {
		t.Errorf("the cookie from before: %q, %v", text, err)
	}
	if token := signIn(t, a); !w.opens(t, a, token) || !strings.HasPrefix(token, "hfs_") {
		t.Error("a new session is refused")
	}
	if _, err := a.RotateSigningKey(t.Context()); err != nil {
		t.Error(err)
	}
	later, err := a.CreateKey(t.Context(), email, "later", nil, 0)
	if err != nil || !w.opens(t, a, later.Token) {
		t.Errorf("a new key: %v", err)
	}
	if now, err := a.Secret(); err != nil || !bytes.Equal(now, clusterSecret) {
		t.Errorf("the account secret has changed: %v", err)
	}
	if err := w.node().Fits(); !errors.Is(err, ErrSealed) {
		t.Errorf("a node with the old secret: %v", err)
	}
}

// A sealed account secret opens with its cluster secret only, and not if a byte of it has changed.
func TestASealedSecretOpensWithItsClusterSecretOnly(t *testing.T) {
	other := bytes.Repeat([]byte{4}, 32)
	sealed, err := SealSecret(clusterSecret, other)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := unsealSecret(clusterSecret, sealed); err != nil || !bytes.Equal(got, other) {
		t.Errorf("%x, %v", got, err)
	}
	if _, err := unsealSecret(other, sealed); !errors.Is(err, ErrSealed) {
		t.Errorf("with another secret: %v", err)
	}
	for i := range sealed {
		b := bytes.Clone(sealed)
		b[i] ^= 1
		if got, err := unsealSecret(clusterSecret, b); err == nil {
			t.Errorf("byte %d changed: %x", i, got)
		}
	}
	for i := 1; i < len(sealed); i++ {
		if got, err := unsealSecret(clusterSecret, sealed[:i]); err == nil {
			t.Errorf("%d bytes: %x", i, got)
		}
	}
	if _, err := SealSecret([]byte("short"), other); err == nil {
		t.Error("a secret that is too short seals")
	}
}
