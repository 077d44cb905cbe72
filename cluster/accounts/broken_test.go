package accounts

import (
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A use case of accounts returns an error if any one of its reads of the state fails. A client would take a made-up
// answer, such as a revoked key or an account without keys, for the truth.
func TestNoReadThatFailsIsPassedOver(t *testing.T) {
	w := newWorld(t)
	a := w.sharing(t)
	share := w.share(t, a.ID, 1, time.Time{})
	if err := w.SetPassword(t.Context(), email, password); err != nil {
		t.Fatal(err)
	}
	key, session := w.key(t, email), signIn(t, w.Accounts)
	for name, use := range map[string]func() error{
		"authenticate":         func() error { _, err := w.Authenticate(t.Context(), key.Token); return err },
		"recognize":            func() error { _, err := w.Recognize(key.Token); return err },
		"recognize, on a node": func() error { _, err := w.node().Recognize(key.Token); return err },
		"a session":            func() error { _, err := w.Authenticate(t.Context(), session); return err },
		"recognize a session":  func() error { _, err := w.Recognize(session); return err },
		"S3 key":               func() error { _, _, err := w.S3Key(t.Context(), key.AccessKeyID); return err },
		"recognize an S3 key":  func() error { _, _, err := w.RecognizeS3Key(key.AccessKeyID); return err },
		"a share":              func() error { _, err := w.AuthenticateS3(t.Context(), share.Token); return err },
		"recognize a share":    func() error { _, err := w.RecognizeS3(share.Token); return err },
		"S3 key of a share":    func() error { _, _, err := w.S3Key(t.Context(), share.AccessKeyID); return err },
		"shares":               func() error { _, err := w.Shares(t.Context(), a.ID, "photos", state.SharePlace{}, 5); return err },
		"create a share":       func() error { _, err := w.CreateShare(t.Context(), a.ID, share.request()); return err },
		"account":              func() error { _, err := w.ByEmail(t.Context(), email); return err },
		"operator":             func() error { _, err := w.Operator(t.Context()); return err },
		"holdings":             func() error { _, err := w.Holdings(t.Context(), email); return err },
		"keys":                 func() error { _, err := w.Keys(t.Context(), email); return err },
		"show":                 func() error { _, err := w.Show(t.Context(), key.ID); return err },
		"list":                 func() error { _, err := w.List(t.Context()); return err },
		"fits":                 func() error { return w.node().Fits() },
		"allowance":            func() error { return w.SetAllowance(t.Context(), email, 7) },
	} {
		t.Run(name, func(t *testing.T) { w.state.EachReadFails(t, use) })
	}
}
