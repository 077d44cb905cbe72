package web

import (
	"context"
	"net/http"
	"strings"

	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Authenticate returns the sender of a request, or state.ErrUnauthorized. It does not read
// the body.
type Authenticate func(ctx context.Context, r *http.Request) (accounts.Principal, error)

// Accounts checks tokens.
type Accounts interface {
	// Authenticate returns the principal of a token, by the current state of the cluster.
	Authenticate(ctx context.Context, token string) (accounts.Principal, error)
	// Recognize returns the principal of a token by the state of this node, which may be stale.
	Recognize(token string) (accounts.Principal, error)
}

// Tokens authenticates requests by their bearer tokens.
func Tokens(a Accounts) Authenticate {
	return func(ctx context.Context, r *http.Request) (accounts.Principal, error) {
		token, err := Bearer(r)
		if err != nil {
			return accounts.Principal{}, err
		}
		return a.Authenticate(ctx, token)
	}
}

// Recognized authenticates like Tokens, but by the state of this node only. It is for changes
// whose credentials Apply checks again.
func Recognized(a Accounts) Authenticate {
	return func(_ context.Context, r *http.Request) (accounts.Principal, error) {
		token, err := Bearer(r)
		if err != nil {
			return accounts.Principal{}, err
		}
		return a.Recognize(token)
	}
}

// Bearer returns the token of a request, or state.ErrUnauthorized. The form is exact: one
// Authorization header, the word Bearer, one space, and a token of visible ASCII. A token
// in any other place, such as the query, does not count, because it would end up in logs.
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
