package web

import (
	"context"
	"net/http"
	"strings"

	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Authenticate returns the principal that sent a request, or state.ErrUnauthorized. It does not
// read the body.
type Authenticate func(ctx context.Context, r *http.Request) (accounts.Principal, error)

// Accounts verifies tokens. Both methods return state.ErrUnauthorized for an invalid token.
type Accounts interface {
	// Authenticate returns the principal of a token by a linearizable read of the cluster state.
	Authenticate(ctx context.Context, token string) (accounts.Principal, error)
	// Recognize returns the principal of a token by the local copy of the state, which may be
	// stale.
	Recognize(token string) (accounts.Principal, error)
}

// Tokens returns an Authenticate that verifies the bearer token of a request with a.Authenticate.
func Tokens(a Accounts) Authenticate {
	return func(ctx context.Context, r *http.Request) (accounts.Principal, error) {
		token, err := Bearer(r)
		if err != nil {
			return accounts.Principal{}, err
		}
		return a.Authenticate(ctx, token)
	}
}

// Recognized returns an Authenticate that verifies the bearer token of a request with
// a.Recognize, which may use stale state. It is for changes only: Apply of the state machine
// verifies their credentials again.
func Recognized(a Accounts) Authenticate {
	return func(_ context.Context, r *http.Request) (accounts.Principal, error) {
		token, err := Bearer(r)
		if err != nil {
			return accounts.Principal{}, err
		}
		return a.Recognize(token)
	}
}

// Bearer returns the bearer token of a request, or state.ErrUnauthorized. The form is exact: one
// Authorization header, the word Bearer, one space, and a token of visible ASCII. Bearer ignores
// tokens in other places, such as the query, because they would end up in logs.
func Bearer(r *http.Request) (string, error) {
	values := r.Header["Authorization"]
	if len(values) != 1 {
		return "", state.ErrUnauthorized
	}
	token, ok := strings.CutPrefix(values[0], "Bearer ")
	if !ok || token == "" || len(token) > accounts.MaxToken {
		return "", state.ErrUnauthorized
	}
	for i := range len(token) {
		if token[i] <= ' ' || token[i] > '~' {
			return "", state.ErrUnauthorized
		}
	}
	return token, nil
}
