package console

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/audit"
	"github.com/holdfast-ipfs/holdfast/cluster/openid"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// revokedRows is the maximum number of revoked keys on the page /keys.
const revokedRows = 20

// keysData is the data of the page /keys.
type keysData struct {
	Endpoints
	Keys    []accounts.Key
	Revoked []audit.RevokedKey // recently revoked keys, the newest first
	Lives   []life             // choices for the validity of a new key
	Name    string             // name that the user entered for a new key
	Error   string
}

// life is a choice in a form of how long a new key, share or link is valid.
type life struct {
	Name string        // text for people
	For  string        // value of the choice in the form
	TTL  time.Duration // 0: no expiry
}

// lives are the choices for the validity of a new key. The first is the default.
var lives = []life{
	{"90 days", "90d", 90 * 24 * time.Hour},
	{"7 days", "7d", 7 * 24 * time.Hour},
	{"1 year", "1y", 365 * 24 * time.Hour},
	{"no expiry", "never", 0},
}

// ttlOf returns the TTL of the choice with this form value, or an error if there is none.
func ttlOf(choices []life, value string) (time.Duration, error) {
	at := slices.IndexFunc(choices, func(l life) bool { return l.For == value })
	if at < 0 {
		return 0, web.BadRequest("no expiry %q", value)
	}
	return choices[at].TTL, nil
}

// scopesOf maps the values of the form field to scopes.
var scopesOf = map[string][]string{
	"write": {state.ScopeRead, state.ScopeWrite},
	"read":  {state.ScopeRead},
}

// keyData is the data of the page of a key.
type keyData struct {
	Endpoints
	Key   accounts.Key
	New   bool // the key was just created
	Error string
	Proof proof // proof of identity that the page requires before it shows the key
}

// keysPage serves GET /keys, the list of the account's API keys.
func (s *surface) keysPage(c *call) error { return s.showKeys(c, http.StatusOK, "", "") }

func (s *surface) showKeys(c *call, status int, name, problem string) error {
	keys, err := s.Accounts.Keys(c.ctx, c.who.Email)
	if err != nil {
		return err
	}
	slices.SortStableFunc(keys, func(a, b accounts.Key) int { return b.Created.Compare(a.Created) })
	revoked, err := s.Audit.RevokedKeys(c.ctx, c.who.Account, revokedRows)
	if err != nil {
		return err
	}
	return s.show(c, status, "keys", "API keys", "keys", keysData{s.endpoints(c), keys, revoked, lives, name, problem})
}

// createKey serves POST /keys. Its answer shows the secrets of the new key without a proof of
// identity.
func (s *surface) createKey(c *call) error {
	form := c.r.PostForm
	name := strings.TrimSpace(form.Get("name"))
	if name == "" {
		return s.showKeys(c, http.StatusBadRequest, name, "Give the key a name, so that you know later what it is for.")
	}
	scopes, ok := scopesOf[form.Get("scope")]
	if !ok {
		return web.BadRequest("no scope %q", form.Get("scope"))
	}
	ttl, err := ttlOf(lives, form.Get("expiry"))
	if err != nil {
		return err
	}
	key, err := s.Accounts.CreateKey(c.ctx, c.who.Email, name, scopes, ttl)
	if problem := refusal(err, state.CodeInvalid, state.CodeTooLarge); problem != "" {
		return s.showKeys(c, http.StatusBadRequest, name, problem)
	}
	if err != nil {
		return err
	}
	return s.show(c, http.StatusOK, "key", key.Name, "keys", keyData{Endpoints: s.endpoints(c), Key: key, New: true})
}

// ownKey returns the key with the id in the path, without its secrets. It returns
// state.ErrNotFound if the key does not exist or belongs to another account.
func (s *surface) ownKey(c *call) (accounts.Key, error) {
	key, err := s.Accounts.Key(c.ctx, state.KeyID(c.r.PathValue("id")))
	if err != nil {
		return accounts.Key{}, err
	}
	if key.Email != c.who.Email {
		return accounts.Key{}, state.ErrNotFound
	}
	return key, nil
}

