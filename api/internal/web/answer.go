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

// Answer is the response to an error. Its JSON body has the nested form of the Pinning Service
// API, {"error":{"reason","details"}}. For 413 and 429 it has the flat form that the
// specification of that API requires.
type Answer struct {
	Status int
	Reason string
	Detail string // text for people; never empty
	// RetryAfter is sent in whole seconds, rounded up, if it is above zero.
	RetryAfter time.Duration
	// Allow lists the methods of the path, for 405.
	Allow []string
}

// Error is an error that the HTTP layer finds itself, such as an unknown path. It has no
// state.Code.
type Error struct{ Answer Answer }

func (e *Error) Error() string { return e.Answer.Detail }

// Errorf returns an Error with a status, a reason such as "BAD_REQUEST", and a formatted detail
// for people.
func Errorf(status int, reason, format string, args ...any) *Error {
	return &Error{Answer{Status: status, Reason: reason, Detail: fmt.Sprintf(format, args...)}}
}

// BadRequest returns the 400 error for a malformed request, with a formatted detail for people.
func BadRequest(format string, args ...any) *Error {
	return Errorf(http.StatusBadRequest, "BAD_REQUEST", format, args...)
}

// NoSuchRoute returns the 404 error for an unknown path.
func NoSuchRoute() *Error {
	return Errorf(http.StatusNotFound, "NOT_FOUND", "there is nothing at this path")
}

// MethodNotAllowed returns the 405 error for a method that the path does not support; allow lists
// the methods that it supports.
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

// write sends the answer, with the headers that its status requires.
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

// JSON answers with status and with v in JSON. If v cannot be marshalled, it returns an error and
// writes nothing.
func JSON(w http.ResponseWriter, status int, v any) error { return HeldJSON(w, status, v, nil) }

// HeldJSON works like JSON, and charges the size of the encoded answer to held before it writes.
// If held has too little memory left, HeldJSON writes nothing and returns an error that wraps
// state.ErrLimited. The caller releases held.
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

// AnswerBy converts err to an answer. An *Error has its own answer. For a *state.Error it returns
// the entry of table for its code; if that entry has no Detail, it adds the detail of the error.
// After a time-out or a cancelled context it returns the entry for state.CodeUnavailable with the
// detail late. For all other errors it returns status 500 with the detail internal.
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
