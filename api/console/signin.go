package console

import (
	"errors"
	"net/http"

	"github.com/holdfast-ipfs/holdfast/cluster/openid"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// signInData is the data of the page /sign-in.
type signInData struct {
	To    string // local path to open after the sign-in
	Name  string // name that the user entered
	Error string
	// Pending is the name of the provider that the next sign-in links with the account; empty if there
	// is none.
	Pending   string
	Providers []openid.Provider
	Open      bool // everybody who signs in at a provider gets an account
}

// signInPage serves GET /sign-in, the form for the e-mail address and the password. If the
// browser has a session already, it redirects to the page that the parameter to names.
func (s *surface) signInPage(c *call) error {
	to := localPath(c.r.URL.Query().Get("to"))
	if c.session != "" {
		return c.redirect(to)
	}
	p, _ := s.pending(c)
	return s.showSignIn(c, http.StatusOK, signInData{To: to, Name: p.Email})
}

// showSignIn answers with the page /sign-in.
func (s *surface) showSignIn(c *call, status int, d signInData) error {
	_, d.Pending = s.pending(c)
	d.Providers, d.Open = s.Providers.List(), s.SignUpOpen
	return s.show(c, status, "sign-in", "Sign in", "", d)
}

// signIn serves POST /sign-in. The answer is the same for an unknown name and a wrong password.
func (s *surface) signIn(c *call) error {
	data := signInData{To: localPath(c.r.PostForm.Get("to")), Name: c.r.PostForm.Get("email")}
	token, err := s.Accounts.SignIn(c.ctx, data.Name, c.r.PostForm.Get("password"), s.Limits.Client(c.r))
	var status int
	switch {
	case err == nil:
		return s.enter(c, token, data.To)
	case errors.Is(err, state.ErrUnauthorized):
		status, data.Error = http.StatusUnauthorized, "The e-mail address or the password is wrong."
	case errors.Is(err, state.ErrLimited):
		status, data.Error = http.StatusTooManyRequests, "Too many tries. Wait a minute and try again."
		c.w.Header().Set("Retry-After", "60")
	default:
		return err
	}
	return s.showSignIn(c, status, data)
}

// signOut serves POST /sign-out: it ends the session on every node.
func (s *surface) signOut(c *call) error {
	if err := s.Accounts.SignOut(c.ctx, c.session); err != nil && !errors.Is(err, state.ErrUnauthorized) {
		return err
	}
	c.setCookie(sessionCookie, "")
	return c.redirect("/sign-in")
}
