package console

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/openid"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// accountData is the data of the page /account, the user's own account.
type accountData struct {
	Sessions  []accounts.SessionInfo
	Current   state.SessionID
	Ways      accounts.Ways
	Providers []openid.Provider // providers that are not linked with the account
	Names     map[string]string // names of providers by issuer
	Done      string            // text about the change that was just made; empty: none
	Error     string
	Has       accounts.Holdings // what would be deleted together with the account
	Stays     string            // why the account cannot be deleted; empty if it can
	Proof     proof             // proof of identity that the deletion requires
	Typed     string            // e-mail address that the user entered to confirm the deletion
}

// accountPage serves GET /account, the page on which users change their password and see their
// sessions.
func (s *surface) accountPage(c *call) error { return s.showAccount(c, http.StatusOK, "", "") }

func (s *surface) showAccount(c *call, status int, done, problem string) error {
	return s.showAccountData(c, status, accountData{Done: done, Error: problem})
}

// showAccountData answers with the page /account. It fills in d, in which the caller has set
// texts and form values.
func (s *surface) showAccountData(c *call, status int, d accountData) (err error) {
	d.Current, d.Names = c.who.Session, map[string]string{}
	if d.Sessions, err = s.Accounts.Sessions(c.ctx, c.who.Account); err != nil {
		return err
	}
	if d.Ways, err = s.Accounts.Ways(c.ctx, c.who.Account); err != nil {
		return err
	}
	if d.Has, err = s.Accounts.Holdings(c.ctx, string(c.who.Account)); err != nil {
		return err
	}
	err = s.Accounts.MayClose(c.ctx, c.who.Account)
	if d.Stays = refusal(err, state.CodeForbidden); err != nil && d.Stays == "" {
		return err
	}
	d.Proof = s.proofBy(c, d.Ways)
	for _, i := range d.Ways.Identities {
		d.Names[i.Issuer] = s.providerName(i.Issuer)
	}
	d.Providers = slices.DeleteFunc(s.Providers.List(), func(p openid.Provider) bool { return d.Names[p.Issuer] != "" })
	return s.show(c, status, "account", "Account", "account", d)
}

// changePassword serves POST /account/password. It ends all sessions of the account and starts a
// new one in this browser.
func (s *surface) changePassword(c *call) error {
	form := c.r.PostForm
	password := form.Get("new")
	if password == "" || password != form.Get("again") {
		return s.showAccount(c, http.StatusBadRequest, "", "The two new passwords differ. Nothing was changed.")
	}
	client := s.Limits.Client(c.r)
	err := s.Accounts.CheckPassword(c.ctx, c.who.Email, form.Get("password"), client)
	switch {
	case errors.Is(err, state.ErrUnauthorized):
		return s.showAccount(c, http.StatusForbidden, "", "The current password is wrong. Nothing was changed.")
	case errors.Is(err, state.ErrLimited):
		return s.showAccount(c, http.StatusTooManyRequests, "", "Too many tries. Wait a minute and try again.")
	case err != nil:
		return err
	}
	err = s.Accounts.SetPassword(c.ctx, c.who.Email, password)
	if problem := refusal(err, state.CodeInvalid); problem != "" {
		return s.showAccount(c, http.StatusBadRequest, "", problem)
	}
	if err != nil {
		return err
	}
	defer c.renew()() // all sessions have ended
	token, err := s.Accounts.SignIn(c.ctx, c.who.Email, password, client)
	if err != nil {
		return err
	}
	c.setCookie(sessionCookie, token)
	if c.who, err = s.Accounts.Authenticate(c.ctx, token); err != nil {
		return err
	}
	c.session = token
	return s.showAccount(c, http.StatusOK, "The password was changed. All other sessions have ended.", "")
}

// endSession serves POST /account/sessions/{id}/end: it ends one session of the account on all
// nodes.
func (s *surface) endSession(c *call) error {
	if err := s.Accounts.EndSession(c.ctx, c.who.Account, state.SessionID(c.r.PathValue("id"))); err != nil {
		return err
	}
	return s.showAccount(c, http.StatusOK, "The session has ended on every node.", "")
}

// endOthers serves POST /account/end-others: it ends all sessions of the account except this one.
func (s *surface) endOthers(c *call) error {
	if err := s.Accounts.EndSessions(c.ctx, c.who.Account, c.who.Session); err != nil {
		return err
	}
	return s.showAccount(c, http.StatusOK, "All other sessions have ended on every node.", "")
}

// deleteAccount serves POST /account/delete. The user must prove their identity and enter the
// e-mail address of the account. When it has answered, no node accepts a key or session of the
// account.
func (s *surface) deleteAccount(c *call) error {
	typed := c.r.PostForm.Get("email")
	status, problem, err := s.prove(c)
	if err != nil {
		return err
	}
	if problem != "" {
		return s.showAccountData(c, status, accountData{Typed: typed, Error: problem + " Nothing was deleted."})
	}
	if strings.TrimSpace(typed) != c.who.Email {
		return s.showAccountData(c, http.StatusBadRequest, accountData{Typed: typed, Error: "Nothing was deleted: type the e-mail address of your account to delete it."})
	}
	err = s.Accounts.CloseOwn(c.ctx, c.who.Account)
	if problem := refusal(err, state.CodeForbidden); problem != "" {
		return s.showAccountData(c, http.StatusBadRequest, accountData{Typed: typed, Error: "Nothing was deleted: " + problem + "."})
	}
	if err != nil {
		return err
	}
	email := c.who.Email
	c.setCookie(sessionCookie, "")
	c.who, c.session = accounts.Principal{}, ""
	return s.show(c, http.StatusOK, "account-deleted", "Account deleted", "", email)
}
