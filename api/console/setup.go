package console

import (
	"net/http"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// setupData is the data of the page /setup.
type setupData struct {
	Setup string // setup token in the link
	Name  string // name that the user entered
	Error string
}

// setupPage serves GET /setup, on which the first administrator is created. `holdfast run` prints
// the one-time link to it.
func (s *surface) setupPage(c *call) error {
	token := c.r.URL.Query().Get("t")
	if err := s.Accounts.CheckSetup(c.ctx, token); err != nil {
		return err
	}
	return s.show(c, http.StatusOK, "setup", "Set up", "", setupData{Setup: token})
}

// setUp serves POST /setup: it creates the first administrator and signs them in.
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
