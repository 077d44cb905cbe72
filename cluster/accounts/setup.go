package accounts

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// LinkLife is how long a setup token is valid.
const LinkLife = 30 * time.Minute

// A setup token is
//
//	"hfl_" | base64url of: expiry in milliseconds since 1970, 8 bytes, big endian | 24 random bytes | the first 16 of HMAC-SHA256 over them
//
// under the key HKDF-SHA256(account secret, no salt, info "holdfast setup v1"). It is not stored.
// It is no longer accepted once the cluster has an administrator, so it can be used only once.
const (
	setupPrefix = "hfl_"
	setupInfo   = "holdfast setup v1"
	setupSigned = 32
)

// SetupToken returns a token for SetUp that is valid for LinkLife. It returns "" if the cluster
// already has an administrator, according to the state of this node.
func (a *Accounts) SetupToken() (string, error) {
	view, release := a.state.LocalView()
	defer release()
	there, err := view.AnyAdmin()
	if err != nil || there {
		return "", err
	}
	signed := make([]byte, setupSigned)
	if _, err := rand.Read(signed); err != nil {
		return "", fmt.Errorf("setup token: %w", err)
	}
	binary.BigEndian.PutUint64(signed, uint64(state.MillisOf(a.now().Add(LinkLife))))
	return setupPrefix + base64.RawURLEncoding.EncodeToString(append(signed, mac(a.keys().setup, signed)...)), nil
}

// CheckSetup returns nil if SetUp would accept a token. It returns state.ErrNotFound if the token
// was never issued or has expired, or if there is an administrator already.
func (a *Accounts) CheckSetup(ctx context.Context, token string) error {
	if !a.readSetup(token) {
		return state.ErrNotFound
	}
	view, release, err := a.state.View(ctx)
	if err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	defer release()
	if there, err := view.AnyAdmin(); err != nil || there {
		return errors.Join(err, state.ErrNotFound)
	}
	return nil
}

// readSetup returns whether this cluster has issued a setup token that has not expired.
func (a *Accounts) readSetup(token string) bool {
	text, ok := strings.CutPrefix(token, setupPrefix)
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if !ok || err != nil || len(raw) != setupSigned+sessionMAC || !hmac.Equal(raw[setupSigned:], mac(a.keys().setup, raw[:setupSigned])) {
		return false
	}
	return state.MillisOf(a.now()) < state.Millis(binary.BigEndian.Uint64(raw))
}

// SetUp creates the account of the first administrator, who presents a setup token.
//
// Errors: those of CheckSetup; state.ErrInvalid for an unacceptable e-mail address or password;
// state.ErrExists if the e-mail address has an account; state.ErrUnavailable without a majority
// and below feature level 6.
func (a *Accounts) SetUp(ctx context.Context, token, email, password string) error {
	if err := a.CheckSetup(ctx, token); err != nil {
		return err
	}
	account, err := a.newAccount(ctx, email, password)
	if err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	if _, err := a.state.Propose(ctx, &state.OpenFirstAdmin{Account: account, Allowance: state.Unlimited}); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	a.log.InfoContext(ctx, "first administrator added", "account", account.ID, "email", account.Email)
	return nil
}

// SetAdmin makes the account with an e-mail address an administrator, or a normal account again,
// for an operator. If an operator has withdrawn the role, no setting grants it again.
//
// Errors: state.ErrNotFound, state.ErrUnavailable.
func (a *Accounts) SetAdmin(ctx context.Context, email string, admin bool) error {
	account, err := a.ByEmail(ctx, email)
	if err != nil {
		return err
	}
	return a.change(ctx, "administrator changed", account, a.adminDecision(account.ID, admin, false), slog.Bool("admin", admin))
}

// adminDecision returns the command that makes an account an administrator or a normal account
// again: state.DecideAdmin, or state.SetAdmin while some members do not support the former.
func (a *Accounts) adminDecision(account state.AccountID, admin, bySetting bool) state.Command {
	view, release := a.state.LocalView()
	defer release()
	if level, err := view.FeatureLevel(); err == nil && level < state.AuditLevel {
		return &state.SetAdmin{Account: account, Admin: admin}
	}
	return &state.DecideAdmin{Account: account, Admin: admin, BySetting: bySetting}
}
