package console

import (
	"net/http"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// setupData has the data of the setup page.
type setupData struct {
	Setup string // the token of the link
	Name  string // name as it was entered
	Error string
}

// setupPage serves GET /setup, which the one-time link of `holdfast run` opens.
func (s *surface) setupPage(c *call) error {
	token := c.r.URL.Query().Get("t")
	if err := s.Accounts.CheckSetup(c.ctx, token); err != nil {
		return err
	}
	return s.show(c, http.StatusOK, "setup", "Set up", "", setupData{Setup: token})
}

// setUp serves POST /setup: it adds the first administrator and signs in.
func (s *surface) setUp(c *call) error {
	form := c.r.PostForm
	data := setupData{Setup: form.Get("setup"), Name: form.Get("email")}
	password := form.Get("password")
	if password != form.Get("again") {
		data.Error = "The two passwords differ."
		return s.show(c, http.StatusBadRequest, "setup", "Set up", "", data)
	}
	err := s.Accounts.SetUp(c.ctx, data.Setup, data.Name, password)
	if data.Error = refusal(err, state.CodeInvalid, state.CodeExists); data.Error != "" {
		return s.show(c, http.StatusBadRequest, "setup", "Set up", "", data)
	}
	if err != nil {
		return err
	}
	defer c.renew()() // the account exists: the link does not work again
	token, err := s.Accounts.SignIn(c.ctx, data.Name, password, s.Limits.Client(c.r))
	if err != nil {
		return err
	}
	c.begin(token)
	return c.redirect("/")
}
