package console

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// maxState is the maximum length in bytes of the parameter state, which the application gets back
// unchanged.
const maxState = 1024

// getKeyData is the data of the page /get-key, on which a user gives an application a key.
type getKeyData struct {
	App             accounts.App
	To              string         // redirect URI without its query
	Redirect, State string         // redirect URI and state as the application sent them
	Keys            []accounts.Key // existing keys that the user can give to the application
	Denied          bool           // the user has refused
	Error           string
}

// Scope returns the scopes that the application requests, separated by spaces.
func (d getKeyData) Scope() string { return strings.Join(d.App.Scope, " ") }

// getKeyPage serves GET /get-key?redirect=URI[&state=TEXT]. An application sends its user to this
// page. The user signs in and allows that the console sends an API key to the redirect URI.
func (s *surface) getKeyPage(c *call) error {
	query := c.r.URL.Query()
	d, err := s.asking(c, query.Get("redirect"), query.Get("state"))
	if err != nil {
		return err
	}
	if c.session == "" {
		return c.toSignIn()
	}
	return s.showGetKey(c, http.StatusOK, d)
}

func (s *surface) showGetKey(c *call, status int, d getKeyData) (err error) {
	if d.Keys, err = s.keysOf(c, d.App); err != nil {
		return err
	}
	s.mayLeaveTo(c, d.Redirect)
	return s.show(c, status, "get-key", "An app asks for a key", "", d)
}

// asking returns the data of an application's request. redirect and echo are its parameters
// redirect and state. It returns a 400 error if no application has registered the redirect URI,
// or if the state is too long.
func (s *surface) asking(c *call, redirect, echo string) (getKeyData, error) {
	app, err := s.Accounts.AppOf(c.ctx, redirect)
	if errors.Is(err, state.ErrNotFound) || len(echo) > maxState {
		return getKeyData{}, web.BadRequest("no app is registered for the address to which the key would go: ask the one who made the app, or the operator of this service")
	}
	if err != nil {
		return getKeyData{}, err
	}
	to, _, _ := strings.Cut(redirect, "?")
	return getKeyData{App: app, To: to, Redirect: redirect, State: echo}, nil
}

// keysOf returns the keys of the account that can be given to an application: they have its name,
// no scope beyond those that it requests, and have not expired.
func (s *surface) keysOf(c *call, app accounts.App) ([]accounts.Key, error) {
	all, err := s.Accounts.Keys(c.ctx, c.who.Email)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return slices.DeleteFunc(all, func(k accounts.Key) bool {
		return k.Name != app.Name || k.Scope != strings.Join(app.Scope, " ") || !k.Expires.IsZero() && !k.Expires.After(now)
	}), nil
}

// giveKey serves POST /get-key. If the user agreed, it redirects to the application with the
// token of an API key, which is new or one that the user chose. If the user refused, it shows a
// page that says so.
func (s *surface) giveKey(c *call) error {
	form := c.r.PostForm
	d, err := s.asking(c, form.Get("redirect"), form.Get("state"))
	if err != nil {
		return err
	}
	choice := form.Get("choice")
	if choice == "deny" {
		d.Denied = true
		return s.show(c, http.StatusOK, "get-key", "Nothing was given", "", d)
	}
	if form.Get("app") != d.App.Name || form.Get("scope") != d.Scope() { // it was registered anew meanwhile
		d.Error = "What the app asks for has changed since you opened the page. Look again."
		return s.showGetKey(c, http.StatusConflict, d)
	}
	var key accounts.Key
	if choice == "new" {
		key, err = s.Accounts.CreateKey(c.ctx, c.who.Email, d.App.Name, d.App.Scope, 0)
	} else {
		key, err = s.appKey(c, d.App, choice)
	}
	if err != nil {
		return err
	}
	add := url.Values{"key": {key.Token}}
	if d.State != "" {
		add.Set("state", d.State)
	}
	to := d.Redirect
	switch {
	case !strings.Contains(to, "?"):
		to += "?"
	case !strings.HasSuffix(to, "?") && !strings.HasSuffix(to, "&"):
		to += "&"
	}
	return c.redirect(to + add.Encode())
}

// appKey returns one of the keys of keysOf by its id, with its token.
func (s *surface) appKey(c *call, app accounts.App, id string) (accounts.Key, error) {
	keys, err := s.keysOf(c, app)
	if err != nil {
		return accounts.Key{}, err
	}
	for _, k := range keys {
		if string(k.ID) == id {
			return s.Accounts.Show(c.ctx, k.ID)
		}
	}
	return accounts.Key{}, web.BadRequest("this account has no such key of the app")
}

// mayLeaveTo adds a redirect URI to the form-action directive of the page's
// Content-Security-Policy. Otherwise browsers would block the redirect after the form was sent.
func (s *surface) mayLeaveTo(c *call, redirect string) {
	u, err := url.Parse(redirect)
	if err != nil {
		return
	}
	source := u.Scheme + ":"
	if u.Scheme == "https" || u.Scheme == "http" {
		source += "//" + u.Host
	}
	c.w.Header().Set("Content-Security-Policy", strings.Replace(policy, "form-action 'self'", "form-action 'self' "+source, 1))
}
