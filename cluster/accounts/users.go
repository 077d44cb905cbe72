package accounts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// User is an account with its quota.
type User struct {
	state.Account
	Quota    state.Quota  // the zero value if the cluster is below feature level 2
	Disabled state.Millis // when the account was disabled; 0 if it is not
	Admin    bool         // the account is an administrator
}

// List returns all accounts in the order of their ids, without password hashes.
func (a *Accounts) List(ctx context.Context) ([]User, error) {
	view, release, err := a.state.View(ctx)
	if err != nil {
		return nil, fmt.Errorf("list accounts: %w", err)
	}
	defer release()
	all, err := view.Accounts()
	if err != nil {
		return nil, fmt.Errorf("list accounts: %w", err)
	}
	users := make([]User, len(all))
	for i := range all {
		if users[i], err = withRights(view, all[i]); err != nil {
			return nil, fmt.Errorf("list accounts: %w", err)
		}
	}
	return users, nil
}

// UserQuery requests a page of accounts, sorted by e-mail address.
type UserQuery struct {
	Part  string // return accounts whose address contains this text, in any letter case; empty means all
	After string // the page begins after this address; empty means at the start
	Limit int    // accounts, above 0
}

// UserPage is a page of accounts.
type UserPage struct {
	Users []User // sorted by e-mail address, without password hashes
	Total int    // number of accounts that match, on all pages
	More  bool
}

// Page returns a page of accounts. It reads the e-mail addresses of all accounts, but the records
// only of those on the page. Errors: state.ErrUnavailable.
func (a *Accounts) Page(ctx context.Context, q UserQuery) (UserPage, error) {
	view, release, err := a.state.View(ctx)
	if err != nil {
		return UserPage{}, fmt.Errorf("list accounts: %w", err)
	}
	defer release()
	var page UserPage
	type row struct {
		email string
		id    state.AccountID
	}
	var rows []row // the first of those behind After, one more than the page has
	part := strings.ToLower(q.Part)
	err = view.Emails(func(email string, id state.AccountID) (bool, error) {
		if !strings.Contains(email, part) {
			return true, nil
		}
		page.Total++
		if email <= q.After {
			return true, nil
		}
		at, _ := slices.BinarySearchFunc(rows, email, func(r row, e string) int { return strings.Compare(r.email, e) })
		if at <= q.Limit {
			rows = slices.Insert(rows, at, row{email, id})
			rows = rows[:min(len(rows), q.Limit+1)]
		}
		return true, nil
	})
	if err != nil {
		return UserPage{}, fmt.Errorf("list accounts: %w", err)
	}
	page.More = len(rows) > q.Limit
	for _, r := range rows[:min(len(rows), q.Limit)] {
		u, err := userOf(view, r.id)
		if err != nil {
			return UserPage{}, fmt.Errorf("list accounts: %w", err)
		}
		page.Users = append(page.Users, u)
	}
	return page, nil
}

// userOf reads an account with its quota and its rights.
func userOf(view state.View, id state.AccountID) (User, error) {
	account, err := view.Account(id)
	if err != nil {
		return User{}, err
	}
	return withRights(view, account)
}

// withRights reads the quota and the rights of an account, and leaves its password hash out.
func withRights(view state.View, account state.Account) (u User, err error) {
	u.Account = account
	u.PasswordHash = ""
	if u.Quota, err = view.Quota(account.ID); err != nil && !errors.Is(err, state.ErrNotFound) {
		return User{}, err
	}
	if u.Disabled, err = view.Disabled(account.ID); err != nil {
		return User{}, err
	}
	u.Admin, err = view.Admin(account.ID)
	return u, err
}

// opening returns the command that adds an account: state.OpenAccount with the default allowance,
// or state.CreateAccount below feature level 2, which has no quotas.
func (a *Accounts) opening(account state.Account) (state.Command, error) {
	view, release := a.state.LocalView()
	defer release()
	level, err := view.FeatureLevel()
	if err != nil {
		return nil, fmt.Errorf("read level: %w", err)
	}
	if level < 2 {
		return &state.CreateAccount{Account: account}, nil
	}
	return &state.OpenAccount{Account: account, Allowance: a.allowance}, nil
}

