package webapi

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// sessionBody is the answer to GET /session: the session and account of the caller.
type sessionBody struct {
	ID      state.SessionID `json:"id"`
	Account state.AccountID `json:"account"`
	Email   string          `json:"email"`
	Admin   bool            `json:"admin"`
	// FormToken is the value that the header X-Form-Token must have in every change that uses the
	// session cookie.
	FormToken string `json:"form_token"`
}

// session answers GET /session with the account of the caller and the form token of the session.
func (s *surface) session(c *call) error {
	return c.ok(sessionBody{c.who.Session, c.who.Account, c.who.Email, c.who.Admin, web.FormToken(c.token)})
}

// endSession answers DELETE /session. When it has answered, no node accepts the session.
func (s *surface) endSession(c *call) error {
	if err := s.Accounts.SignOut(c.ctx, c.token); err != nil {
		return fmt.Errorf("sign out: %w", err)
	}
	web.SetCookie(c.w, web.SessionCookie, "", c.secure)
	return c.done()
}

// keyBody is an API key. The secrets are present only for a new key, and for a key that was
// requested with a password.
type keyBody struct {
	ID              state.KeyID `json:"id"`
	Name            string      `json:"name"`
	Scope           string      `json:"scope"`
	Created         string      `json:"created"`
	Expires         string      `json:"expires,omitempty"`
	Used            string      `json:"used,omitempty"`
	Token           string      `json:"token,omitempty"`
	AccessKeyID     string      `json:"access_key_id,omitempty"`
	SecretAccessKey string      `json:"secret_access_key,omitempty"`
}

func bodyOfKey(k *accounts.Key) keyBody {
	return keyBody{k.ID, k.Name, k.Scope, timeText(k.Created), timeText(k.Expires), timeText(k.Used), k.Token, k.AccessKeyID, k.SecretAccessKey}
}

// keysBody has all keys of an account. There are at most state.MaxKeysPerUser, so the list has no
// pages.
type keysBody struct {
	Results []keyBody `json:"results"`
}

// listKeys answers GET /keys, the newest key first.
func (s *surface) listKeys(c *call) error {
	keys, err := s.Accounts.Keys(c.ctx, c.who.Email)
	if err != nil {
		return fmt.Errorf("list keys: %w", err)
	}
	slices.SortStableFunc(keys, func(a, b accounts.Key) int { return b.Created.Compare(a.Created) })
	body := keysBody{Results: []keyBody{}}
	for i := range keys {
		body.Results = append(body.Results, bodyOfKey(&keys[i]))
	}
	return c.ok(body)
}

// maxLife is the longest lifetime that a request for a key may ask for.
const maxLife = 10 * 365 * 24 * time.Hour

// createKey answers POST /keys with the key and its secrets.
func (s *surface) createKey(c *call) error {
	name, err := c.text("name")
	if err != nil {
		return err
	}
	scope, given, err := c.fields.Text("scope")
	if err != nil {
		return err
	}
	if given && len(strings.Fields(scope)) == 0 {
		return web.BadRequest("scope is empty")
	}
	ttl, _, err := c.seconds("expires_in", maxLife)
	if err != nil {
		return err
	}
	key, err := s.Accounts.CreateKey(c.ctx, c.who.Email, strings.TrimSpace(name), strings.Fields(scope), ttl)
	if err != nil {
		return fmt.Errorf("create key: %w", err)
	}
	return c.created(bodyOfKey(&key))
}

// ownKey returns the key with an id without its secrets. It returns state.ErrNotFound if the key
// does not exist or belongs to another account.
func (s *surface) ownKey(c *call, id string) (accounts.Key, error) {
	key, err := s.Accounts.Key(c.ctx, state.KeyID(id))
	if err != nil {
		return accounts.Key{}, fmt.Errorf("find key: %w", err)
	}
	if key.Email != c.who.Email {
		return accounts.Key{}, state.ErrNotFound
	}
	return key, nil
}

// getKey answers GET /keys/{id} with one API key of the caller's account, without its secrets.
func (s *surface) getKey(c *call) error {
	key, err := s.ownKey(c, c.id())
	if err != nil {
		return err
	}
	return c.ok(bodyOfKey(&key))
}

// revokeKey answers DELETE /keys/{id}. When it has answered, no node accepts the key.
func (s *surface) revokeKey(c *call) error {
	key, err := s.ownKey(c, c.id())
	if err != nil {
		return err
	}
	if err := s.Accounts.Revoke(c.ctx, key.ID); err != nil {
		return fmt.Errorf("revoke key: %w", err)
	}
	return c.done()
}

// proofLife is the maximum age of a session with which proven accepts the caller of an account
// without a password.
const proofLife = 10 * time.Minute

// proven returns nil if the caller proves again to be the owner of the account, because secrets
// are to be shown. The proof is the member password of the body. For an account without a
// password, a session younger than proofLife is enough. Otherwise the error is 400 or 403.
func (s *surface) proven(c *call) error {
	password, _, err := c.fields.Text("password")
	if err != nil {
		return err
	}
	ways, err := s.Accounts.Ways(c.ctx, c.who.Account)
	if err != nil {
		return fmt.Errorf("ways to sign in: %w", err)
	}
	switch {
	case ways.Password && password == "":
		return web.BadRequest("password is missing or empty")
	case !ways.Password && time.Since(c.who.Began) < proofLife:
		return nil
	case !ways.Password:
		return forbidden("this session began more than 10 minutes ago: sign in again")
	}
	err = s.Accounts.CheckPassword(c.ctx, c.who.Email, password, s.Limits.Client(c.r))
	if errors.Is(err, state.ErrUnauthorized) {
		return forbidden("the password is wrong")
	}
	if err != nil {
		return fmt.Errorf("check password: %w", err)
	}
	return nil
}

// showKey answers POST /keys/{id}/show with the key and its secrets, if proven accepts the
// caller.
func (s *surface) showKey(c *call) error {
	key, err := s.ownKey(c, c.id())
	if err != nil {
		return err
	}
	if err := s.proven(c); err != nil {
		return err
	}
	if key, err = s.Accounts.Show(c.ctx, key.ID); err != nil {
		return fmt.Errorf("show key: %w", err)
	}
	return c.ok(bodyOfKey(&key))
}
