package console

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/openid"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// linkData is the data of the page of a one-time link.
type linkData struct {
	Link                        accounts.Link
	Invitation, Password, Enter bool // the link is an invitation, sets a new password, or signs in
	Providers                   []openid.Provider
	Error                       string
}

// errUsedLink is the error for a one-time link that was used, has expired or is unknown.
var errUsedLink = web.Errorf(http.StatusNotFound, "NOT_FOUND", "this one-time link was used, has expired, or is not complete: ask for a new one")

// linkPage serves GET /link. It does not use the one-time link up, because programs that check
// mail for malware open links too.
func (s *surface) linkPage(c *call) error {
	return s.showLink(c, http.StatusOK, c.r.URL.Query().Get("t"), "")
}

func (s *surface) showLink(c *call, status int, token, problem string) error {
	l, err := s.Accounts.LinkOf(c.ctx, token)
	if errors.Is(err, state.ErrNotFound) {
		return errUsedLink
	}
	if err != nil {
		return err
	}
	d := linkData{
		Link: l, Invitation: l.Purpose == state.ForSignUp, Password: l.Purpose == state.ForPassword, Enter: l.Purpose == state.ForSession,
		Providers: s.Providers.List(), Error: problem,
	}
	title := map[state.LinkPurpose]string{state.ForSignUp: "Invitation", state.ForPassword: "New password", state.ForSession: "Sign in"}[l.Purpose]
	return s.show(c, status, "link", title, "", d)
}

// useLink serves POST /link: it uses the one-time link and signs the user in.
func (s *surface) useLink(c *call) error {
	form := c.r.PostForm
	token, password := form.Get("link"), form.Get("password")
	if password != form.Get("again") {
		return s.showLink(c, http.StatusBadRequest, token, "The two passwords differ.")
	}
	session, err := s.Accounts.UseLink(c.ctx, token, password)
	if problem := refusal(err, state.CodeInvalid, state.CodeExists, state.CodeForbidden); problem != "" {
		return s.showLink(c, http.StatusBadRequest, token, problem)
	}
	if errors.Is(err, state.ErrNotFound) {
		return errUsedLink
	}
	if err != nil {
		return err
	}
	return s.enter(c, session, "/")
}

// createLink serves POST /users/links. It creates an invitation, or a link for a new password.
func (s *surface) createLink(c *call) error {
	email := c.r.PostForm.Get("email")
	l, err := s.Accounts.CreateLink(c.ctx, email)
	if problem := refusal(err, state.CodeInvalid, state.CodeForbidden, state.CodeTooLarge); problem != "" {
		return s.showUsers(c, http.StatusBadRequest, email, problem)
	}
	if err != nil {
		return err
	}
	return s.show(c, http.StatusOK, "new-link", "One-time link", "users", struct {
		Link       accounts.Link
		Invitation bool
		URL        string // without an origin where that is not known
	}{l, l.Purpose == state.ForSignUp, s.URL + "/link?" + url.Values{"t": {l.Token}}.Encode()})
}

// linkRow is a one-time link in the list of those that can still be used.
type linkRow struct {
	accounts.OpenLink
	For string // purpose of the link in words
}

// openLinks returns the one-time links that can still be used.
func (s *surface) openLinks(c *call) (rows []linkRow, err error) {
	all, err := s.Accounts.Links(c.ctx)
	for _, l := range all {
		row := linkRow{l, "new password"}
		switch l.Purpose {
		case state.ForSignUp:
			row.For = "invitation"
		case state.ForSession:
			row.For = "sign-in of the operator"
		}
		rows = append(rows, row)
	}
	return rows, err
}

// revokeLink serves POST /users/links/{id}/revoke. When it has answered, no node accepts the
// link.
func (s *surface) revokeLink(c *call) error {
	if err := s.Accounts.RevokeLink(c.ctx, state.LinkID(c.r.PathValue("id"))); err != nil && !errors.Is(err, state.ErrNotFound) {
		return err
	}
	return c.redirect("/users#links")
}