// SetPassword changes the password of the account with an e-mail address.
//
// Errors: state.ErrInvalid, state.ErrNotFound, state.ErrUnavailable.
func (a *Accounts) SetPassword(ctx context.Context, email, password string) error {
	account, err := a.ByEmail(ctx, email)
	if err != nil {
		return err
	}
	hash, err := a.hashPassword(ctx, password)
	if err != nil {
		return err
	}
	return a.change(ctx, "password changed", account, &state.SetPassword{Account: account.ID, Hash: hash})
}

// RemoveAccount closes the account with an e-mail address. When it has returned, the account and
// its keys no longer exist; the content is removed in the background.
//
// Errors: state.ErrForbidden for the operator account; state.ErrNotFound; state.ErrUnavailable.
func (a *Accounts) RemoveAccount(ctx context.Context, email string) error {
	account, err := a.ByEmail(ctx, email)
	if err != nil {
		return err
	}
	return a.change(ctx, "account closed", account, &state.CloseAccount{Account: account.ID})
}

// CloseOwn closes an account at the request of its owner, like RemoveAccount. Errors: those of
// MayClose.
func (a *Accounts) CloseOwn(ctx context.Context, id state.AccountID) error {
	account, err := a.read(ctx, func(v state.View) (state.Account, error) { return v.Account(id) })
	if err != nil {
		return err
	}
	return a.change(ctx, "account closed by its person", account, &state.CloseOwnAccount{Account: id})
}

// MayClose returns nil if the owner of an account may close it. Errors: state.ErrNotFound;
// state.ErrForbidden for the operator account and for the only other administrator;
// state.ErrUnavailable.
func (a *Accounts) MayClose(ctx context.Context, id state.AccountID) error {
	view, release, err := a.state.View(ctx)
	if err != nil {
		return fmt.Errorf("close account: %w", err)
	}
	defer release()
	if err := view.MayClose(id); err != nil {
		return fmt.Errorf("close account: %w", err)
	}
	return nil
}

// SetAllowance changes how many bytes the account with an e-mail address may store without
// credits; state.Unlimited means no limit. Content above a smaller allowance remains.
//
// Errors: state.ErrNotFound, state.ErrUnavailable.
func (a *Accounts) SetAllowance(ctx context.Context, email string, bytes uint64) error {
	account, err := a.ByEmail(ctx, email)
	if err != nil {
		return err
	}
	return a.change(ctx, "allowance changed", account, &state.SetQuota{Account: account.ID, Allowance: bytes}, allowance(bytes))
}

// SetDisabled disables the account with an e-mail address, or enables it again. After SetDisabled
// has returned, no node accepts the keys, the shares and the sessions of a disabled account, and
// nobody can sign in to it. Uploads under way end; downloads that have begun go on. After the account
// was enabled again, its keys and shares are valid again; its sessions have ended.
//
// Errors: state.ErrNotFound; state.ErrForbidden for the operator account, for the account of the
// actor in ctx, and for the last administrator who is not disabled; state.ErrUnavailable without
// a majority, and below state.DisableLevel.
func (a *Accounts) SetDisabled(ctx context.Context, email string, on bool) error {
	account, err := a.ByEmail(ctx, email)
	if err != nil {
		return err
	}
	what := "account enabled"
	if on {
		what = "account disabled"
	}
	return a.change(ctx, what, account, &state.SetDisabled{Account: account.ID, On: on, At: state.MillisOf(a.now())})
}

// allowance returns an allowance as an attribute for log lines.
func allowance(bytes uint64) slog.Attr {
	if bytes == state.Unlimited {
		return slog.String("bytes", "unlimited")
	}
	return slog.Uint64("bytes", bytes)
}

// change proposes cmd and logs the change what of an account with the new values.
func (a *Accounts) change(ctx context.Context, what string, account state.Account, cmd state.Command, values ...slog.Attr) error {
	if _, err := a.state.Propose(ctx, cmd); err != nil {
		return fmt.Errorf("change account: %w", err)
	}
	a.log.LogAttrs(ctx, slog.LevelInfo, what, append([]slog.Attr{slog.Any("account", account.ID), slog.String("email", account.Email)}, values...)...)
	return nil
}
