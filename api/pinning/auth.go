package pinning

import (
	"context"
	"fmt"
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// maxSignIn is the maximum size of the body of a sign-in request, in bytes. It is small because
// the client is not authenticated yet.
const maxSignIn = 8 << 10

// sessionToken is the body of the answer to a sign-in.
type sessionToken struct {
	Token string `json:"token"`
}

// signIn answers POST /auth/token: it starts a session for a username and a password, and returns
// its token. It ignores an Authorization header.
func (s *surface) signIn(w http.ResponseWriter, r *http.Request) error {
	body, err := web.Body(w, r, maxSignIn, nil)
	if err != nil {
		return err
	}
	fields, err := web.Object("the body", body)
	if err != nil {
		return err
	}
	var given [2]string
	for i, name := range []string{"username", "password"} {
		text, _, err := fields.Text(name)
		if err != nil {
			return err
		}
		if text == "" {
			return web.BadRequest("%s is missing or empty", name)
		}
		given[i] = text
	}
	ctx, cancel := context.WithTimeout(r.Context(), caseTimeout)
	defer cancel()
	ctx = accounts.WithAgent(state.WithActor(ctx, s.limits.Actor(r, &accounts.Principal{})), web.Browser(r.UserAgent()))
	token, err := s.sessions.SignIn(ctx, given[0], given[1], s.limits.Client(r))
	if err != nil {
		return fmt.Errorf("sign in: %w", err)
	}
	return web.JSON(w, http.StatusOK, sessionToken{token})
}

// signOut answers DELETE /auth/token: it ends the session of the bearer token.
func (s *surface) signOut(w http.ResponseWriter, r *http.Request) error {
	token, err := web.Bearer(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), caseTimeout)
	defer cancel()
	ctx = state.WithActor(ctx, s.limits.Actor(r, &accounts.Principal{}))
	if err := s.sessions.SignOut(ctx, token); err != nil {
		return fmt.Errorf("sign out: %w", err)
	}
	return web.JSON(w, http.StatusOK, struct{}{})
}
