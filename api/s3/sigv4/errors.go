package sigv4

import (
	"fmt"
	"net/http"
)

// Code is the reason why a request or its body is rejected.
type Code uint8

// Values of Code. Code.S3 returns the answer for each.
const (
	CodeNone           Code = iota // no signature
	CodeScheme                     // an Authorization header that is neither Bearer nor Signature Version 4
	CodeSeveral                    // credentials in more than one place
	CodeHeader                     // the Authorization header is malformed
	CodeQuery                      // the parameters of a presigned request are malformed
	CodeURI                        // path or query are not valid percent-encoding
	CodeDate                       // the time is missing or invalid
	CodeSkewed                     // the time differs by more than Window
	CodeExpired                    // a presigned request that has expired or is not valid yet
	CodeHeaders                    // required headers are not signed, or signed headers are missing
	CodeDenied                     // a token where none is accepted
	CodeUnknownKey                 // the access key is unknown, revoked or expired
	CodeSignature                  // the signature does not match
	CodeToken                      // a security token
	CodeRequest                    // a header is missing, headers contradict each other, or the framing is malformed
	CodeArgument                   // the value of a header or a form field is invalid
	CodeChunkSignature             // a chunk or the trailers do not match their signature
	CodePayload                    // the body does not match the signed hash
	CodeIncomplete                 // the body is shorter or longer than announced, or its chunks are malformed
	CodeTrailer                    // the trailers are not the announced ones

	codes // number of codes
)

// answers maps each Code to an error code of the S3 API and its HTTP status. A missing or invalid
// token is AccessDenied, as the specification of the S3 API requires. An unknown access key and a
// wrong signature have different codes, as in S3, because clients show them to users. That is
// safe: access key ids are not secret and cannot be guessed.
var answers = [codes]struct {
	name   string
	status int
}{
	CodeNone:           {"AccessDenied", http.StatusForbidden},
	CodeScheme:         {"AccessDenied", http.StatusForbidden},
	CodeSeveral:        {"AccessDenied", http.StatusForbidden},
	CodeHeader:         {"AuthorizationHeaderMalformed", http.StatusBadRequest},
	CodeQuery:          {"AuthorizationQueryParametersError", http.StatusBadRequest},
	CodeURI:            {"InvalidURI", http.StatusBadRequest},
	CodeDate:           {"AccessDenied", http.StatusForbidden},
	CodeSkewed:         {"RequestTimeTooSkewed", http.StatusForbidden}, // SDKs correct their clocks by it
	CodeExpired:        {"AccessDenied", http.StatusForbidden},
	CodeHeaders:        {"AccessDenied", http.StatusForbidden},
	CodeDenied:         {"AccessDenied", http.StatusForbidden},
	CodeUnknownKey:     {"InvalidAccessKeyId", http.StatusForbidden},
	CodeSignature:      {"SignatureDoesNotMatch", http.StatusForbidden},
	CodeToken:          {"InvalidToken", http.StatusBadRequest},
	CodeRequest:        {"InvalidRequest", http.StatusBadRequest},
	CodeArgument:       {"InvalidArgument", http.StatusBadRequest},
	CodeChunkSignature: {"SignatureDoesNotMatch", http.StatusForbidden}, // the key is known at that point
	CodePayload:        {"XAmzContentSHA256Mismatch", http.StatusBadRequest},
	CodeIncomplete:     {"IncompleteBody", http.StatusBadRequest},
	CodeTrailer:        {"MalformedTrailerError", http.StatusBadRequest},
}

// S3 returns the error code of the S3 API and the HTTP status of c.
func (c Code) S3() (name string, status int) {
	return answers[c].name, answers[c].status
}

// Error is the error for a request or a body that is rejected. Detail is a text for the client,
// without secrets, tokens and signatures.
type Error struct {
	Code   Code
	Detail string

	cause error
}

func (e *Error) Error() string { return e.Detail }

// Unwrap returns the error of reading the body, if that was the cause, or nil.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target is an *Error with the same Code. It implements errors.Is.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

func errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}
