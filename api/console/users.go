package console

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/credits"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// userRows is the number of accounts on a page of users.
const userRows = 100

// usersData is the data of the page /users.
type usersData struct {
	Users  []accounts.User
	Total  int    // number of accounts that match the filter
	Filter string // the page lists accounts whose e-mail address contains this text
	Next   string // address of the next page; empty if there is none
	Links  []linkRow
	Name   string // e-mail address that was entered for a new account
	Error  string
}

// ownRows is the maximum number of keys, and of sessions, on the page of a user.
const ownRows = 50

// userData is the data of the page of a user.
type userData struct {
	accounts.Holdings
	Self  bool     // the account is that of the viewer
	Ways  []string // ways to sign in to the account, in words
	Error string
	Done  string // text about the change that was just made; empty: none
	// Ledger has the credits. Posting is the id for a new posting, which makes a retry of the form safe.
	// Correct is the id of the posting that the new one corrects; empty: none.
	Ledger           ledgerData
	Posting, Correct string
	Usage            chart // storage of the account by day
	OwnKeys          []accounts.Key
	OwnSessions      []accounts.SessionInfo
	Ends             *time.Time // result of surface.contentEnds for the account
}

// usersPage serves GET /users, the list of accounts and of open one-time links, for
// administrators.
func (s *surface) usersPage(c *call) error { return s.showUsers(c, http.StatusOK, "", "") }

func (s *surface) showUsers(c *call, status int, name, problem string) error {
	query := c.r.URL.Query()
	d := usersData{Filter: strings.TrimSpace(query.Get("name")), Name: name, Error: problem}
	page, err := s.Accounts.Page(c.ctx, accounts.UserQuery{Part: d.Filter, After: query.Get("after"), Limit: userRows})
	if err != nil {
		return err
	}
	d.Total, d.Users = page.Total, page.Users
	if page.More {
		d.Next = "/users?" + url.Values{"name": {d.Filter}, "after": {page.Users[len(page.Users)-1].Email}}.Encode()
	}
	if d.Links, err = s.openLinks(c); err != nil {
		return err
	}
	return s.show(c, status, "users", "Users", "users", d)
}

// createUser serves POST /users: it creates an account with a first password and redirects to its
// page.
func (s *surface) createUser(c *call) error {
	email := c.r.PostForm.Get("email")
	password := c.r.PostForm.Get("password")
	if password == "" {
		return s.showUsers(c, http.StatusBadRequest, email, "Give a first password, which the person changes later.")
	}
	u, err := s.Accounts.CreateAccount(c.ctx, email, password)
	if problem := refusal(err, state.CodeInvalid, state.CodeExists); problem != "" {
		return s.showUsers(c, http.StatusBadRequest, email, problem)
	}
	if err != nil {
		return err
	}
	return c.redirect("/users/" + string(u.ID))
}

// userPage serves GET /users/{id}, the page of one account for administrators.
func (s *surface) userPage(c *call) error { return s.showUser(c, http.StatusOK, "", "") }

func (s *surface) showUser(c *call, status int, done, problem string) error {
	has, err := s.Accounts.Holdings(c.ctx, c.r.PathValue("id"))
	if err != nil {
		return err
	}
	ways, err := s.Accounts.Ways(c.ctx, has.ID)
	if err != nil {
		return err
	}
	d := userData{Holdings: has, Self: has.ID == c.who.Account, Error: problem, Done: done}
	d.Posting, d.Correct = credits.NewID(), c.r.URL.Query().Get("correct")
	if d.Ends, err = s.contentEnds(has.ID); err != nil {
		return err
	}
	if d.Ledger, err = s.ledgerOf(c, has.ID, "/users/"+string(has.ID)); err != nil {
		return err
	}
	days, err := s.Accounts.Usage(c.ctx, has.ID, overviewDays)
	if err != nil {
		return err
	}
	d.Usage = storageChart(days)
	if d.OwnKeys, err = s.Accounts.Keys(c.ctx, has.Email); err != nil {
		return err
	}
	if d.OwnSessions, err = s.Accounts.Sessions(c.ctx, has.ID); err != nil {
		return err
	}
	d.OwnKeys, d.OwnSessions = d.OwnKeys[:min(len(d.OwnKeys), ownRows)], d.OwnSessions[:min(len(d.OwnSessions), ownRows)]
	if ways.Password {
		d.Ways = []string{"password"}
	}
	for _, i := range ways.Identities {
		d.Ways = append(d.Ways, s.providerName(i.Issuer))
	}
	return s.show(c, status, "user", has.Email, "users", d)
}

