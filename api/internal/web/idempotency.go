package web

import (
	"crypto/sha256"
	"net/http"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// maxRequestName is the maximum length of an Idempotency-Key, in bytes.
const maxRequestName = 255

// ErrNameReused is the error for a request with the Idempotency-Key of an earlier request that asked for another
// pin.
var ErrNameReused = Errorf(http.StatusUnprocessableEntity, "IDEMPOTENCY_KEY_REUSED", "this %s came with another pin before", IdempotencyHeader)

// RequestName returns the SHA-256 of the Idempotency-Key header, under which the cluster
// recognizes a repeated request. named is false if there is no such header. It returns a 400
// error unless the key has 1 to maxRequestName visible ASCII characters.
func RequestName(r *http.Request) (name state.Hash, named bool, err error) {
	values := r.Header[IdempotencyHeader]
	if len(values) == 0 {
		return name, false, nil
	}
	wrong := BadRequest("%s must be one text of 1 to %d visible ASCII characters", IdempotencyHeader, maxRequestName)
	if len(values) > 1 || values[0] == "" || len(values[0]) > maxRequestName {
		return name, false, wrong
	}
	for i := range len(values[0]) {
		if c := values[0][i]; c <= ' ' || c > '~' {
			return name, false, wrong
		}
	}
	return sha256.Sum256([]byte(values[0])), true, nil
}
