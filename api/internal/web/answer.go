package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Answer is the response to an error: the nested body of the Pinning Service API,
// {"error":{"reason","details"}}, or for 413 and 429 the flat body that the specification
// gives them.
type Answer struct {
	Status int
	Reason string
	Detail string // text for people; never empty
	// RetryAfter is sent in whole seconds, rounded up, if it is above zero.
	RetryAfter time.Duration
	// Allow lists the methods of the path, for 405.
	Allow []string
}

// Error is an error of HTTP itself, without a state code.
type Error struct{ Answer Answer }

func (e *Error) Error() string { return e.Answer.Detail }

// Errorf returns an Error with a status and a reason.
func Errorf(status int, reason, format string, args ...any) *Error {
	return &Error{Answer{Status: status, Reason: reason, Detail: fmt.Sprintf(format, args...)}}
}

// BadRequest returns the error for a malformed request.
func BadRequest(format string, args ...any) *Error {
	return Errorf(http.StatusBadRequest, "BAD_REQUEST", format, args...)
}

// NoSuchRoute returns the error for an unknown path.
func NoSuchRoute() *Error {
	return Errorf(http.StatusNotFound, "NOT_FOUND", "there is nothing at this path")
}

// MethodNotAllowed returns the error for a method that the path does not support.
func MethodNotAllowed(allow ...string) *Error {
	return &Error{Answer{
		Status: http.StatusMethodNotAllowed, Reason: "METHOD_NOT_ALLOWED",
		Detail: "this path allows " + strings.Join(allow, ", "), Allow: allow,
	}}
}

type nested struct {
	Error reason `json:"error"`
}

type reason struct {
	Reason  string `json:"reason"`
	Details string `json:"details"`
}

type flat struct {
	Error      string `json:"error"`
	Message    string `json:"message,omitempty"`
	RetryAfter int64  `json:"retry_after,omitempty"` // seconds
}

// write sends the answer.
func (a Answer) write(w http.ResponseWriter) error {
	header := w.Header()
	seconds := int64((a.RetryAfter + time.Second - 1) / time.Second)
	if seconds > 0 {
		header.Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	if len(a.Allow) > 0 {
		header.Set("Allow", strings.Join(a.Allow, ", "))
	}
	var body any = nested{reason{a.Reason, a.Detail}}
	switch a.Status {
	case http.StatusUnauthorized:
		header.Set("WWW-Authenticate", "Bearer")
	case http.StatusRequestEntityTooLarge:
		header.Set("Connection", "close") // the rest of the body is not read
		body = flat{Error: a.Reason, Message: a.Detail}
	case http.StatusTooManyRequests:
		body = flat{Error: a.Reason, RetryAfter: seconds}
	}
	return JSON(w, a.Status, body)
}

// JSON answers with v. If v cannot be marshalled, it returns an error and writes nothing.
func JSON(w http.ResponseWriter, status int, v any) error { return HeldJSON(w, status, v, nil) }

// HeldJSON is JSON for large values: held counts the memory until the client has received
// the answer. If held has too little, HeldJSON writes nothing and returns an error that
// wraps state.ErrLimited.
func HeldJSON(w http.ResponseWriter, status int, v any, held *Held) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	if err := held.Grow(int64(len(body))); err != nil {
		return err
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}

// Empty answers with a status and no body.
func Empty(w http.ResponseWriter, status int) error {
	if status != http.StatusNoContent {
		w.Header().Set("Content-Length", "0")
	}
	w.WriteHeader(status)
	return nil
}

// AnswerBy returns the answer to an error: an Error's own, or the row of a surface's table
// for an error of the state, in which an empty Detail stands for the error's own. late is
// the detail after a time-out, internal the detail of all other errors.
func AnswerBy(table map[state.Code]Answer, err error, late, internal string) Answer {
	var own *Error
	if errors.As(err, &own) {
		return own.Answer
	}
	var coded *state.Error
	if errors.As(err, &coded) {
		if a, ok := table[coded.Code]; ok {
			if a.Detail == "" {
				a.Detail = coded.Detail
			}
			return a
		}
	} else if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		a := table[state.CodeUnavailable]
		a.Detail = late
		return a
	}
	return Answer{Status: http.StatusInternalServerError, Reason: "INTERNAL_SERVER_ERROR", Detail: internal}
}