// says returns the same text for each form.
func says(text string) func(url.Values) string { return func(url.Values) string { return text } }

// saysWhich returns one text for forms in which a field has the value yes, and another for other forms.
func saysWhich(field, yes, no string) func(url.Values) string {
	return func(form url.Values) string {
		if form.Get(field) == "yes" {
			return yes
		}
		return no
	}
}

// changeUser returns the handler of a change of one account. change makes the change, and done
// returns the text about it for the form. If the state rejects the change, the page shows the reason.
func (s *surface) changeUser(done func(url.Values) string, change func(c *call, email string) error) func(*call) error {
	return func(c *call) error {
		has, err := s.Accounts.Holdings(c.ctx, c.r.PathValue("id"))
		if err != nil {
			return err
		}
		err = change(c, has.Email)
		if problem := refusal(err, state.CodeInvalid, state.CodeForbidden, state.CodeCredits, state.CodeExists); problem != "" {
			return s.showUser(c, http.StatusBadRequest, "", problem)
		}
		if err != nil {
			return err
		}
		return s.showUser(c, http.StatusOK, done(c.r.PostForm), "")
	}
}

// setUserPassword changes the password of an account and ends its sessions.
func (s *surface) setUserPassword(c *call, email string) error {
	password := c.r.PostForm.Get("password")
	if password == "" {
		return state.Errorf(state.CodeInvalid, "the password is empty")
	}
	return s.Accounts.SetPassword(c.ctx, email, password)
}

// setUserAllowance changes the number of bytes that an account may store without credits.
func (s *surface) setUserAllowance(c *call, email string) error {
	bytes, err := parseSize(c.r.PostForm.Get("allowance"))
	if err != nil {
		return err
	}
	return s.Accounts.SetAllowance(c.ctx, email, bytes)
}

// setUserAdmin grants or removes the rights of an administrator.
func (s *surface) setUserAdmin(c *call, email string) error {
	if email == c.who.Email {
		return state.Errorf(state.CodeForbidden, "another administrator can change that of your account")
	}
	return s.Accounts.SetAdmin(c.ctx, email, c.r.PostForm.Get("admin") == "yes")
}

// setUserDisabled disables an account, or enables it again.
func (s *surface) setUserDisabled(c *call, email string) error {
	return s.Accounts.SetDisabled(c.ctx, email, c.r.PostForm.Get("disabled") == "yes")
}

// removeUser serves POST /users/{id}/remove. The administrator must enter the e-mail address of
// the account as confirmation.
func (s *surface) removeUser(c *call) error {
	has, err := s.Accounts.Holdings(c.ctx, c.r.PathValue("id"))
	if err != nil {
		return err
	}
	if strings.TrimSpace(c.r.PostForm.Get("email")) != has.Email {
		return s.showUser(c, http.StatusBadRequest, "", "Nothing was removed: type the e-mail address of this account to remove it.")
	}
	if has.ID == c.who.Account {
		return s.showUser(c, http.StatusBadRequest, "", "Nothing was removed: another administrator can remove your account.")
	}
	err = s.Accounts.RemoveAccount(c.ctx, has.Email)
	if problem := refusal(err, state.CodeForbidden); problem != "" {
		return s.showUser(c, http.StatusBadRequest, "", problem)
	}
	if err != nil {
		return err
	}
	return c.redirect("/users")
}
