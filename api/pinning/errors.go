package pinning

import (
	"net/http"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Values of the Retry-After header.
const (
	// retryUnavailable is about the duration of a leader election.
	retryUnavailable = time.Second
	// retryLimited is the value in the example of the specification.
	retryLimited = 60 * time.Second
	// retryNoSpace is about the time after which deleted content has freed space.
	retryNoSpace = 60 * time.Second
)

// errorTable has the answer to each error code of the state. An empty Detail stands for the text
// of the error; otherwise the answer has Detail instead of that text.
var errorTable = map[state.Code]web.Answer{
	state.CodeInvalid:      {Status: http.StatusBadRequest, Reason: "BAD_REQUEST"},
	state.CodeNotFound:     {Status: http.StatusNotFound, Reason: "NOT_FOUND", Detail: "there is no such pin"},
	state.CodeExists:       {Status: http.StatusConflict, Reason: "CONFLICT"},
	state.CodeConflict:     {Status: http.StatusServiceUnavailable, Reason: "SERVICE_UNAVAILABLE", RetryAfter: retryUnavailable},
	state.CodeUnauthorized: {Status: http.StatusUnauthorized, Reason: "UNAUTHORIZED", Detail: "access token is missing or invalid"},
	state.CodeForbidden:    {Status: http.StatusForbidden, Reason: "FORBIDDEN"},
	state.CodeQuota:        {Status: http.StatusConflict, Reason: "INSUFFICIENT_FUNDS"},
	state.CodeUnavailable:  {Status: http.StatusServiceUnavailable, Reason: "SERVICE_UNAVAILABLE", RetryAfter: retryUnavailable},
	state.CodeTooLarge:     {Status: http.StatusRequestEntityTooLarge, Reason: "PAYLOAD_TOO_LARGE"},
	state.CodeLimited:      {Status: http.StatusTooManyRequests, Reason: "RATE_LIMITED", RetryAfter: retryLimited},
	state.CodeNoSpace:      {Status: http.StatusInsufficientStorage, Reason: "INSUFFICIENT_STORAGE", RetryAfter: retryNoSpace},

	// No request of this API is about buckets or objects, so these codes get general
	// answers.
	state.CodeNoBucket:     {Status: http.StatusNotFound, Reason: "NOT_FOUND"},
	state.CodeNoKey:        {Status: http.StatusNotFound, Reason: "NOT_FOUND"},
	state.CodeNoUpload:     {Status: http.StatusNotFound, Reason: "NOT_FOUND"},
	state.CodeNotEmpty:     {Status: http.StatusConflict, Reason: "CONFLICT"},
	state.CodePrecondition: {Status: http.StatusConflict, Reason: "CONFLICT"},
	state.CodeInvalidPart:  {Status: http.StatusBadRequest, Reason: "BAD_REQUEST"},
	state.CodeTooSmall:     {Status: http.StatusBadRequest, Reason: "BAD_REQUEST"},
	state.CodeNoVersion:    {Status: http.StatusNotFound, Reason: "NOT_FOUND"},
	state.CodeCredits:      {Status: http.StatusConflict, Reason: "INSUFFICIENT_FUNDS"},
}

// answer converts any error of a handler to the answer for the client.
func answer(err error) web.Answer {
	return web.AnswerBy(errorTable, err, "the cluster did not answer in time", "internal error; X-Request-Id names it in the log")
}
