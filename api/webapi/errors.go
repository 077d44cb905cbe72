package webapi

import (
	"net/http"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Values of the Retry-After header.
const (
	retryUnavailable = time.Second // about the duration of a leader election
	retryLimited     = time.Minute // how long an account is locked after too many wrong passwords
	retryNoSpace     = time.Minute // about the time after which deleted content has freed space
)

// absent is the answer for an id that does not exist, and also for an id of another account, so
// that nobody can probe ids.
var absent = web.Answer{Status: http.StatusNotFound, Reason: "NOT_FOUND", Detail: "nothing of this account has that name or id"}

// errorTable has the answer to each error code of the state. An empty Detail stands for the text
// of the error.
var errorTable = map[state.Code]web.Answer{
	state.CodeInvalid:      {Status: http.StatusBadRequest, Reason: "BAD_REQUEST"},
	state.CodeNotFound:     absent,
	state.CodeNoBucket:     absent,
	state.CodeNoKey:        absent,
	state.CodeNoUpload:     absent,
	state.CodeNoVersion:    absent,
	state.CodeExists:       {Status: http.StatusConflict, Reason: "CONFLICT"},
	state.CodeNotEmpty:     {Status: http.StatusConflict, Reason: "CONFLICT"},
	state.CodePrecondition: {Status: http.StatusConflict, Reason: "CONFLICT"},
	state.CodeTooLarge:     {Status: http.StatusConflict, Reason: "CONFLICT"}, // a number of records; bodies are web.Errors
	state.CodeQuota:        {Status: http.StatusConflict, Reason: "INSUFFICIENT_FUNDS"},
	state.CodeCredits:      {Status: http.StatusConflict, Reason: "INSUFFICIENT_FUNDS"},
	state.CodeConflict:     {Status: http.StatusServiceUnavailable, Reason: "SERVICE_UNAVAILABLE", RetryAfter: retryUnavailable},
	state.CodeUnavailable:  {Status: http.StatusServiceUnavailable, Reason: "SERVICE_UNAVAILABLE", RetryAfter: retryUnavailable},
	state.CodeUnauthorized: {Status: http.StatusUnauthorized, Reason: "UNAUTHORIZED", Detail: "the session or token is missing, invalid or over"},
	state.CodeForbidden:    {Status: http.StatusForbidden, Reason: "FORBIDDEN"},
	state.CodeLimited:      {Status: http.StatusTooManyRequests, Reason: "RATE_LIMITED", RetryAfter: retryLimited},
	state.CodeNoSpace:      {Status: http.StatusInsufficientStorage, Reason: "INSUFFICIENT_STORAGE", RetryAfter: retryNoSpace},

	// No request here is about parts.
	state.CodeInvalidPart: {Status: http.StatusBadRequest, Reason: "BAD_REQUEST"},
	state.CodeTooSmall:    {Status: http.StatusBadRequest, Reason: "BAD_REQUEST"},
}

// answer converts any error of a handler to the answer for the client.
func answer(err error) web.Answer {
	return web.AnswerBy(errorTable, err, "the cluster did not answer in time", "internal error; X-Request-Id names it in the log")
}