// keyPage serves GET /keys/{id}: the key without its secrets.
func (s *surface) keyPage(c *call) error {
	key, err := s.ownKey(c)
	if err != nil {
		return err
	}
	return s.showOwnKey(c, http.StatusOK, key, "")
}

// showOwnKey answers with the page of a key. If key has no secrets, the page offers to show them
// after a proof of identity.
func (s *surface) showOwnKey(c *call, status int, key accounts.Key, problem string) error {
	asked, err := s.proofOf(c)
	if err != nil {
		return err
	}
	return s.show(c, status, "key", key.Name, "keys", keyData{Endpoints: s.endpoints(c), Key: key, Error: problem, Proof: asked})
}

// proofLife is the maximum age of a session that counts as a proof of identity for an account
// without a password.
const proofLife = 10 * time.Minute

// proof is how a user proves their identity again before secrets are shown: by the password, or
// if the account has none, by a session that began recently.
type proof struct {
	Password bool              // the account has a password, which is required
	Fresh    bool              // the session is recent enough
	Sources  []openid.Provider // providers at which the user can sign in again for a recent session
}

// proofOf returns the proof of identity that the account of the caller requires.
func (s *surface) proofOf(c *call) (proof, error) {
	ways, err := s.Accounts.Ways(c.ctx, c.who.Account)
	if err != nil {
		return proof{}, err
	}
	return s.proofBy(c, ways), nil
}

// proofBy works like proofOf for an account with these ways to sign in.
func (s *surface) proofBy(c *call, ways accounts.Ways) proof {
	if ways.Password {
		return proof{Password: true}
	}
	linked := func(p openid.Provider) bool {
		return slices.ContainsFunc(ways.Identities, func(i accounts.Identity) bool { return i.Issuer == p.Issuer })
	}
	return proof{
		Fresh:   time.Since(c.who.Began) < proofLife,
		Sources: slices.DeleteFunc(s.Providers.List(), func(p openid.Provider) bool { return !linked(p) }),
	}
}

// prove checks the proof of identity in a form. If it is not valid, problem is a text for the
// page, and status its HTTP status. If it is valid, problem is empty.
func (s *surface) prove(c *call) (status int, problem string, err error) {
	asked, err := s.proofOf(c)
	if err == nil && !asked.Fresh {
		err = s.Accounts.CheckPassword(c.ctx, c.who.Email, c.r.PostForm.Get("password"), s.Limits.Client(c.r))
	}
	switch {
	case errors.Is(err, state.ErrUnauthorized) && !asked.Password:
		return http.StatusForbidden, "You signed in more than 10 minutes ago.", nil
	case errors.Is(err, state.ErrUnauthorized):
		return http.StatusForbidden, "The password is wrong.", nil
	case errors.Is(err, state.ErrLimited):
		return http.StatusTooManyRequests, "Too many tries. Wait a minute and try again.", nil
	}
	return 0, "", err
}

// showKey serves POST /keys/{id}/show. It shows the key with its secrets if prove accepts the
// caller.
func (s *surface) showKey(c *call) error {
	key, err := s.ownKey(c)
	if err != nil {
		return err
	}
	status, problem, err := s.prove(c)
	if err != nil {
		return err
	}
	if problem != "" {
		return s.showOwnKey(c, status, key, problem)
	}
	if key, err = s.Accounts.Show(c.ctx, key.ID); err != nil {
		return err
	}
	return s.showOwnKey(c, http.StatusOK, key, "")
}

// revokeKey serves POST /keys/{id}/revoke. When it has answered, no node accepts the key.
func (s *surface) revokeKey(c *call) error {
	key, err := s.ownKey(c)
	if err != nil {
		return err
	}
	if err := s.Accounts.Revoke(c.ctx, key.ID); err != nil && !errors.Is(err, state.ErrNotFound) {
		return err
	}
	return s.show(c, http.StatusOK, "revoked", key.Name, "keys", revokedData{"key", cmp.Or(key.Name, "unnamed"), time.Now(), link{"All keys", "/keys"}})
}
