package state

import (
	"errors"
	"fmt"
)

// Code identifies the error of a command or a read. Codes are sent over the wire and stored:
// append only, never renumber.
type Code uint16

// All codes. The APIs map each code to a status; a test of theirs checks that no code is missing.
const (
	CodeOK           Code = 0
	CodeInvalid      Code = 1  // the request breaks a rule of the state
	CodeNotFound     Code = 2  // no such record, or a record of another account
	CodeExists       Code = 3  // a record with that name or id exists
	CodeConflict     Code = 4  // the state has changed: read again and retry
	CodeUnauthorized Code = 5  // token missing, invalid, revoked or expired
	CodeForbidden    Code = 6  // the token lacks the permission
	CodeQuota        Code = 7  // the account's allowance is used up
	CodeUnavailable  Code = 8  // no leader, no majority, shutting down
	CodeTooLarge     Code = 9  // a size or a number is above its limit
	CodeLimited      Code = 10 // too many requests
	CodeNoSpace      Code = 11 // the disks that would have to store the content are full

	// The following errors of the object gateway belong to feature level 3.
	CodeNoBucket     Code = 12 // no such bucket, or a bucket of another account
	CodeNoKey        Code = 13 // no object under that key
	CodeNoUpload     Code = 14 // no such multipart upload
	CodeNotEmpty     Code = 15 // the bucket has objects
	CodePrecondition Code = 16 // the current version does not meet the condition of the request
	CodeInvalidPart  Code = 17 // a part does not exist, or has another ETag
	CodeTooSmall     Code = 18 // a part other than the last is smaller than the minimum
	CodeNoVersion    Code = 19 // the key has no version with that id

	CodeCredits Code = 20 // a posting would make a balance negative; feature level 9
)

// Codes lists every code but CodeOK.
func Codes() []Code {
	return []Code{
		CodeInvalid, CodeNotFound, CodeExists, CodeConflict, CodeUnauthorized,
		CodeForbidden, CodeQuota, CodeUnavailable, CodeTooLarge, CodeLimited,
		CodeNoSpace, CodeNoBucket, CodeNoKey, CodeNoUpload, CodeNotEmpty, CodePrecondition,
		CodeInvalidPart, CodeTooSmall, CodeNoVersion, CodeCredits,
	}
}

// Error is the rejection of a command or a read, with a stable code. Compare it by errors.Is with
// the Err values; Detail is a text for people.
type Error struct {
	Code   Code
	Detail string
}

func (e *Error) Error() string { return e.Detail }

// Is matches any Error of the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// One value of each code, for errors.Is.
var (
	ErrInvalid      = &Error{CodeInvalid, "invalid request"}
	ErrNotFound     = &Error{CodeNotFound, "not found"}
	ErrExists       = &Error{CodeExists, "exists already"}
	ErrConflict     = &Error{CodeConflict, "the state has moved on, try again"}
	ErrUnauthorized = &Error{CodeUnauthorized, "access token is missing or invalid"}
	ErrForbidden    = &Error{CodeForbidden, "the token does not permit this"}
	ErrQuota        = &Error{CodeQuota, "storage allowance used up"}
	ErrUnavailable  = &Error{CodeUnavailable, "the cluster has no leader at the moment"}
	ErrTooLarge     = &Error{CodeTooLarge, "too large"}
	ErrLimited      = &Error{CodeLimited, "too many requests"}
	ErrNoSpace      = &Error{CodeNoSpace, "no space left"}
	ErrNoBucket     = &Error{CodeNoBucket, "the bucket does not exist"}
	ErrNoKey        = &Error{CodeNoKey, "the key does not exist"}
	ErrNoUpload     = &Error{CodeNoUpload, "the upload does not exist"}
	ErrNotEmpty     = &Error{CodeNotEmpty, "the bucket is not empty"}
	ErrPrecondition = &Error{CodePrecondition, "a condition of the request does not hold"}
	ErrInvalidPart  = &Error{CodeInvalidPart, "a part is missing or is not the one that was named"}
	ErrTooSmall     = &Error{CodeTooSmall, "a part is too small"}
	ErrNoVersion    = &Error{CodeNoVersion, "the version does not exist"}
	ErrCredits      = &Error{CodeCredits, "the account has too few credits"}
)

// worded returns e with the default text of its code if e has no text.
func (e *Error) worded() *Error {
	if e.Detail != "" {
		return e
	}
	for _, known := range []*Error{
		ErrInvalid, ErrNotFound, ErrExists, ErrConflict, ErrUnauthorized, ErrForbidden, ErrQuota, ErrUnavailable,
		ErrTooLarge, ErrLimited, ErrNoSpace, ErrNoBucket, ErrNoKey, ErrNoUpload, ErrNotEmpty, ErrPrecondition,
		ErrInvalidPart, ErrTooSmall, ErrNoVersion, ErrCredits,
	} {
		if known.Code == e.Code {
			return known
		}
	}
	return Errorf(e.Code, "refused, by code %d", e.Code) // of a newer release
}

// Errorf returns an Error of the code with a formatted detail.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// isOutcome returns whether an error is the rejection of a command, in contrast to an error of a
// broken store.
func isOutcome(err error) bool {
	var outcome *Error
	return errors.As(err, &outcome)
}
