package web

import (
	"net/http"
	"strings"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// maxToken bounds a bearer token in bytes.
const maxToken = 4 << 10

// Bearer returns the token of a request, or state.ErrUnauthorized. The form is
// exact: one Authorization header, the word Bearer, one space, and a token of
// visible ASCII. A token anywhere else, the query for one, does not count: it
// would end up in logs.
func Bearer(r *http.Request) (string, error) {
	values := r.Header["Authorization"]
	if len(values) != 1 {
		return "", state.ErrUnauthorized
	}
	token, ok := strings.CutPrefix(values[0], "Bearer ")
	if !ok || token == "" || len(token) > maxToken {
		return "", state.ErrUnauthorized
	}
	for i := range len(token) {
		if token[i] <= ' ' || token[i] > '~' {
			return "", state.ErrUnauthorized
		}
	}
	return token, nil
}
